"""Generation: what a language model writes after prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from operator import index
from typing import Any, NamedTuple

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.errors import at, user_source
from treadle.models.beam import search
from treadle.models.sample import Sampling, count
from treadle.models.texts import begin, go_on


class Generated(NamedTuple):
    """What `generate` gives.

    Fields: tokens (batch, steps), those that follow the prompt, filled up with the stop
    token; lengths (batch), how many there are of each example, its stop token
    included; scores (batch), the logarithm of their probability in all, which beam
    search divides by ``length**length_penalty``.
    """

    tokens: td.Array
    lengths: td.Array
    scores: td.Array


def generate(
    model: nn.Module,
    tokens: tnp.ArrayLike,
    steps: int,
    *,
    lengths: tnp.ArrayLike | None = None,
    eos: int | Sequence[int] = (),
    temperature: tnp.ArrayLike | None = None,
    top_k: int | None = None,
    top_p: tnp.ArrayLike | None = None,
    beams: int = 1,
    length_penalty: tnp.ArrayLike = 1.0,
    key: rng.Key | None = None,
    **inputs: tnp.ArrayLike,
) -> Generated:
    """What a language model writes after prompts: the likeliest tokens; with a `key`,
    tokens that are drawn; with `beams`, a text that is likely as a whole.

    It is one compiled program, which reads the prompts once and then goes on token by
    token with caches (`nn.with_cache`) until all examples are over. It serves any batch
    and any length of prompts.

    Args:
      model: is called as ``model(tokens, lengths=..., **inputs)`` and gives logits
        (batch, length, entries): `GPT2`, `Llama`, or one of your own. It is evaluated
        (`nn.inference`).
      tokens: the prompts, (batch, length), padded at the end.
      steps: how many tokens are made at most.
      lengths: how many tokens each prompt has, (batch), at least one; by default all.
      eos: the token after which a text is over, or several such.
      temperature, top_k, top_p: logits are divided by the temperature, by default 1;
        then a token is drawn of the `top_k` likeliest, and of these of the likeliest
        that have the probability `top_p` in all (Holtzman 2020). They need a key.
      beams: how many texts are looked at side by side, as in transformers' beam search.
      length_penalty: of beams; the larger, the longer texts are preferred.
      key: random, to draw tokens.
      inputs: other arguments of the model, arrays that begin with the batch.

    Raises:
      ValueError: for options that don't go together.

    >>> from treadle import models, rng
    >>> gpt = models.GPT2(100, 16, 2, 4, key=rng.key(0))
    >>> out = models.generate(gpt, [[5, 6, 7], [8, 0, 0]], 4, lengths=[3, 1])
    >>> out.tokens.shape
    (2, 4)
    """
    beams = count("beams", beams)
    how = Sampling(key, temperature, top_k, top_p)
    if key is not None and beams > 1:
        raise ValueError(
            f"generate: beam search draws no tokens, got beams={beams} and a key"
            f"{at(user_source())}"
        )
    values, ranks = _arrays(inputs)
    common = (model, *_prompts(tokens, lengths), values)
    sizes: Any = {"steps": count("steps", steps), "ends": _ends(eos)}
    if beams > 1:
        run = _program(search, ranks)
        return Generated(*run(*common, length_penalty, beams=beams, **sizes))
    return Generated(*_program(_made, ranks)(*common, how, **sizes))


def stream(
    model: nn.Module,
    tokens: tnp.ArrayLike,
    steps: int,
    *,
    chunk: int = 8,
    lengths: tnp.ArrayLike | None = None,
    eos: int | Sequence[int] = (),
    temperature: tnp.ArrayLike | None = None,
    top_k: int | None = None,
    top_p: tnp.ArrayLike | None = None,
    key: rng.Key | None = None,
    **inputs: tnp.ArrayLike,
) -> Iterator[td.Array]:
    """The tokens of `generate`, as they are made: first one for each example, then up
    to `chunk` at a time, (batch, count).

    The others are the arguments of `generate`.

    >>> from treadle import models, rng
    >>> gpt = models.GPT2(100, 16, 2, 4, key=rng.key(0))
    >>> [x.shape for x in models.stream(gpt, [[5, 6, 7]], 6, chunk=4)]
    [(1, 1), (1, 4), (1, 1)]
    """
    how = Sampling(key, temperature, top_k, top_p)
    steps, chunk = count("steps", steps), count("chunk", chunk)
    prompts = _prompts(tokens, lengths)
    return _chunks(model, prompts, inputs, how, steps, chunk, _ends(eos))


def _chunks(
    model: Any,
    prompts: tuple[td.Array, td.Array],
    inputs: Any,
    how: Sampling,
    steps: int,
    chunk: int,
    ends: tuple[int, ...],
) -> Iterator[td.Array]:
    values, ranks = _arrays(inputs)
    run = _program(begin, ranks)
    texts = run(model, *prompts, values, how, steps=steps, ends=ends)
    before, made = 0, 1
    while before < made:
        yield texts.tokens[:, before:made]
        until = min(made + chunk, steps)
        texts = _continued(model, texts, until, values, how, ends=ends)
        before, made = made, int(texts.made)


def _made(
    model: Any,
    tokens: td.Array,
    lengths: td.Array,
    inputs: Any,
    how: Sampling,
    *,
    steps: int,
    ends: tuple[int, ...],
) -> tuple[td.Array, td.Array, td.Array]:
    first = begin(model, tokens, lengths, inputs, how, steps=steps, ends=ends)
    texts = go_on(model, first, steps, inputs, how, ends=ends)
    return texts.tokens, texts.lengths, texts.scores


_continued = td.jit(go_on, static="ends", donate="texts")


@cache
def _program(
    function: Callable[..., Any], ranks: tuple[tuple[str, int], ...]
) -> Callable[..., Any]:
    """One program for all batches and lengths, also of inputs of such ranks."""
    names = {
        name: ("batch", f"length of {name}", *(None,) * (rank - 2))[:rank]
        for name, rank in ranks
    }
    axes = {"tokens": ("batch", "length"), "lengths": ("batch",), "inputs": names}
    sizes = ("beams", "steps", "ends") if function is search else ("steps", "ends")
    return td.jit(function, static=sizes, dynamic=axes)


def _arrays(
    inputs: dict[str, Any],
) -> tuple[dict[str, td.Array], tuple[tuple[str, int], ...]]:
    """Further arguments of the model, and how many axes each has."""
    values = {name: tnp.asarray(value) for name, value in inputs.items()}
    return values, tuple((name, value.ndim) for name, value in values.items())


def _prompts(tokens: Any, lengths: Any) -> tuple[td.Array, td.Array]:
    """Tokens (batch, length) and lengths (batch).

    Raises:
      ValueError: for other shapes.
    """
    tokens = tnp.asarray(tokens)
    if tokens.ndim != 2 or not tokens.shape[1]:
        raise ValueError(
            "generate takes prompts (batch, length) of one token or more, got "
            f"{td.typeof(tokens)}{at(user_source())}\nOne prompt is `tokens[None]`."
        )
    if lengths is None:
        return tokens, tnp.full(tokens.shape[:1], tokens.shape[1], tnp.int32)
    lengths = tnp.asarray(lengths, tnp.int32)
    if lengths.shape != tokens.shape[:1]:
        raise ValueError(
            f"generate: lengths {td.typeof(lengths)} are not one for each of the "
            f"prompts {td.typeof(tokens)}{at(user_source())}"
        )
    return tokens, lengths


def _ends(eos: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(map(index, eos)) if isinstance(eos, Sequence) else (index(eos),)

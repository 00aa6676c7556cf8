"""Texts that grow by a token at a time: the likeliest one, or one that is drawn."""

from __future__ import annotations

from typing import Any, NamedTuple

import treadle as td
import treadle.numpy as tnp
from treadle import nn
from treadle.models.decoding import Inputs, advance, is_end, joined, split, start
from treadle.models.sample import Sampling


class Texts(NamedTuple):
    """What a loop carries: the number of tokens made, the last ones (batch), which
    examples are over (batch), all tokens (batch, steps), how many of these are of each
    example (batch), the logarithms of their probabilities (batch), caches."""

    made: td.Array
    last: td.Array
    over: td.Array
    tokens: td.Array
    lengths: td.Array
    scores: td.Array
    caches: list[Any]

    def add(
        self, logits: td.Array, caches: list[Any], how: Sampling, ends: tuple[int, ...]
    ) -> Texts:
        """With a further token, chosen by logits (batch, entries)."""
        token = how.next(logits, self.made)
        if ends:
            token = tnp.where(self.over, ends[0], token)
        chances = nn.log_softmax(logits.astype(tnp.float32))
        chance = tnp.take_along_axis(chances, token[:, None], -1)[:, 0]
        return Texts(
            self.made + 1,
            token,
            self.over | is_end(token, ends),
            self.tokens.at[:, self.made].set(token),
            self.lengths + (~self.over).astype(tnp.int32),
            self.scores + tnp.where(self.over, 0, chance),
            caches,
        )


def begin(
    model: Any,
    tokens: td.Array,
    lengths: td.Array,
    inputs: Inputs,
    how: Sampling,
    *,
    steps: int,
    ends: tuple[int, ...],
) -> Texts:
    """Reads the prompts and makes the first token, with room for so many."""
    logits, caches = start(model, tokens, lengths, tokens.shape[1] + steps - 1, inputs)
    batch = tokens.shape[0]
    zeros = tnp.zeros(batch, tnp.int32)
    filled = tnp.full((batch, steps), ends[0] if ends else 0, tnp.int32)
    none = Texts(
        tnp.asarray(0, tnp.int32),
        zeros,
        zeros.astype(bool),
        filled,
        zeros,
        tnp.zeros(batch),
        [],
    )
    return none.add(logits, caches, how, ends)


def go_on(
    model: Any,
    texts: Texts,
    until: tnp.ArrayLike,
    inputs: Inputs,
    how: Sampling,
    *,
    ends: tuple[int, ...],
) -> Texts:
    """Further tokens, until there are so many or all examples are over."""

    changing, kept = split(texts.caches)

    def going(texts: Texts) -> td.Array:
        return (texts.made < until) & ~texts.over.all()

    def step(texts: Texts) -> Texts:
        caches = joined(texts.caches, kept)
        logits, caches = advance(model, caches, texts.last, inputs)
        return texts.add(logits, split(caches)[0], how, ends)

    texts = td.while_loop(going, step, texts._replace(caches=changing))
    return texts._replace(caches=joined(texts.caches, kept))

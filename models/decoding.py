"""Token by token: a model with caches as a step of a loop, which carries them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import treadle as td
import treadle.numpy as tnp
from treadle import nn, tree

Model = TypeVar("Model")
Inputs = dict[str, td.Array]


def start(
    model: Any, tokens: td.Array, lengths: td.Array, room: int, inputs: Inputs
) -> tuple[td.Array, list[Any]]:
    """Reads prompts (batch, length): the logits after each (batch, entries), and what
    caches with room for so many tokens hold then."""
    cached = nn.with_cache(nn.inference(model), tokens.shape[0], room)
    logits, cached = nn.stateful(cached)(tokens, lengths=lengths, **inputs)
    last = tnp.take_along_axis(logits, (lengths - 1)[:, None, None], 1)
    return last[:, 0], held(cached)


def split(caches: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Caches that a step changes, and those of a context, which it only reads: each
    list has None where the other has a cache. A loop carries the first alone."""
    kept = [isinstance(cache, nn.ContextCache) for cache in caches]
    pairs = list(zip(caches, kept, strict=True))
    return [None if k else c for c, k in pairs], [c if k else None for c, k in pairs]


def joined(changing: Sequence[Any], kept: Sequence[Any]) -> list[Any]:
    """Caches that were `split`."""
    pairs = zip(changing, kept, strict=True)
    return [old if new is None else new for new, old in pairs]


def advance(
    model: Any, caches: Sequence[Any], token: td.Array, inputs: Inputs
) -> tuple[td.Array, list[Any]]:
    """The logits after a further token of each example (batch), and what the caches
    hold then."""
    empty = nn.with_cache(nn.inference(model), token.shape[0], 1)
    logits, cached = nn.stateful(_filled(empty, caches))(token[:, None], **inputs)
    return logits[:, 0], held(cached)


def is_end(token: td.Array, ends: Sequence[int]) -> td.Array:
    """Which tokens are one of these.

    >>> is_end(tnp.array([1, 2, 3]), (3, 1))
    Array([ True, False,  True], dtype=bool)
    """
    found = tnp.zeros_like(token, dtype=bool)
    for end in ends:
        found = found | (token == end)
    return found


def held(model: Any) -> list[Any]:
    """What the caches of a model hold.

    >>> from treadle import rng
    >>> layer = nn.MultiHeadAttention(8, 2, key=rng.key(0))
    >>> [cache] = held(nn.with_cache(layer, 3, 16))
    >>> cache.key.shape
    (3, 16, 2, 4)
    """
    parts = tree.leaves(model, is_leaf=_has_cache)
    return [part.cache.value for part in parts if _has_cache(part)]


def batch_axes(model: Any) -> list[int]:
    """Which axis of each cache, in the order of `held`, is the batch: the first, but in
    a `nn.Stack`, where layers come before.

    >>> from treadle import rng
    >>> make = lambda key: nn.MultiHeadAttention(8, 2, key=key)
    >>> batch_axes([make(rng.key(0)), nn.Stack(make, 3, key=rng.key(1))])
    [0, 1]
    """

    def stops(part: Any) -> bool:
        return isinstance(part, nn.Stack) or _has_cache(part)

    def found(model: Any, axis: int) -> Iterator[int]:
        for part in tree.leaves(model, stops):
            if isinstance(part, nn.Stack):
                yield from found(part.layers, axis + 1)
            elif _has_cache(part):
                yield axis

    return list(found(nn.with_cache(model, 1, 1), 0))


def _filled(model: Model, caches: Sequence[Any]) -> Model:
    """The model with other values in its caches."""
    values = iter(caches)

    def put(part: Any) -> Any:
        if not _has_cache(part):
            return part
        return part.replace(cache=nn.State(next(values)))

    return tree.map(put, model, is_leaf=_has_cache)


def _has_cache(part: Any) -> bool:
    return isinstance(part, nn.Module) and isinstance(
        getattr(part, "cache", None), nn.State
    )

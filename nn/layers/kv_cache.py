"""Keys and values that are kept, so that a further token costs one token."""

from __future__ import annotations

from typing import Any, Self, TypeVar

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source
from treadle.nn.layers.masks import Window, sees
from treadle.nn.layers.stack import Stack
from treadle.nn.module import Module
from treadle.nn.state import State

_FULL = """\
the cache of keys and values is full
Make it longer: `nn.with_cache(model, batch, length)`, with room for the prompt and \
all that follows."""


class KVCache(Module):
    """Room for the keys and values of `max_length` places, and how many each example
    has of them.

    Fields: key (*batch, max_length, heads, size), value (*batch, max_length, heads,
    value size), length (*batch) of int32. All begin with the axes of the batch, so that
    `tree.map(lambda x: x[parents], cache)` picks examples.

    >>> import treadle as td, treadle.numpy as tnp
    >>> cache = KVCache(2, 8, 1, 4)
    >>> key = value = tnp.ones((2, 3, 1, 4))
    >>> cache = cache.extend(key, value, lengths=[3, 1])
    >>> cache.length
    Array([3, 1], dtype=int32)
    """

    key: td.Array
    value: td.Array
    length: td.Array

    def __init__(
        self,
        batch: int | tuple[int, ...],
        max_length: int,
        heads: int,
        size: int,
        *,
        dtype: Any = tnp.float32,
    ) -> None:
        lead = batch if isinstance(batch, tuple) else (batch,)
        self.key = tnp.zeros((*lead, max_length, heads, size), dtype)
        self.value = tnp.zeros((*lead, max_length, heads, size), dtype)
        self.length = tnp.zeros(lead, tnp.int32)

    @property
    def max_length(self) -> int:
        """How many places there is room for."""
        return self.key.shape[-3]

    def places(self, count: int) -> td.Array:
        """The next places of each example: (*batch, count)."""
        return self.length[..., None] + tnp.arange(count)

    def extend(
        self, key: td.Array, value: td.Array, lengths: tnp.ArrayLike | None = None
    ) -> Self:
        """With further keys and values (*batch, count, heads, size).

        Args:
          lengths: how many of them each example has, (*batch); those after are padding,
            which the next `extend` overwrites.

        Raises:
          ValueError: if the shapes don't fit.
          CheckError: if there is no room.
        """
        self._check(key, value)
        count = key.shape[-3]
        added = tnp.asarray(count if lengths is None else lengths, tnp.int32)
        length = tnp.broadcast_to(self.length + added, self.length.shape)
        length = td.debug.error_if(length, length > self.max_length, _FULL)
        places = self.places(count)
        where = (*_numbers(self.length.shape), places)
        return self.replace(
            key=self.key.at[where].set(key.astype(self.key.dtype)),
            value=self.value.at[where].set(value.astype(self.value.dtype)),
            length=length,
        )

    def seen(self, places: td.Array, window: Window | None = None) -> td.Array:
        """Which places queries at `places` (*batch, queries) see, a mask (*batch, 1,
        queries, max_length): those up to their own, within the window."""
        return sees(places, tnp.arange(self.max_length), True, window)[..., None, :, :]

    def _check(self, key: td.Array, value: td.Array) -> None:
        for new, old in ((key, self.key), (value, self.value)):
            wanted = (*old.shape[:-3], *old.shape[-2:])
            if new.ndim < 3 or (*new.shape[:-3], *new.shape[-2:]) != wanted:
                raise ValueError(
                    f"a cache of keys and values for a batch of {self.length.shape} "
                    f"holds {td.typeof(old)}, got {td.typeof(new)} to write in it"
                    f"{at(user_source())}"
                )


class ContextCache(Module):
    """The keys and values of a context, which stay while a text is written.

    Fields: key (..., length, heads, size), value (..., length, heads, value size).
    """

    key: td.Array
    value: td.Array


def _numbers(batch: tuple[int, ...]) -> list[td.Array]:
    """The numbers of examples along each axis, to index with beside places."""
    return [
        tnp.arange(n).reshape(n, *(1,) * (len(batch) - axis))
        for axis, n in enumerate(batch)
    ]


Model = TypeVar("Model")


def with_cache(
    model: Model,
    batch: int | tuple[int, ...],
    length: int,
    *,
    dtype: Any = None,
) -> Model:
    """The model with empty caches, for generating token by token.

    From then on every self-attention in it keeps the keys and values of its calls, sees
    those of earlier calls, and is causal; places are counted on from call to call. So
    the model is called with new tokens alone, first with the prompt, by `nn.stateful`.
    Prompts of different lengths are padded at the end, and `lengths=` given to the
    layers. An attention made for a context keeps the keys and values of the context of
    the first call, and takes these in later ones: for another context, make the caches
    anew. A model that has a bidirectional encoder, too, has caches in its decoder
    alone: ``nn.at(model, lambda m: m.decoder).apply(...)``.

    A layer of your own takes part if it has a field `cache`, a State or None, and a
    method ``new_cache(batch, length, dtype)`` that gives the State's first value; None
    for what the first call finds out.

    Args:
      batch: how many examples there are at a time; a tuple for several leading axes.
      length: how many tokens there is room for, prompt and answer.
      dtype: of the keys and values; by default that in which the layer computes.

    Raises:
      ValueError: if no layer of the model takes part.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.MultiHeadAttention(8, 2, key=rng.key(0))
    >>> x = rng.normal(rng.key(1), (1, 5, 8))
    >>> cached = nn.with_cache(layer, batch=1, length=16)
    >>> prompt, cached = nn.stateful(cached)(x[:, :4])
    >>> token, cached = nn.stateful(cached)(x[:, 4:])
    >>> bool(tnp.allclose(token, layer(x, causal=True)[:, 4:], atol=1e-6))
    True
    """
    lead = batch if isinstance(batch, tuple) else (batch,)
    count = 0

    def filled(part: Any) -> Any:
        nonlocal count
        if isinstance(part, Stack):
            return part.replace(layers=td.vmap(fill)(part.layers))
        if not _is_cached(part):
            return part
        count += 1
        return part.replace(cache=State(part.new_cache(lead, length, dtype)))

    def fill(model: Any) -> Any:
        return tree.map(filled, model, is_leaf=_holds_caches)

    filled_model = fill(model)
    if not count:
        raise ValueError(
            f"with_cache: no layer of this {type(model).__name__} keeps keys and values"
            f"{at(user_source())}\n"
            "Those that do have a method `new_cache`, as `nn.MultiHeadAttention`."
        )
    return filled_model


def _holds_caches(part: Any) -> bool:
    return isinstance(part, Stack) or _is_cached(part)


def _is_cached(part: Any) -> bool:
    return isinstance(part, Module) and hasattr(type(part), "new_cache")

"""Masks of attention: who sees whom, as booleans; biases, as floats."""

from __future__ import annotations

from operator import index
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source

Window = int | tuple[int, int]


def causal_mask(queries: int, keys: int | None = None) -> td.Array:
    """Booleans (queries, keys): a query sees the keys at its own place and before.

    Args:
      keys: how many there are, by default as many as queries; of two different numbers,
        the last places coincide.

    >>> causal_mask(2, 3)
    Array([[ True,  True, False],
           [ True,  True,  True]], dtype=bool)
    """
    keys = queries if keys is None else keys
    return sees(tnp.arange(keys - queries, keys), tnp.arange(keys), causal=True)


def window_mask(queries: int, keys: int | None = None, *, window: Window) -> td.Array:
    """Booleans (queries, keys): a query sees the keys that are near (Beltagy 2020).

    Args:
      keys: as in `causal_mask`.
      window: how many places before its own a query sees, and how many after; one
        number for both.

    Raises:
      ValueError: if the window is not of one or two numbers from 0 on.

    >>> window_mask(3, window=(1, 0))
    Array([[ True, False, False],
           [ True,  True, False],
           [False,  True,  True]], dtype=bool)
    """
    keys = queries if keys is None else keys
    return sees(tnp.arange(keys - queries, keys), tnp.arange(keys), window=window)


def padding_mask(lengths: tnp.ArrayLike, keys: int) -> td.Array:
    """Booleans (..., 1, 1, keys): of each example, the first keys are seen, as many as
    its length.

    >>> padding_mask([1, 3], 3)[:, 0, 0]
    Array([[ True, False, False],
           [ True,  True,  True]], dtype=bool)
    """
    return tnp.arange(keys) < tnp.asarray(lengths)[..., None, None, None]


def combine_masks(*masks: tnp.ArrayLike | None) -> td.Array | None:
    """One mask for several: a key is seen where all booleans say so, and floats are
    added. None stands for no mask.

    >>> combine_masks(causal_mask(2), None, padding_mask(1, 2))
    Array([[[ True, False],
            [ True, False]]], dtype=bool)
    """
    seen = bias = None
    for mask in masks:
        if mask is None:
            continue
        if td.dtypes.is_float(td.typeof(mask).dtype):
            bias = tnp.asarray(mask) if bias is None else bias + mask
        else:
            seen = tnp.asarray(mask) if seen is None else tnp.logical_and(seen, mask)
    return (
        hidden(bias, seen)
        if bias is not None and seen is not None
        else (seen if bias is None else bias)
    )


def hidden(scores: td.Array, seen: Any) -> td.Array:
    """Scores of what is not seen are the least number.

    Not -inf: a query that sees nothing gets the mean of all, not NaN.
    """
    return tnp.where(seen, scores, float(tnp.finfo(scores.dtype).min))


def sees(
    query_places: td.Array,
    key_places: td.Array,
    causal: bool = False,
    window: Window | None = None,
) -> Any:
    """Whether queries (..., queries) see keys (..., keys): (..., queries, keys).

    None if there is nothing to say.
    """
    query, key = query_places[..., :, None], key_places[..., None, :]
    seen: Any = query >= key if causal else None
    if window is not None:
        before, after = both_ways(window)
        near = query - key <= before
        seen = near if seen is None else seen & near
        if not causal:
            seen = seen & (key - query <= after)
    return seen


def both_ways(window: Window) -> tuple[int, int]:
    """A window as two numbers.

    Raises:
      ValueError: if it is not one or two numbers from 0 on.
    """
    try:
        pair = tuple(map(index, window if isinstance(window, tuple) else (window,) * 2))
    except TypeError:
        pair = ()
    if len(pair) != 2 or min(pair) < 0:
        raise ValueError(
            "a window of attention is the number of places that a query sees before "
            f"and after its own, or a pair of them, got {window!r}{at(user_source())}"
        )
    return pair

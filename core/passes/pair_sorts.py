"""Sorts of complex numbers as pairs of real ones."""

from __future__ import annotations

from typing import Any

from treadle import dtypes
from treadle.ops.arithmetic import add
from treadle.ops.cast import convert
from treadle.ops.compare import ne
from treadle.ops.sort import sort
from treadle.passes.pairs import Pair


def sort_pairs(*arrays: Any, axis: int, num_keys: int) -> list[Any]:
    """A sort by real parts, and by imaginary ones where these tie. Numbers of which a
    part is not a number come last: first those of which the imaginary part is none."""
    keys, others = arrays[:num_keys], arrays[num_keys:]
    flat = [part for x in keys for part in _keys(x)]
    count = len(flat)
    for x in others:
        flat += x if isinstance(x, Pair) else [x]
    found = iter(sort(*flat, axis=axis, num_keys=count))
    results = []
    for i, x in enumerate(arrays):
        if not isinstance(x, Pair):
            results.append(next(found))
            continue
        if i < num_keys:
            next(found)
        results.append(Pair(next(found), next(found)))
    return results


def _keys(x: Any) -> list[Any]:
    if not isinstance(x, Pair):
        return [x]
    return [add(_is_nan(x.re), _is_nan(x.im)), *x]


def _is_nan(x: Any) -> Any:
    return convert(ne(x, x), dtype=dtypes.int32)

"""Convolutions whose windows lie side by side, and those that lead back from them, as
products. As images of patches, or where they are made smaller or larger, no input meets
more than one result: there is nothing that a kernel of convolutions could share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import is_dim, is_one, never_positive
from treadle.ir.graph import Atom, Lit
from treadle.ops.conv import Window
from treadle.ops.dot import dot_general
from treadle.ops.movement import reverse, transpose
from treadle.ops.shape import concatenate, pad, slice_
from treadle.trace.op import Op

_FEW_CHANNELS = 16
"""Of fewer, what a tap meets fills no vector, and lines of a window are short."""

_LONG_WINDOW = 256
"""Longer windows of few channels are copied sooner than read with 6 rows at once."""

_COLUMNS = 32
"""A row of taps with fewer features leaves columns of a product's tiles empty."""


class Emits(Protocol):
    """Who writes the equations."""

    is_filter_gradient: bool
    multiplied: Sequence[np.dtype]

    def emit(self, op: Op, operands: Sequence[Atom], **params: Any) -> Atom: ...

    def product(self, op: Op, operands: Sequence[Atom], **params: Any) -> Atom: ...

    def reshaped(self, a: Atom, shape: Sequence[int]) -> Atom: ...


def differ(params: dict[str, Any], some: dict[str, Any]) -> bool:
    """Whether one of some params is another. Of those that depend on open sizes, as
    padding and taps may, one guard asks, unless the others say so."""
    asked = []
    for name, value in some.items():
        pairs = zip(_numbers(params[name]), _numbers(value), strict=True)
        asked += [a - b + 1 for a, b in pairs]
    return not all_one(asked)


def _numbers(param: Any) -> list[Any]:
    if not isinstance(param, tuple):
        return [param]
    return [n for part in param for n in _numbers(part)]


def all_one(numbers: Sequence[int]) -> bool:
    """Whether all are 1. Of open sizes one guard asks, unless those that are not open
    say no."""
    return all(is_dim(n) or n == 1 for n in numbers) and is_one(*numbers)


def replaced(values: Sequence[Any], i: int, value: Any) -> tuple[Any, ...]:
    """The same with another value at one place."""
    return (*values[:i], value, *values[i + 1 :])


def zero(a: Atom) -> Lit:
    """Of an array's dtype."""
    return Lit(np.zeros((), a.type.dtype), ArrayType((), a.type.dtype))


def part(f: Emits, a: Atom, axis: int, first: int, step: int, count: int = 0) -> Atom:
    """Every so many elements of an axis: `count` of them, or all from the first on."""
    shape, rank = a.type.shape, a.type.ndim
    stop = first + (count - 1) * step + 1 if count else shape[axis]
    starts, steps = (
        replaced((0,) * rank, axis, first),
        replaced((1,) * rank, axis, step),
    )
    limits = replaced(shape, axis, stop)
    return f.emit(slice_, [a], starts=starts, limits=limits, steps=steps)


def of_windows(f: Emits, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """Of few channels, or of several groups: a product of copied windows, each a row.

    Otherwise the kernel of convolutions reads windows where they lie, in no more time,
    and so does it short windows of floats; but for the gradient by the filter of half
    floats, which would pair images there.
    """
    kernel = params["kernel"] if f.is_filter_gradient else y.type.shape[:-2]
    groups, channels, rank = params["feature_groups"], x.type.shape[-1], len(kernel)
    ones = (1,) * rank
    plain = {"strides": tuple(kernel), "lhs_dilation": ones, "rhs_dilation": ones}
    if math.prod(params["strides"]) == 1 or differ(params, plain):
        return None
    if any(never_positive(low) and low != 0 for low, _ in params["padding"]):
        return None
    each, features = channels // groups, y.type.shape[-1]
    if groups != 1 and each == 1 and features == groups:
        return None
    half = x.type.dtype in f.multiplied
    pays = f.is_filter_gradient or half or math.prod(kernel) * each >= _LONG_WINDOW
    if each >= _FEW_CHANNELS:
        pays = f.is_filter_gradient and half
    if groups == 1 and not pays:
        return None
    window = Window(**{k: v for k, v in params.items() if k != "kernel"})
    out = window.out_spatial(x.type.shape[1:-1], kernel)
    x = _padded(f, x, params["padding"])
    rows = _windows(f, x, kernel, out, groups)
    pixels, row = x.type.shape[0] * math.prod(out), math.prod(kernel) * each
    how: dict[str, Any]
    if f.is_filter_gradient:
        y = f.reshaped(y, (pixels, groups, features // groups))
        how = {"contract": ((0,), (0,)), "batch": ((1,), (1,))}
        if groups == 1:
            how["batch"] = ((), ())
            rows, y = (f.reshaped(a, (pixels, a.type.shape[-1])) for a in (rows, y))
        result = f.product(dot_general, [rows, y], **how)
        shape = (groups, row, features // groups)
        result = f.emit(transpose, [f.reshaped(result, shape)], permutation=(1, 0, 2))
        return f.reshaped(result, (*kernel, each, features))
    y = f.reshaped(y, (row, groups, features // groups))
    if groups == 1:
        rows, y = f.reshaped(rows, (pixels, row)), f.reshaped(y, (row, features))
        how = {"contract": ((1,), (0,)), "batch": ((), ())}
        result = f.product(dot_general, [rows, y], **how)
    else:
        how = {"contract": ((2,), (0,)), "batch": ((1,), (1,))}
        result = f.product(dot_general, [rows, y], **how)
        result = f.emit(transpose, [result], permutation=(1, 0, 2))
    return f.reshaped(result, (x.type.shape[0], *out, features))


def _padded(f: Emits, x: Atom, ends: Sequence[tuple[int, int]]) -> Atom:
    """With zeros around it, unless none are needed for any size."""
    if not any(is_dim(low) or low or not never_positive(high) for low, high in ends):
        return x
    padding = [(low, high, 0) for low, high in ends]
    return f.emit(pad, [x, zero(x)], padding=((0, 0, 0), *padding, (0, 0, 0)))


def _windows(
    f: Emits, x: Atom, kernel: Sequence[int], out: Sequence[int], groups: int
) -> Atom:
    """(windows, groups, what is in a window), without what is left behind them."""
    images, *_, channels = x.type.shape
    rank, each = len(kernel), channels // groups
    whole = [n * k for n, k in zip(out, kernel, strict=True)]
    cut = {"starts": (0,) * (rank + 2), "steps": (1,) * (rank + 2)}
    x = f.emit(slice_, [x], limits=(images, *whole, channels), **cut)
    split = [n for pair in zip(out, kernel, strict=True) for n in pair]
    x = f.reshaped(x, (images, *split, groups, each))
    outer, inner = range(1, 2 * rank, 2), range(2, 2 * rank + 1, 2)
    order = (0, *outer, 2 * rank + 1, *inner, 2 * rank + 2)
    x = f.emit(transpose, [x], permutation=order)
    return f.reshaped(x, (images * math.prod(out), groups, math.prod(kernel) * each))


def of_tiles(f: Emits, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """Where gaps are as long as the filter, each element gives results of its own: a
    product, with what it gives for all taps side by side."""
    kernel, rank = y.type.shape[:-2], y.type.ndim - 2
    tiles = {
        "strides": (1,) * rank,
        "lhs_dilation": tuple(kernel),
        "rhs_dilation": (1,) * rank,
        "feature_groups": 1,
    }
    gaps = math.prod(params["lhs_dilation"])
    if f.is_filter_gradient or gaps == 1 or differ(params, tiles):
        return None
    ends = [
        (low - k + 1, high - k + 1)
        for (low, high), k in zip(params["padding"], kernel, strict=True)
    ]
    # What was padding, on the way here, is cut off; or what the windows left behind are
    # zeros at the end.
    cut = all(never_positive(n) for pair in ends for n in pair)
    if not cut and any(low != 0 or high < 0 for low, high in ends):
        return None
    y = f.emit(reverse, [y], axes=tuple(range(rank)))
    if rank == 2 and kernel[1] * y.type.shape[-1] >= _COLUMNS:
        result = _lines_of_tiles(f, x, y)
    else:
        result = _blocks_of_tiles(f, x, y)
    if not cut:
        return _padded(f, result, ends)
    lengths = result.type.shape[1:-1]
    starts = [-low for low, _ in ends]
    limits = [n + high for n, (_, high) in zip(lengths, ends, strict=True)]
    images, *_, features = result.type.shape
    where = {"starts": (0, *starts, 0), "limits": (images, *limits, features)}
    return f.emit(slice_, [result], **where, steps=(1,) * (rank + 2))


def _blocks_of_tiles(f: Emits, x: Atom, y: Atom) -> Atom:
    """By a filter of any rank: one product, whose rows have all taps. Taps that were
    axes of its result would ask which steps are longer, which open sizes don't say."""
    *kernel, channels, features = y.type.shape
    rank, row = len(kernel), math.prod(kernel) * features
    order: tuple[int, ...] = (rank, *range(rank), rank + 1)
    y = f.reshaped(f.emit(transpose, [y], permutation=order), (channels, row))
    how = {"contract": ((rank + 1,), (0,)), "batch": ((), ())}
    result = f.product(dot_general, [x, y], **how)
    images, *space, _ = x.type.shape
    result = f.reshaped(result, (images, *space, *kernel, features))
    pairs = [axis for i in range(1, rank + 1) for axis in (i, i + rank)]
    order = (0, *pairs, 2 * rank + 1)
    result = f.emit(transpose, [result], permutation=order)
    lengths = [n * k for n, k in zip(space, kernel, strict=True)]
    return f.reshaped(result, (images, *lengths, features))


def _lines_of_tiles(f: Emits, x: Atom, y: Atom) -> Atom:
    """Of images, by a filter whose taps are in the results' order: a product for each
    row of taps, which is written where its lines of results belong."""
    images, height, width, channels = x.type.shape
    down, across, _, features = y.type.shape
    x = f.reshaped(x, (images * height, width, channels))
    how = {"contract": ((2,), (0,)), "batch": ((), ())}
    pieces = []
    for tap in range(down):
        row = f.reshaped(part(f, y, 0, tap, 1, 1), (across, channels, features))
        row = f.emit(transpose, [row], permutation=(1, 0, 2))
        row = f.reshaped(row, (channels, across * features))
        pieces.append(f.product(dot_general, [x, row], **how))
    result = f.emit(concatenate, pieces, axis=1)
    return f.reshaped(result, (images, height * down, width * across, features))

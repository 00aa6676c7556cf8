"""Convolutions of images that are as large as the filter, and those that lead back from
one pixel, as products. The last layers of discriminators and of LeNet are such, and the
first ones of generators: each tap meets one pixel, or leads to a result of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from treadle.dims import is_dim, same_shape
from treadle.ir.graph import Atom
from treadle.ops.dot import dot_general, fills_as_rows
from treadle.ops.movement import broadcast_in_dim, reverse, transpose
from treadle.ops.shape import pad, slice_
from treadle.passes.windows import Emits, all_one, differ, zero


def of_whole_images(f: Emits, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """A filter that meets all of an image, once: images are rows of a product."""
    images, *space, channels = x.type.shape
    kernel, rank = _taps(f, y, params), len(space)
    if not _alone(params, rank, "lhs_dilation") or _is_single(kernel):
        return None
    places = [n - k + 1 for n, k in zip(space, kernel, strict=True)]
    if not _all_met(places, params["padding"]):
        return None
    row, features = math.prod(kernel) * channels, y.type.shape[-1]
    rows = f.reshaped(_cut(f, x, kernel), (images, row))
    if not f.is_filter_gradient:
        how = {"contract": ((1,), (0,)), "batch": ((), ())}
        y = f.reshaped(y, (row, features))
        result = f.product(dot_general, [rows, y], **how)
        return _filled(f, f.reshaped(result, (images, *(1,) * rank, features)), places)
    how = {"contract": ((0,), (0,)), "batch": ((), ())}
    y = f.reshaped(_cut(f, y, (1,) * rank), (images, features))
    if fills_as_rows(row, features, images):
        result = f.product(dot_general, [y, rows], **how)
        result = f.emit(transpose, [result], permutation=(1, 0))
    else:
        result = f.product(dot_general, [rows, y], **how)
    return f.reshaped(result, (*kernel, channels, features))


def of_one_pixel(f: Emits, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """An image of one pixel, which each tap meets in a result of its own: of its
    gradient by the filter, a product for each tap."""
    images, *space, channels = x.type.shape
    kernel, rank = _taps(f, y, params), len(space)
    if not _alone(params, rank, "strides"):
        return None
    if _is_single(kernel) and not f.is_filter_gradient:
        return None
    ends = [
        (low - k + 1, high - k + 1)
        for (low, high), k in zip(params["padding"], kernel, strict=True)
    ]
    if not _all_met(space, ends):
        return None
    axes, features = tuple(range(rank)), y.type.shape[-1]
    x = f.reshaped(_cut(f, x, (1,) * rank), (images, channels))
    if not f.is_filter_gradient:
        how = {"contract": ((1,), (rank,)), "batch": ((), ())}
        y = f.emit(reverse, [y], axes=axes)
        met = [
            n + low + high - k + 1
            for n, (low, high), k in zip(space, params["padding"], kernel, strict=True)
        ]
        return _filled(f, f.product(dot_general, [x, y], **how), met)
    taps = math.prod(kernel)
    y = _cut(f, y, kernel)
    shape = taps, images, channels
    x = f.emit(broadcast_in_dim, [x], shape=shape, dims=(1, 2))
    y = f.emit(reverse, [y], axes=tuple(axis + 1 for axis in axes))
    y = f.reshaped(y, (images, taps, features))
    how = {"contract": ((1,), (0,)), "batch": ((0,), (1,))}
    result = f.product(dot_general, [x, y], **how)
    return f.reshaped(result, (*kernel, channels, features))


def _cut(f: Emits, a: Atom, lengths: Sequence[int]) -> Atom:
    """An array whose axes between the first and the last have these lengths, wherever
    this program is for."""
    shape = (a.type.shape[0], *lengths, a.type.shape[-1])
    if not any(map(is_dim, a.type.shape[1:-1])) or same_shape(a.type.shape, shape):
        return a
    rank = a.type.ndim
    return f.emit(slice_, [a], starts=(0,) * rank, limits=shape, steps=(1,) * rank)


def _filled(f: Emits, a: Atom, lengths: Sequence[int]) -> Atom:
    """The same the other way round: an array with axes of such lengths."""
    shape = (a.type.shape[0], *lengths, a.type.shape[-1])
    if not any(map(is_dim, lengths)) or same_shape(a.type.shape, shape):
        return a
    pairs = zip(shape, a.type.shape, strict=True)
    return f.emit(pad, [a, zero(a)], padding=tuple([(0, n - m, 0) for n, m in pairs]))


def _taps(f: Emits, y: Atom, params: dict[str, Any]) -> tuple[int, ...]:
    """How many the filter has along each axis."""
    return params["kernel"] if f.is_filter_gradient else y.type.shape[:-2]


def _is_single(kernel: Sequence[int]) -> bool:
    """Whether there is one tap, for all sizes."""
    return not any(map(is_dim, kernel)) and math.prod(kernel) == 1


def _alone(params: dict[str, Any], rank: int, steps: str) -> bool:
    """Whether there is one group, and taps, and these steps, are side by side."""
    ones = (1,) * rank
    plain: dict[str, Any] = {steps: ones, "rhs_dilation": ones, "feature_groups": 1}
    return not differ(params, plain)


def _all_met(lengths: Sequence[int], ends: Sequence[tuple[int, int]]) -> bool:
    """Whether all lengths are 1, and all ends 0."""
    return all_one([*lengths, *[end + 1 for pair in ends for end in pair]])

"""Convolutions of integers, which no convolution kernel has, as products of patches.

What each tap of the filter meets is a view of the padded images. Side by side these are
the rows of a product, whose columns are features. Where each channel gives one feature,
they are multiplied and added element by element instead.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.ir.graph import Atom, Lit
from treadle.ops.arithmetic import add, mul
from treadle.ops.conv import Window
from treadle.ops.dot import dot_general
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.ops.shape import concatenate, pad, slice_
from treadle.passes.integers import SUMS
from treadle.trace.op import Op

_MOST_TAPS = 128
"""There is a copy for each."""

_NARROW, _FILLED = 8, 16
"""Channels and features of a group that is worth no product of its own, and of one that
several become."""


class Emits(Protocol):
    """Who writes the equations."""

    is_filter_gradient: bool

    def emit(self, op: Op, operands: Sequence[Atom], **params: Any) -> Atom: ...


def of_patches(f: Emits, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """A convolution of integers of 32 bits."""
    if f.is_filter_gradient or x.type.dtype not in SUMS:
        return None
    if math.prod(y.type.shape[:-2]) > _MOST_TAPS:
        return None
    window = Window(**params)
    kernel, features = y.type.shape[:-2], y.type.shape[-1]
    out = window.out_spatial(x.type.shape[1:-1], kernel)
    groups, each = window.feature_groups, y.type.shape[-2]
    x = _padded(f, x, window)
    axes = range(len(out))
    if each == 1 and features == groups != 1:
        return _by_elements(f, _seen(f, x, window, kernel, out, axes), y)
    join = _joined(y, groups)
    groups, each = groups // join, each * join
    lead = (x.type.shape[0], *out)
    n, taps = len(lead), math.prod(kernel)
    rows = f.emit(reshape, [x], shape=(*x.type.shape[:-1], 1, groups, each))
    # What the taps of a row meet is put together first: there are fewer copies then,
    # of longer pieces.
    for some in (axes[-1:], axes[:-1]):
        parts = _seen(f, rows, window, kernel, out, some) if some else [rows]
        rows = parts[0] if len(parts) == 1 else f.emit(concatenate, parts, axis=n)
    filters = f.emit(
        reshape,
        [_side_by_side(f, y, groups, join)],
        shape=(taps, each, groups, features // groups),
    )
    contract = ((n, n + 2), (0, 1))
    if groups == 1:
        rows = f.emit(reshape, [rows], shape=(*lead, taps * each))
        filters = f.emit(reshape, [filters], shape=(taps * each, features))
        return f.emit(
            dot_general, [rows, filters], contract=((n,), (0,)), batch=((), ())
        )
    batch = ((n + 1,), (2,))
    result = f.emit(dot_general, [rows, filters], contract=contract, batch=batch)
    order = (*range(1, n + 1), 0, n + 1)
    result = f.emit(transpose, [result], permutation=order)
    return f.emit(reshape, [result], shape=(*lead, features))


def _joined(y: Atom, groups: int) -> int:
    """How many groups become one, beside zeros: what a narrow one has of channels and
    features fills no vector."""
    each, features = y.type.shape[-2:]
    if any(map(is_dim, (*y.type.shape, groups))):
        return 1
    widest = max(each, features // groups)
    most = _FILLED // widest if widest < _NARROW else 1
    return max([n for n in range(2, most + 1) if not groups % n], default=1)


def _side_by_side(f: Emits, y: Atom, groups: int, join: int) -> Atom:
    """Filters of so many groups, each of several: each feature of these has zeros for
    what the others read."""
    if join == 1:
        return y
    *kernel, each, features = y.type.shape
    own = features // groups // join
    taps, width = math.prod(kernel), join * own
    y = f.emit(reshape, [y], shape=(taps, each, groups, join, own))
    # Rows that are longer than they are read as begin further on, each by its own.
    y = f.emit(pad, [y, _zero(y)], padding=(*[(0, 0, 0)] * 4, (0, width, 0)))
    y = f.emit(reshape, [y], shape=(taps, each, groups, join * (own + width)))
    y = f.emit(
        slice_,
        [y],
        starts=(0, 0, 0, 0),
        limits=(taps, each, groups, join * width),
        steps=(1, 1, 1, 1),
    )
    y = f.emit(reshape, [y], shape=(taps, each, groups, join, width))
    return f.emit(transpose, [y], permutation=(0, 3, 1, 2, 4))


def _padded(f: Emits, x: Atom, window: Window) -> Atom:
    """Images with what is around them, and between their pixels."""
    ends = [
        (low, high, by - 1)
        for (low, high), by in zip(window.padding, window.lhs_dilation, strict=True)
    ]
    if all(end == (0, 0, 0) for end in ends):
        return x
    nothing = (0, 0, 0)
    return f.emit(pad, [x, _zero(x)], padding=(nothing, *ends, nothing))


def _zero(x: Atom) -> Lit:
    return Lit(np.zeros((), x.type.dtype), ArrayType((), x.type.dtype))


def _seen(
    f: Emits,
    x: Atom,
    window: Window,
    kernel: Sequence[int],
    out: Sequence[int],
    axes: Sequence[int],
) -> list[Atom]:
    """What each tap along some axes meets, at all results along these."""
    steps, rank = [1] * x.type.ndim, x.type.ndim
    for axis in axes:
        steps[axis + 1] = window.strides[axis]
    seen = []
    for tap in itertools.product(*[range(kernel[axis]) for axis in axes]):
        starts, limits = [0] * rank, list(x.type.shape)
        for axis, i in zip(axes, tap, strict=True):
            starts[axis + 1] = start = i * window.rhs_dilation[axis]
            limits[axis + 1] = start + (out[axis] - 1) * window.strides[axis] + 1
        cut = {"starts": tuple(starts), "limits": tuple(limits)}
        seen.append(f.emit(slice_, [x], **cut, steps=tuple(steps)))
    return seen


def _by_elements(f: Emits, seen: Sequence[Atom], y: Atom) -> Atom:
    """Each channel gives one feature."""
    shape, channels = seen[0].type.shape, y.type.shape[-1]
    taps = math.prod(y.type.shape[:-2])
    filters = f.emit(reshape, [y], shape=(taps, channels))
    total = None
    for i, part in enumerate(seen):
        cut = {"starts": (i, 0), "limits": (i + 1, channels), "steps": (1, 1)}
        weights = f.emit(slice_, [filters], **cut)
        weights = f.emit(reshape, [weights], shape=(channels,))
        dims = (len(shape) - 1,)
        weights = f.emit(broadcast_in_dim, [weights], shape=shape, dims=dims)
        term = f.emit(mul, [part, weights])
        total = term if total is None else f.emit(add, [total, term])
    assert total is not None, "a filter has taps"
    return total

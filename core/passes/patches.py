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
    lead = (x.type.shape[0], *out)
    n, taps = len(lead), math.prod(kernel)
    rows = f.emit(reshape, [x], shape=(*x.type.shape[:-1], 1, groups, each))
    # What the taps of a row meet is put together first: there are fewer copies then,
    # of longer pieces.
    for some in (axes[-1:], axes[:-1]):
        parts = _seen(f, rows, window, kernel, out, some) if some else [rows]
        rows = parts[0] if len(parts) == 1 else f.emit(concatenate, parts, axis=n)
    filters = f.emit(reshape, [y], shape=(taps, each, groups, features // groups))
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


def _padded(f: Emits, x: Atom, window: Window) -> Atom:
    """Images with what is around them, and between their pixels."""
    ends = [
        (low, high, by - 1)
        for (low, high), by in zip(window.padding, window.lhs_dilation, strict=True)
    ]
    if all(end == (0, 0, 0) for end in ends):
        return x
    zero, nothing = (
        Lit(np.zeros((), x.type.dtype), ArrayType((), x.type.dtype)),
        (0,) * 3,
    )
    return f.emit(pad, [x, zero], padding=(nothing, *ends, nothing))


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

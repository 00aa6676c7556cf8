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
    seen = _seen(f, x, window, kernel, out)
    groups, each = window.feature_groups, y.type.shape[-2]
    if each == 1 and features == groups != 1:
        return _by_elements(f, seen, y)
    lead = (x.type.shape[0], *out)
    n, taps = len(lead), len(seen)
    shape = (*lead, 1, groups, each)
    parts = [f.emit(reshape, [a], shape=shape) for a in seen]
    rows = parts[0] if taps == 1 else f.emit(concatenate, parts, axis=n)
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


def _seen(
    f: Emits, x: Atom, window: Window, kernel: Sequence[int], out: Sequence[int]
) -> list[Atom]:
    """What each tap meets, at all results."""
    ends = [
        (low, high, by - 1)
        for (low, high), by in zip(window.padding, window.lhs_dilation, strict=True)
    ]
    if any(end != (0, 0, 0) for end in ends):
        zero = Lit(np.zeros((), x.type.dtype), ArrayType((), x.type.dtype))
        nothing = (0, 0, 0)
        x = f.emit(pad, [x, zero], padding=(nothing, *ends, nothing))
    images, *_, channels = x.type.shape
    steps = (1, *window.strides, 1)
    seen = []
    for tap in itertools.product(*map(range, kernel)):
        starts = [i * by for i, by in zip(tap, window.rhs_dilation, strict=True)]
        limits = [
            start + (count - 1) * step + 1
            for start, count, step in zip(starts, out, window.strides, strict=True)
        ]
        cut = {"starts": (0, *starts, 0), "limits": (images, *limits, channels)}
        seen.append(f.emit(slice_, [x], **cut, steps=steps))
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

"""Gives convolutions the forms that kernels have: of images and volumes, not of lines;
of elements without zeros between them; and if groups are single channels, or give
single features, of one channel and one feature each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle.dims import is_dim
from treadle.ir.graph import Atom, Equation
from treadle.ops.conv import Window, conv_general
from treadle.ops.dot import dot_general, fills_as_rows
from treadle.ops.interleave import interleave
from treadle.ops.movement import broadcast_in_dim, reshape, reverse, transpose
from treadle.ops.reduce import reduce_sum
from treadle.ops.shape import concatenate, pad, slice_
from treadle.passes.halves import product
from treadle.passes.patches import of_patches
from treadle.passes.rewrite import Rewriter
from treadle.passes.whole import of_one_pixel, of_whole_images
from treadle.passes.windows import differ, of_tiles, of_windows, part, replaced, zero
from treadle.trace.op import Op

_ROW: dict[str, Any] = {
    "strides": 1,
    "padding": (0, 0),
    "lhs_dilation": 1,
    "rhs_dilation": 1,
    "kernel": 1,
}
"""What a convolution does along an axis that its images don't have."""

_MOST_REPEATED = 8
"""How often channels are repeated, rather than giving the matrix kernel few columns."""


_COLUMNS = 16
"""So many features take about as long as one, for the kernels of most machines."""


def convolution(
    rewriter: Rewriter,
    eq: Equation,
    x: Atom,
    y: Atom,
    multiplied: Sequence[np.dtype] = (),
) -> Atom:
    """A convolution, or its gradient by the filter, of other operands.

    multiplied: half floats that have kernels, whose results are single at first.
    """
    return _Forms(rewriter, eq, multiplied).given(x, y, dict(eq.params))


def adds_results(eq: Equation, x: Atom, y: Atom) -> bool:
    """Whether a convolution may become one whose results are added up, which they must
    not be once they are rounded: one of several groups, of single channels or results,
    but for images of which each channel gives one result."""
    groups, ends = eq.params["feature_groups"], (x.type.shape[-1], y.type.shape[-1])
    if groups == 1 or groups not in ends:
        return False
    return x.type.ndim > 4 or ends[0] != ends[1]


class _Forms:
    """The equations that stand instead of one."""

    def __init__(
        self, rewriter: Rewriter, eq: Equation, multiplied: Sequence[np.dtype]
    ) -> None:
        self.rewriter, self.eq, self.multiplied = rewriter, eq, multiplied
        self.is_filter_gradient = eq.op is not conv_general

    def emit(self, op: Op, operands: Sequence[Atom], **params: Any) -> Atom:
        return self.rewriter.emit(op, list(operands), params, self.eq.source)[0]

    def product(self, op: Op, operands: Sequence[Atom], **params: Any) -> Atom:
        """Work for a matrix kernel."""
        if operands[0].type.dtype not in self.multiplied:
            return self.emit(op, operands, **params)
        return product(self.rewriter, op, operands, params, self.eq.source)

    def reshaped(self, a: Atom, shape: Sequence[int]) -> Atom:
        return self.emit(reshape, [a], shape=tuple(shape))

    def copies(self, a: Atom, times: int) -> Atom:
        """With so many copies of each channel, side by side."""
        shape = a.type.shape
        dims = tuple(range(len(shape)))
        a = self.emit(broadcast_in_dim, [a], shape=(*shape, times), dims=dims)
        return self.reshaped(a, (*shape[:-1], shape[-1] * times))

    def given(self, x: Atom, y: Atom, params: dict[str, Any]) -> Atom:
        for form in _FORMS:
            found = form(self, x, y, params)
            if found is not None:
                return found
        return self.product(self.eq.op, [x, y], **params)


def _of_lines(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """A line is an image of one row, and a point a line of one pixel."""
    if x.type.ndim > 3:
        return None
    params = {
        name: (_ROW[name], *value) if name in _ROW else value
        for name, value in params.items()
    }
    n, *rest = x.type.shape
    x = f.reshaped(x, (n, 1, *rest))
    n, *rest = y.type.shape
    y = f.reshaped(y, (n, 1, *rest) if f.is_filter_gradient else (1, n, *rest))
    result = f.given(x, y, params)
    shape = list(result.type.shape)
    del shape[0 if f.is_filter_gradient else 1]
    return f.reshaped(result, shape)


class _Phases(NamedTuple):
    """How results along an axis take turns: as many as are between two elements.

    ends: padding for each of them, with the first tap of its part of the filter; None
    if it meets no tap. length: how many results each has. shift: how many results more
    are made in front.
    """

    ends: list[tuple[int, tuple[int, int]] | None]
    length: int
    shift: int

    @staticmethod
    def of(by: int, taps: int, size: int, out: int, low: int) -> _Phases:
        shift = 0
        if is_dim(low):
            # Which taps a phase meets must be known.
            shift, low = -low % by, -(-low // by) * by
        length = -(-(out + shift) // by)
        ends: list[tuple[int, tuple[int, int]] | None] = []
        for phase in range(by):
            first = (low - phase) % by
            met = len(range(first, taps, by))
            # Where the phase's first result meets its first tap.
            before = (low - phase - first) // by
            after = length + met - 1 - size - before
            ends.append((first, (before, after)) if met else None)
        return _Phases(ends, length, shift)


def _in_phases(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """With zeros between the elements of an axis, each of the results in turn meets
    another part of the filter: a convolution without zeros for each part.

    A depthwise convolution takes as long as its results take to be moved once more.
    """
    window = Window(**{k: v for k, v in params.items() if k != "kernel"})
    gaps, kernel, ones = window.lhs_dilation, y.type.shape[:-2], (1, 1)
    steps = list(zip(window.strides, window.rhs_dilation, strict=True))
    axes = [i for i, by in enumerate(gaps) if by > 1 and steps[i] == ones]
    if not axes or f.is_filter_gradient:
        return None
    if window.feature_groups != 1 and y.type.shape[-2] == 1:
        return None
    if not (several := [i for i in axes if kernel[i] != 1]):
        return _among_zeros(f, x, y, params)
    out = window.out_spatial(x.type.shape[1:-1], kernel)
    phases = {
        i: _Phases.of(gaps[i], kernel[i], n, out[i], window.padding[i][0])
        for i, n in enumerate(x.type.shape[1:-1])
        if i in several
    }
    counts = [phases[i].length if i in phases else n for i, n in enumerate(out)]
    shape = (x.type.shape[0], *counts, y.type.shape[-1])
    pieces = []
    for met in itertools.product(*[p.ends for p in phases.values()]):
        ends = [end for end in met if end is not None]
        if len(ends) < len(met):
            nothing = {"shape": shape, "dims": ()}
            pieces.append(f.emit(broadcast_in_dim, [zero(x)], **nothing))
            continue
        some, changed = y, params
        for i, (first, padding) in zip(phases, ends, strict=True):
            alone = {"lhs_dilation": 1, "padding": padding}
            values = {k: replaced(changed[k], i, v) for k, v in alone.items()}
            some, changed = part(f, some, i, first, gaps[i]), changed | values
        pieces.append(f.given(x, some, changed))
    turns = [gaps[i] if i in phases else 1 for i in range(len(gaps))]
    result = f.emit(interleave, pieces, turns=(1, *turns, 1))
    shifts = [phases[i].shift if i in phases else 0 for i in range(len(gaps))]
    limits = [n + shift for n, shift in zip(out, shifts, strict=True)]
    return f.emit(
        slice_,
        [result],
        starts=(0, *shifts, 0),
        limits=(shape[0], *limits, shape[-1]),
        steps=(1,) * (len(gaps) + 2),
    )


def _among_zeros(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom:
    """Along axes of single taps zeros stay zeros, whatever is where."""
    rank, gaps = len(params["strides"]), params["lhs_dilation"]
    ends, some = [], {"lhs_dilation": 1, "padding": (0, 0)}
    changed = {k: params[k] for k in some}
    for i in range(rank):
        single = y.type.shape[i] == params["strides"][i] == 1 and gaps[i] > 1
        ends.append((*params["padding"][i], gaps[i] - 1) if single else (0, 0, 0))
        if single:
            changed = {k: replaced(v, i, some[k]) for k, v in changed.items()}
    result = f.given(x, y, params | changed)
    padding = ((0, 0, 0), *ends, (0, 0, 0))
    return f.emit(pad, [result, zero(result)], padding=padding)


def _phases_as_features(
    f: _Forms, x: Atom, y: Atom, params: dict[str, Any]
) -> Atom | None:
    """The same where there are few features, which would fill no vector: those of all
    phases side by side, of one convolution without zeros."""
    rank, gaps = x.type.ndim - 2, params["lhs_dilation"]
    ones = {"strides": (1,) * rank, "rhs_dilation": (1,) * rank, "feature_groups": 1}
    if f.is_filter_gradient or differ(params, ones):
        return None
    kernel, features = y.type.shape[:-2], y.type.shape[-1]
    taps = [-(-k // by) for k, by in zip(kernel, gaps, strict=True)]
    several = features * math.prod(gaps)
    work = math.prod(taps) * -(-several // _COLUMNS)
    if 3 * work > 2 * math.prod(kernel) * -(-features // _COLUMNS):
        return None
    y = _filter_of_phases(f, y, gaps, taps)
    # The results at by * i - (by - 1) + low and the next by - 1 are pixel i's.
    window = Window(**{k: v for k, v in params.items() if k != "kernel"})
    out = window.out_spatial(x.type.shape[1:-1], kernel)
    ends, counts, starts = [], [], []
    for n, o, by, t, (low, _) in zip(
        x.type.shape[1:-1], out, gaps, taps, params["padding"], strict=True
    ):
        counts.append((o + by - 2 - low) // by + low // by + 1)
        ends.append((low // by, counts[-1] + t - 1 - n - low // by))
        starts.append(by - 1 - low % by)
    changed = {"lhs_dilation": (1,) * rank, "padding": tuple(ends)}
    result = f.given(x, y, params | changed)
    images = x.type.shape[0]
    result = f.reshaped(result, (images, *counts, *gaps, features))
    pairs = [axis for i in range(1, rank + 1) for axis in (i, i + rank)]
    result = f.emit(transpose, [result], permutation=(0, *pairs, 2 * rank + 1))
    space = [m * by for m, by in zip(counts, gaps, strict=True)]
    result = f.reshaped(result, (images, *space, features))
    limits = [a + o for a, o in zip(starts, out, strict=True)]
    return f.emit(
        slice_,
        [result],
        starts=(0, *starts, 0),
        limits=(images, *limits, features),
        steps=(1,) * (rank + 2),
    )


def _filter_of_phases(
    f: _Forms, y: Atom, gaps: Sequence[int], taps: Sequence[int]
) -> Atom:
    """What meets an element in each of its `gaps` results, as features, of a filter
    that gets so many `taps`."""
    *kernel, channels, features = y.type.shape
    padding = [(0, t * by - k, 0) for k, by, t in zip(kernel, gaps, taps, strict=True)]
    y = f.emit(pad, [y, zero(y)], padding=(*padding, (0, 0, 0), (0, 0, 0)))
    split = [n for pair in zip(taps, gaps, strict=True) for n in pair]
    y = f.reshaped(y, (*split, channels, features))
    outer, inner = range(0, 2 * len(taps), 2), range(1, 2 * len(taps), 2)
    y = f.emit(reverse, [y], axes=tuple(inner))
    order = (*outer, len(split), *inner, len(split) + 1)
    y = f.emit(transpose, [y], permutation=order)
    return f.reshaped(y, (*taps, channels, math.prod(gaps) * features))


def _exchanged(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """The gradient by a filter that meets zeros between elements: by the flipped filter
    of the convolution that leads back, whose strides pass over those."""
    window = Window(**{k: v for k, v in params.items() if k != "kernel"})
    gaps, strides = math.prod(window.lhs_dilation), math.prod(window.strides)
    if not f.is_filter_gradient or gaps <= strides:
        return None
    kernel, groups = params["kernel"], window.feature_groups
    back = window.backward(x.type.shape[1:-1], kernel, y.type.shape[1:-1])
    result = f.given(y, x, back._asdict() | {"kernel": kernel})
    rank, (*_, features, channels) = len(kernel), result.type.shape
    result = f.emit(reverse, [result], axes=tuple(range(rank)))
    result = f.reshaped(result, (*kernel, features, groups, channels // groups))
    order = (*range(rank), rank + 2, rank + 1, rank)
    result = f.emit(transpose, [result], permutation=order)
    return f.reshaped(result, (*kernel, channels // groups, groups * features))


def _of_volumes(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """With zeros between the images of a volume, or if groups are single channels, a
    volume is images, of all that the filter meets along its first axis. And so is what
    has more axes."""
    each = x.type.shape[-1] // params["feature_groups"]
    depthwise = each == 1 and y.type.shape[-1] == params["feature_groups"]
    gaps = params["lhs_dilation"][0] != 1
    halves = x.type.dtype in f.multiplied  # images of them are pairs already
    if x.type.ndim <= 4 or (x.type.ndim == 5 and not (gaps or depthwise or halves)):
        return None
    images, depth, *space, _ = x.type.shape
    rest = {k: v[1:] if k in _ROW else v for k, v in params.items()}
    if f.is_filter_gradient:
        taps, count = params["kernel"][0], y.type.shape[1]
        y = f.reshaped(y, (images * count, *y.type.shape[2:]))
    else:
        taps, kernel = y.type.shape[0], y.type.shape[:-2]
        count = Window(**params).out_spatial((depth, *space), kernel)[0]
    padding = [(0, 0, 0)] * x.type.ndim
    padding[1] = (*params["padding"][0], params["lhs_dilation"][0] - 1)
    x = f.emit(pad, [x, zero(x)], padding=tuple(padding))
    seen = []
    for tap in range(taps):
        first, step = tap * params["rhs_dilation"][0], params["strides"][0]
        one = part(f, x, 1, first, step, count)
        seen.append(f.reshaped(one, (images * count, *space, x.type.shape[-1])))
    result = _added(f, seen, y, rest) if depthwise else _mixed(f, seen, y, rest)
    if f.is_filter_gradient:
        return result
    return f.reshaped(result, (images, count, *result.type.shape[1:]))


def _mixed(f: _Forms, seen: list[Atom], y: Atom, params: dict[str, Any]) -> Atom:
    """What each tap of the first axis meets are channels of a pixel: in every group,
    those of all taps."""
    groups, taps = params["feature_groups"], len(seen)
    *lead, channels = seen[0].type.shape
    parts = [f.reshaped(a, (*lead, groups, 1, channels // groups)) for a in seen]
    x = f.emit(concatenate, parts, axis=len(lead) + 1)
    x = f.reshaped(x, (*lead, taps * channels))
    n = len(lead) - 1
    if f.is_filter_gradient:
        result = f.given(x, y, params)
        *kernel, _, features = result.type.shape
        shape = (*kernel, taps, channels // groups, features)
        order = (n, *range(n), n + 1, n + 2)
        return f.emit(transpose, [f.reshaped(result, shape)], permutation=order)
    _, *kernel, each, features = y.type.shape
    order = (*range(1, n + 1), 0, n + 1, n + 2)
    y = f.emit(transpose, [y], permutation=order)
    return f.given(x, f.reshaped(y, (*kernel, taps * each, features)), params)


def _added(f: _Forms, seen: list[Atom], y: Atom, params: dict[str, Any]) -> Atom:
    """The same where a group is one channel, and gives one feature: those of a tap are
    side by side, and results of all taps are added."""
    taps, features = len(seen), y.type.shape[-1]
    n, params = seen[0].type.ndim - 2, params | {"feature_groups": taps * features}
    x = f.emit(concatenate, seen, axis=n + 1)
    if f.is_filter_gradient:
        dims, lead = tuple([*range(n + 1), n + 2]), y.type.shape[:-1]
        y = f.emit(broadcast_in_dim, [y], shape=(*lead, taps, features), dims=dims)
        result = f.given(x, f.reshaped(y, (*lead, taps * features)), params)
        result = f.reshaped(result, (*params["kernel"], 1, taps, features))
        order = (n + 1, *range(n), n, n + 2)
        return f.emit(transpose, [result], permutation=order)
    _, *kernel, _, _ = y.type.shape
    order = (*range(1, n + 2), 0, n + 2)
    y = f.emit(transpose, [y], permutation=order)
    result = f.given(x, f.reshaped(y, (*kernel, 1, taps * features)), params)
    lead = result.type.shape[:-1]
    result = f.reshaped(result, (*lead, taps, features))
    return f.emit(reduce_sum, [result], axes=(len(lead),))


def _repeated(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """Of a channel with several features each gets a copy."""
    groups, features = params["feature_groups"], y.type.shape[-1]
    times = _times(groups, x.type.shape[-1], features)
    if times is None:
        return None
    return f.given(f.copies(x, times), y, params | {"feature_groups": features})


def _summed(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """A feature of several channels is the sum of what each gives."""
    groups, channels = params["feature_groups"], x.type.shape[-1]
    times = _times(groups, y.type.shape[-1], channels)
    if times is None:
        return None
    params = params | {"feature_groups": channels}
    if f.is_filter_gradient:
        result = f.given(x, f.copies(y, times), params)
        return _turned(f, f.reshaped(result, (*params["kernel"], groups, times)))
    result = f.given(
        x, f.reshaped(_turned(f, y), (*y.type.shape[:-2], 1, channels)), params
    )
    shape = result.type.shape
    result = f.reshaped(result, (*shape[:-1], groups, times))
    return f.emit(reduce_sum, [result], axes=(len(shape),))


def _turned(f: _Forms, a: Atom) -> Atom:
    """With the last two axes exchanged."""
    n = a.type.ndim
    return f.emit(transpose, [a], permutation=(*range(n - 2), n - 1, n - 2))


def _of_points(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """By a filter that meets each pixel alone, all pixels are rows of a product, which
    fills its tiles, however small the images are."""
    rank = x.type.ndim - 2
    plain: dict[str, Any] = {k: (v,) * rank for k, v in _ROW.items() if k != "kernel"}
    plain["feature_groups"] = 1
    taps = y.type.shape[:-2]
    if f.is_filter_gradient or math.prod(taps) != 1 or differ(params, plain):
        return None
    y = f.reshaped(y, y.type.shape[-2:])
    how = {"contract": ((rank + 1,), (0,)), "batch": ((), ())}
    return f.product(dot_general, [x, y], **how)


def _of_single_taps(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """The gradient by a filter that meets each pixel alone is a product over pixels: of
    all, or those at every so many steps."""
    rank = x.type.ndim - 2
    plain: dict[str, Any] = {k: (v,) * rank for k, v in _ROW.items() if k != "strides"}
    plain["feature_groups"] = 1
    if not f.is_filter_gradient or differ(params, plain):
        return None
    for axis, step in enumerate(params["strides"], start=1):
        if step != 1:
            x = part(f, x, axis, 0, step, y.type.shape[axis])
    rows = [
        f.reshaped(a, (math.prod(a.type.shape[:-1]), a.type.shape[-1])) for a in (x, y)
    ]
    how = {"contract": ((0,), (0,)), "batch": ((), ())}
    (terms, channels), (_, features) = (a.type.shape for a in rows)
    if fills_as_rows(channels, features, terms):
        result = _turned(f, f.product(dot_general, rows[::-1], **how))
    else:
        result = f.product(dot_general, rows, **how)
    return f.reshaped(result, (*params["kernel"], *result.type.shape))


_FORMS = (
    _of_points,
    of_whole_images,
    of_one_pixel,
    _of_lines,
    _of_single_taps,
    _exchanged,
    of_tiles,
    of_windows,
    _phases_as_features,
    _in_phases,
    _of_volumes,
    _repeated,
    _summed,
    of_patches,
)
"""The first of these that gives something is taken."""


def _times(groups: int, one: int, several: int) -> int | None:
    """How many of `several` there are in a group that has one of the others; None if
    that is not so, or they are no few."""
    if groups == 1 or groups != one:
        return None
    times = several // groups
    return times if 1 < times <= _MOST_REPEATED else None

"""Nests of window reductions (pooling) and of their gradients.

Nothing is padded in memory. Along an axis on which windows reach beyond the array, an
index is moved inside before it is used; what was outside then counts as padding, or
(for extremes) is a second look at an element of the window, which changes nothing.

Vectors along such an axis, which images with channels first and signals have, would be
loaded one by one: there the result is three blocks, and only what is at the ends moves
indices.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim, never_positive
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import Strided, operand_strides, row_major, stored_strides
from treadle.fuse.lowering.launches import Launch
from treadle.fuse.lowering.nests import Access, NestWriter, finish
from treadle.fuse.lowering.vectors import innermost
from treadle.fuse.maps import Space
from treadle.ir import scalar
from treadle.ir.graph import Atom, Equation
from treadle.ir.maps import ZERO, Affine, address, linear, plus, scaled, shifted
from treadle.kernels.nest import is_half
from treadle.ops.window import highest, lowest
from treadle.records import field, record
from treadle.trace.lowering import Window

_INDEX = np.dtype(np.int64)
_COMBINE = {"sum": scalar.ADD, "max": scalar.MAXIMUM, "min": scalar.MINIMUM}
_FEW = 9
"""Elements of a window, or windows of an element, that are written one by one: what is
the same for all channels of a pixel is then found once, and nothing is kept in
vectors between turns."""

_LEAST_INSIDE = 16
"""Elements of a row that are worth a nest of their own."""


def window_launches(eq: Equation, flow: Dataflow) -> list[Launch] | None:
    """The nests of an op of `treadle.ops.window`; None if an operand must be copied
    first."""
    how = eq.op.lowering
    assert isinstance(how, Window)
    operands = operand_strides(eq, flow)
    if operands is None:
        return None
    strided = dict(zip(eq.inputs, operands, strict=True))
    found = []
    for block in _blocks(eq, how.what):
        launch = _LAUNCHES[how.what](_Windows(eq, flow, how.what, strided, block))
        if launch is None:
            return None
        found.append(launch)
    return found


class _Block(NamedTuple):
    """A part of the result: `size` elements along a spatial axis, from `first` on."""

    axis: int
    first: int
    size: int


def _blocks(eq: Equation, what: str) -> list[_Block | None]:
    """The parts of a result that have nests of their own: along the axis of vectors
    what is at its ends, and between them, where no window and no element of one is
    outside; None is all of the result. Each number is found as it is otherwise, so
    results of open lengths may be whole: loops that sum in another order where there is
    less to do (`column.py`) have no parts."""
    shape, params = eq.outputs[0].type.shape, eq.params
    axis = next((i for i in reversed(range(len(shape))) if shape[i] != 1), 0)
    if what == "pick" or axis in (0, len(shape) - 1) or is_dim(shape[axis]):
        return [None]
    n, m, i = eq.inputs[0].type.shape[axis], shape[axis], axis - 1
    w, s, (low, _) = (params[k][i] for k in ("window", "strides", "padding"))
    if is_dim(n) or (what == "put" and s > 1) or _sums_in_loop(eq, what):
        return [None]
    first, last = -(-low // s), (n - w + low) // s
    if what == "put":
        first, last = w - 1 - low, n - 1 - low
    first, end = max(first, 0), min(last + 1, m)
    if end - first < _LEAST_INSIDE or (first, end) == (0, m):
        return [None]
    pairs = itertools.pairwise((0, first, end, m))
    return [_Block(i, a, b - a) for a, b in pairs if a < b]


def _sums_in_loop(eq: Equation, what: str) -> bool:
    """Whether numbers that round are added up in a loop over a window."""
    if what not in ("sum", "put") or eq.outputs[0].type.dtype.kind in "biu":
        return False
    steps = zip(eq.params["window"], eq.params["strides"], strict=True)
    return math.prod(-(-w // s) if what == "put" else w for w, s in steps) > _FEW


@record
class _Axis:
    """Indices into one spatial axis of an array; `number` is an instruction that gives
    an index that can't be written as an affine map, and `inside` whether it was there
    before it was moved inside."""

    entry: Affine
    number: int | None = None
    inside: int | None = None


@record
class _Windows:
    """The loops over a result of shape (N, *spatial, C), or a block of it, and its
    windows' elements."""

    eq: Equation
    flow: Dataflow
    what: str
    operands: dict[Atom, Strided]
    block: _Block | None = None
    space: Space = field(init=False)

    def __post_init__(self) -> None:
        params = self.eq.params
        self.sizes, self.strides = params["window"], params["strides"]
        self.padding = params["padding"]
        self.out = self.eq.outputs[0]
        self.space = Space(self.flow.units)
        self.entries = self.space.index(self.out)
        if self.block is not None:
            axis, first, size = self.block
            entries = list(self.entries)
            self.space.sizes[entries[axis + 1].terms[0][0]] = size
            entries[axis + 1] = shifted(entries[axis + 1], first)
            self.entries = tuple(entries)
        self.mid: list[int] = []
        self.turns: list[tuple[Affine, ...]] = []

    def body(self, steps: Sequence[int]) -> NestWriter:
        """Begins to write, for `steps` turns along each spatial axis: few are written
        one by one, others are a loop."""
        if math.prod(steps) <= _FEW:
            turns = itertools.product(*map(range, steps))
            self.turns = [tuple(map(Affine, turn)) for turn in turns]
        else:
            self.turns = [
                tuple([ZERO if n == 1 else self.space.dimension(n) for n in steps])
            ]
            self.mid = [d for a in self.turns[0] for d, _ in a.terms]
        self.written = NestWriter(self.space, self.flow)
        return self.written

    def read(self, a: Atom, axes: Sequence[_Axis]) -> int:
        """Loads an operand at indices along its spatial axes."""
        source, offset, steps = self.operands[a]
        place = (self.entries[0], *(x.entry for x in axes), self.entries[-1])
        extra, strides = address(place, steps)
        numbers = [
            (x.number, step)
            for x, step in zip(axes, steps[1:-1], strict=True)
            if x.number is not None
        ]
        return self.written.load(
            source,
            offset + extra,
            strides,
            tuple(i for i, _ in numbers),
            tuple(step for _, step in numbers),
        )

    def elements(self, turn: Sequence[Affine]) -> list[_Axis]:
        """Where in the operand an element of a window is."""
        found = []
        for i, (n, m, w) in enumerate(self._extents()):
            (low, _), stride, (top, end) = (
                self.padding[i],
                self.strides[i],
                self.rows(i, m),
            )
            first = shifted(scaled(self.entries[i + 1], stride), -low)
            entry = plus(first, turn[i])
            if never_positive(low - top * stride) and never_positive(
                (end - 1) * stride - low + w - n
            ):
                found.append(_Axis(entry))
            else:
                found.append(self.moved(self.written.iota(entry, _INDEX), n))
        return found

    def starts_inside(self) -> int | None:
        """Whether the first element of a window is no padding; None if all are."""
        result = None
        for i, (n, m, _) in enumerate(self._extents()):
            (low, _), stride, (top, end) = (
                self.padding[i],
                self.strides[i],
                self.rows(i, m),
            )
            if never_positive(low - top * stride) and never_positive(
                (end - 1) * stride - low - n + 1
            ):
                continue
            entry = shifted(scaled(self.entries[i + 1], stride), -low)
            axis = self.moved(self.written.iota(entry, _INDEX), n)
            result = self.both(result, axis.inside)
        return result

    def some_are_padding(self) -> bool:
        """Whether there may be windows that have no element at all."""
        return not all(
            never_positive(low - w + 1)
            and never_positive((m - 1) * stride - low - n + 1)
            for (n, m, w), stride, (low, _) in zip(
                self._extents(), self.strides, self.padding, strict=True
            )
        )

    def _extents(self) -> list[tuple[int, int, int]]:
        """Sizes of the operand, the result and the window along each spatial axis."""
        shapes = self.eq.inputs[0].type.shape, self.out.type.shape
        n, m = (shape[1:-1] for shape in shapes)
        return list(zip(n, m, self.sizes, strict=True))

    def rows(self, i: int, m: int) -> tuple[int, int]:
        """From where to where the result has m elements along a spatial axis, or the
        block some of them."""
        if self.block is None or self.block.axis != i:
            return 0, m
        return self.block.first, self.block.first + self.block.size

    def moved(self, index: int, size: int) -> _Axis:
        number, inside = self.written.place(index, _INDEX, size - 1, True)
        return _Axis(ZERO, number, inside)

    def both(self, a: int | None, b: int | None) -> int | None:
        """The conjunction of conditions, either of which may be absent."""
        if a is None or b is None:
            return b if a is None else a
        return self.written.both(a, b)

    def inside(self, axes: Sequence[_Axis]) -> int | None:
        """Whether all indices are inside; None if they always are."""
        result = None
        for axis in axes:
            result = self.both(result, axis.inside)
        return result

    def select(self, condition: int | None, yes: int, no: Any, dtype: Any) -> int:
        """`yes` where the condition holds (or is absent), else the number `no`."""
        if condition is None:
            return yes
        other = self.const(no, dtype)
        return self.written.instr(scalar.SELECT, (condition, yes, other), dtype)

    def const(self, number: Any, dtype: np.dtype) -> int:
        return self.written.instr("const", (), dtype, number)

    def place(self, axes: Sequence[_Axis], sizes: Sequence[int]) -> int:
        """The indices as one into the flattened spatial axes."""
        body = self.written
        entries = [axis.entry for axis in axes]
        total = body.iota(linear(zip(entries, sizes, strict=True)), _INDEX)
        for axis, step in zip(axes, row_major(tuple(sizes)), strict=True):
            if axis.number is not None:
                factor = body.number(step, _INDEX)
                number = body.instr(scalar.MUL, (axis.number, factor), _INDEX)
                total = body.instr(scalar.ADD, (total, number), _INDEX)
        return total

    def launch(self, value: int) -> Launch:
        """The finished nest, which stores `value`."""
        body, sizes = self.written, self.space.sizes
        strides = stored_strides(self.out, self.flow)
        offset, pairs = address(self.entries, strides)
        where = tuple(sorted(pairs.items()))
        k = body.access(Access(self.out, self.out.type.dtype, offset, where, True))
        body.instr("store", (value,), self.out.type.dtype, k)
        kept = [d for a in self.entries for d, _ in a.terms]
        if self.block is not None and self.block.size < _LEAST_INSIDE:
            # Rows are better side by side than a few elements of one.
            ends = [d for d, _ in self.entries[self.block.axis + 1].terms]
            kept = [*ends, *(d for d in kept if d not in ends)]
        if not self.mid:
            return finish(body, sizes, kept, [], None, "inner")
        inner = innermost([[d] for d in kept], sizes)
        outer = [d for d in kept if d not in inner]
        return finish(body, sizes, outer, [self.mid], inner, "mid")

    def reduced(self, name: str, values: Sequence[int], dtype: np.dtype) -> int:
        """The values of all turns combined."""
        if self.mid:
            return self.written.reduce(name, values[0], dtype)
        wide = dtypes.float32 if name == "sum" and is_half(dtype) else dtype
        values = [self.converted(v, wide) for v in values]
        total = values[0]
        for value in values[1:]:
            total = self.written.instr(_COMBINE[name], (total, value), wide)
        return self.converted(total, dtype)

    def converted(self, value: int, dtype: np.dtype) -> int:
        if self.written.instrs[value].dtype == dtype:
            return value
        return self.written.instr(scalar.CONVERT, (value,), dtype)


def _sum(w: _Windows) -> Launch:
    w.body(w.sizes)
    dtype, found = w.out.type.dtype, []
    for turn in w.turns:
        axes = w.elements(turn)
        value = w.read(w.eq.inputs[0], axes)
        found.append(w.select(w.inside(axes), value, 0, dtype))
    return w.launch(w.reduced("sum", found, dtype))


def _element(w: _Windows, axes: Sequence[_Axis]) -> int:
    """An element of a window; what never wins, in the padding."""
    (x,) = w.eq.inputs
    value = w.read(x, axes)
    if w.some_are_padding():
        value = w.select(w.inside(axes), value, _loser(w), x.type.dtype)
    return value


def _extreme_of(w: _Windows) -> str:
    return "max" if w.what.endswith("max") else "min"


def _loser(w: _Windows) -> Any:
    fill = lowest if _extreme_of(w) == "max" else highest
    return fill(w.eq.inputs[0].type.dtype)


def _extreme(w: _Windows) -> Launch:
    w.body(w.sizes)
    found = [_element(w, w.elements(turn)) for turn in w.turns]
    return w.launch(w.reduced(_extreme_of(w), found, w.out.type.dtype))


def _arg_extreme(w: _Windows) -> Launch:
    """The first place of the extreme: windows run through the flattened axes in
    ascending order."""
    body, t = w.body(w.sizes), w.eq.inputs[0].type
    dtype, found = w.out.type.dtype, []
    for turn in w.turns:
        axes = w.elements(turn)
        place = w.converted(w.place(axes, t.shape[1:-1]), dtype)
        found.append((_element(w, axes), place))
    best, first = _first_in_loop(w, *found[0]) if w.mid else _first_of(w, found)
    starts_inside = w.starts_inside()
    if starts_inside is not None:
        # If nothing is better than padding, the first element of the window counts.
        fill = w.const(_loser(w), t.dtype)
        better = body.instr(scalar.NE, (best, fill), dtypes.bool_)
        better = body.instr(scalar.OR, (better, starts_inside), dtypes.bool_)
        first = w.select(better, first, -1, dtype)
    return w.launch(first)


def _first_in_loop(w: _Windows, x: int, place: int) -> tuple[int, int]:
    """First the extreme, then the lowest place at which it is found."""
    body, dtype = w.written, w.out.type.dtype
    of = body.instrs[x].dtype
    best = w.reduced(_extreme_of(w), [x], of)
    found = body.instr(scalar.EQ, (x, best), dtypes.bool_)
    if dtypes.is_float(of):
        unordered = body.instr(scalar.NE, (x, x), dtypes.bool_)
        found = body.instr(scalar.OR, (found, unordered), dtypes.bool_)
    place = w.select(found, place, np.iinfo(dtype).max, dtype)
    return best, w.reduced("min", [place], dtype)


def _first_of(w: _Windows, found: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """The extreme of elements with their places, and its place: each that is better
    than all before, or the first NaN, takes over."""
    body, (best, first) = w.written, found[0]
    of, dtype = body.instrs[best].dtype, w.out.type.dtype
    is_worse = scalar.LE if _extreme_of(w) == "max" else scalar.GE
    for x, place in found[1:]:
        worse = body.instr(is_worse, (x, best), dtypes.bool_)
        if dtypes.is_float(of):
            is_nan = body.instr(scalar.NE, (best, best), dtypes.bool_)
            worse = body.instr(scalar.OR, (worse, is_nan), dtypes.bool_)
        best = body.instr(scalar.SELECT, (worse, best, x), of)
        first = body.instr(scalar.SELECT, (worse, first, place), dtype)
    return best, first


def _put(w: _Windows) -> Launch:
    """Every element looks at the windows that it may be in: every `stride`-th one."""
    ct, *places = w.eq.inputs
    body = w.body([-(-n // s) for n, s in zip(w.sizes, w.strides, strict=True)])
    dtype, found = w.out.type.dtype, []
    for turn in w.turns:
        axes = [
            _window(w, i, back, n)
            for i, (n, back) in enumerate(zip(ct.type.shape[1:-1], turn, strict=True))
        ]
        belongs = w.inside(axes)
        if places:
            # No window's place is -2: one comparison for each channel.
            entries, of = [_Axis(e) for e in w.entries[1:-1]], places[0].type.dtype
            here = w.converted(w.place(entries, w.out.type.shape[1:-1]), of)
            here = w.select(belongs, here, -2, of)
            place = w.read(places[0], axes)
            belongs = body.instr(scalar.EQ, (place, here), dtypes.bool_)
        else:
            for i, axis in enumerate(axes):
                belongs = w.both(belongs, _reaches(w, i, axis))
        found.append(w.select(belongs, w.read(ct, axes), 0, dtype))
    return w.launch(w.reduced("sum", found, dtype))


def _window(w: _Windows, i: int, back: Affine, count: int) -> _Axis:
    """One of the windows that an element may be in, along spatial axis i, of `count`:
    so many before the last."""
    body, stride, (low, _) = w.written, w.strides[i], w.padding[i]
    entry, back = shifted(w.entries[i + 1], low), scaled(back, -1)
    if stride == 1:
        top, end = w.rows(i, w.out.type.shape[i + 1])
        entry, before = plus(entry, back), w.sizes[i] - 1
        if never_positive(before - low - top) and never_positive(end + low - count):
            return _Axis(entry)
        return w.moved(body.iota(entry, _INDEX), count)
    # Vectors of 32-bit integers divide faster.
    dtype = dtypes.of_index(w.out.type.shape[i + 1] + abs(low))
    position, step = body.iota(entry, dtype), body.number(stride, dtype)
    last = body.instr(scalar.DIV, (position, step), dtype)
    last = body.instr(scalar.CONVERT, (last,), _INDEX)
    number = body.instr(scalar.ADD, (last, body.iota(back, _INDEX)), _INDEX)
    return w.moved(number, count)


def _reaches(w: _Windows, i: int, window: _Axis) -> int | None:
    """Whether a window, which begins before an element or there, has the element; None
    if it always does."""
    body, stride = w.written, w.strides[i]
    if stride == 1:
        return None
    assert window.number is not None
    factor = body.number(stride, _INDEX)
    start = body.instr(scalar.MUL, (window.number, factor), _INDEX)
    here = body.iota(shifted(w.entries[i + 1], w.padding[i][0]), _INDEX)
    within = body.instr(scalar.SUB, (here, start), _INDEX)
    size = body.number(w.sizes[i], _INDEX)
    less = body.instr(scalar.LT, (within, size), dtypes.bool_)
    return w.both(
        less, body.instr(scalar.GE, (within, w.const(0, _INDEX)), dtypes.bool_)
    )


def _pick(w: _Windows) -> Launch | None:
    """The element of every window that is at a given place of the flattened axes."""
    x, places = w.eq.inputs
    source, offset, steps = w.operands[x]
    spatial = x.type.shape[1:-1]
    runs = [
        (step, number)
        for step, number, n in zip(
            steps[1:-1], row_major(spatial), spatial, strict=True
        )
        if n > 1
    ]
    pixel = runs[-1][0] // runs[-1][1] if runs else 0
    if any(step != pixel * number for step, number in runs):
        return None
    body = w.body([1] * len(w.sizes))
    here = [_Axis(e) for e in w.entries[1:-1]]
    place = body.instr(scalar.CONVERT, (w.read(places, here),), _INDEX)
    flat = w.moved(place, math.prod(spatial))
    extra, strides = address((w.entries[0], w.entries[-1]), (steps[0], steps[-1]))
    assert flat.number is not None
    value = body.load(source, offset + extra, strides, (flat.number,), (pixel,))
    return w.launch(w.select(flat.inside, value, 0, x.type.dtype))


_LAUNCHES: dict[str, Callable[[_Windows], Launch | None]] = {
    "sum": _sum,
    "max": _extreme,
    "min": _extreme,
    "argmax": _arg_extreme,
    "argmin": _arg_extreme,
    "put": _put,
    "pick": _pick,
}

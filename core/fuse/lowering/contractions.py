"""dot_general to `Contraction`: which dimensions are rows, columns, batches and sums.

The kernel has one row, one column and up to two batch dimensions. Dimensions that step
alike in all operands are merged first; what remains must fit, or operands are copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from treadle.dims import hint
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.layout import Strided, stored_strides
from treadle.fuse.lowering.launches import ProductKernel
from treadle.fuse.lowering.nests import Access, NestWriter, assemble, coalesce
from treadle.fuse.maps import extent
from treadle.ir.graph import Equation
from treadle.ir.maps import Map
from treadle.kernels.contract import Contraction, Strides
from treadle.ops.dot import free_axes
from treadle.records import field, record

_COLUMNS = 16
"""Columns that keep the kernel's vectors busy."""

_ROW = 8
"""Elements of one column that are worth being computed as a row."""


@record
class _Loop:
    """A dimension of the result and its steps in x, y and the result."""

    dim: int
    size: int
    steps: tuple[int, int, int]


@record
class _Sides:
    """The loops of a product by role."""

    batch: list[_Loop] = field(default_factory=list)
    x_free: list[_Loop] = field(default_factory=list)
    y_free: list[_Loop] = field(default_factory=list)

    def grouped(
        self, accesses: list[Access], sizes: dict[int, int]
    ) -> tuple[list[int], list[int], list[int], list[int]] | None:
        """The dimensions that are b0, b1, rows (free in x) and columns (free in y);
        None if there are more loops."""
        columns = _groups(self.y_free, accesses, sizes)
        rows = _groups(self.x_free, accesses, sizes)
        outer = _groups(self.batch, accesses, sizes) + rows[:-1] + columns[:-1]
        if len(outer) > 2:
            return None
        b0, b1 = [[]] * (2 - len(outer)) + outer
        return b0, b1, rows[-1] if rows else [], columns[-1] if columns else []

    def steps(self) -> Callable[[list[int], int], int]:
        """The step of a group of dimensions in x (0), y (1) or the result (2)."""
        loops = {
            loop.dim: loop
            for side in (self.batch, self.x_free, self.y_free)
            for loop in side
        }
        return lambda group, which: loops[group[-1]].steps[which] if group else 0


def contraction(
    eq: Equation,
    operands: Sequence[Strided],
    flow: Dataflow,
    sizes: dict[int, int],
    entries: Map,
    accesses: list[Access],
    body: NestWriter | None,
) -> ProductKernel | None:
    """The contraction of a dot_general whose result has the index map `entries` over
    dimensions of the given sizes; `body` is what its epilogue does, with `accesses`.
    None if the loops don't fit the kernel's."""
    out = eq.outputs[0]
    x, y = operands
    sides = _sides(eq, sizes, entries, (x.steps, y.steps, stored_strides(out, flow)))
    swapped = _swapped(sides, accesses, sizes, out in flow.row_major)
    if swapped is None:
        return None
    if swapped:
        sides.x_free, sides.y_free = sides.y_free, sides.x_free
    groups = sides.grouped(accesses, sizes)
    total = _sum_loop(eq, x.steps, y.steps)
    if groups is None or total is None:
        return None
    b0, b1, row, column = groups
    k, *k_steps = total
    ia, ib = (1, 0) if swapped else (0, 1)
    steps = sides.steps()

    def strides(which: int, row_step: int, column_step: int) -> Strides:
        return Strides(steps(b0, which), steps(b1, which), row_step, column_step)

    result = ProductKernel(
        Contraction(
            out.type.dtype,
            extent(row, sizes),
            extent(column, sizes),
            k,
            strides(ia, steps(row, ia), k_steps[ia]),
            strides(ib, k_steps[ib], steps(column, ib)),
            strides(2, steps(row, 2), steps(column, 2) if column else 1),
            extent(b0, sizes),
            extent(b1, sizes),
            a_dtype=eq.inputs[ia].type.dtype,
            b_dtype=eq.inputs[ib].type.dtype,
        ),
        operands[ia][:2],
        operands[ib][:2],
        out,
    )
    if body is not None:
        result.epilogue = assemble(body, sizes, [b0, b1, row], [], [column], "inner")
    return result


def _sides(
    eq: Equation,
    sizes: dict[int, int],
    entries: Map,
    steps: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
) -> _Sides:
    """The loops of the result's axes: batch, then free ones of x, then those of y."""
    (x, y), (x_steps, y_steps, c_steps) = eq.inputs, steps
    contract, batch = eq.params["contract"], eq.params["batch"]
    pairs: list[tuple[str, int, int]] = [
        ("batch", x_steps[a], y_steps[b]) for a, b in zip(*batch, strict=True)
    ]
    x_free = free_axes(x.type.ndim, contract[0], batch[0])
    y_free = free_axes(y.type.ndim, contract[1], batch[1])
    pairs += [("x_free", x_steps[a], 0) for a in x_free]
    pairs += [("y_free", 0, y_steps[a]) for a in y_free]
    sides = _Sides()
    for entry, c, (side, x_step, y_step) in zip(entries, c_steps, pairs, strict=True):
        loops: list[_Loop] = getattr(sides, side)
        loops += _loops(entry, sizes, x_step, y_step, c)
    return sides


def _loops(entry: Any, sizes: dict[int, int], x: int, y: int, c: int) -> list[_Loop]:
    steps = [(d, (x * n, y * n, c * n)) for d, n in entry.terms]
    return [_Loop(d, sizes[d], s) for d, s in steps if sizes[d] != 1]


def _sum_loop(
    eq: Equation, x_steps: tuple[int, ...], y_steps: tuple[int, ...]
) -> tuple[int, int, int] | None:
    """Size and steps of the one loop over all contracted axes, if one will do."""
    shape = eq.inputs[0].type.shape
    loops = [
        (x_steps[xa], y_steps[ya], shape[xa])
        for xa, ya in zip(*eq.params["contract"], strict=True)
        if shape[xa] != 1
    ]
    loops.sort(key=lambda t: -abs(t[0]))
    total, x_step, y_step = 1, 1, 1
    for x, y, n in reversed(loops):
        if total == 1:
            x_step, y_step = x, y
        elif (x, y) != (x_step * total, y_step * total):
            return None
        total *= n
    return total, x_step, y_step


def _groups(loops: list[_Loop], accesses: list[Access], sizes: dict[int, int]) -> list:
    loops = sorted(loops, key=lambda loop: -abs(loop.steps[2]))
    tables = [
        Access(None, None, 0, tuple((loop.dim, loop.steps[i]) for loop in loops))  # type: ignore[arg-type]
        for i in range(3)
    ]
    return coalesce([loop.dim for loop in loops], accesses + tables, sizes)


def _swapped(
    sides: _Sides, accesses: list[Access], sizes: dict[int, int], several: bool
) -> bool | None:
    """Whether the columns are the free loops of x, not those of y; None if neither can
    be. One loop of columns is best; of several, the others are batches, which is better
    only than to copy an operand. What has one column is a row: vectors lie along it."""
    ways = [(False, sides.y_free), (True, sides.x_free)]
    if not sides.y_free and not _are_few(sides.x_free):
        ways.reverse()
    for fits in (_is_column, _ends_in_columns) if several else (_is_column,):
        for swapped, loops in ways:
            if fits(loops, accesses, sizes):
                return swapped
    return None


def _is_column(
    loops: list[_Loop], accesses: list[Access], sizes: dict[int, int]
) -> bool:
    """Whether the loops merge to one along which the result is contiguous."""
    if not loops:
        return True
    return _innermost(loops).steps[2] == 1 and len(_groups(loops, accesses, sizes)) == 1


def _ends_in_columns(
    loops: list[_Loop], accesses: list[Access], sizes: dict[int, int]
) -> bool:
    """Whether the result is contiguous along the last of some loops, and that is long
    enough for the others to be batches: few columns are better copied together."""
    if _innermost(loops).steps[2] != 1:
        return False
    last = _groups(loops, accesses, sizes)[-1]
    return math.prod([hint(sizes[d]) for d in last]) >= _COLUMNS


def _are_few(loops: list[_Loop]) -> bool:
    """Whether loops have few elements together; open sizes count as in the trace."""
    return math.prod([hint(loop.size) for loop in loops]) < _ROW


def _innermost(loops: list[_Loop]) -> _Loop:
    return min(loops, key=lambda loop: abs(loop.steps[2]))

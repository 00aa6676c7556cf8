"""dot_general to `Contraction`: which dimensions are rows, columns, batches and sums.

The kernel has one row, one column and up to two batch dimensions. Dimensions that step
alike in all operands are merged first; what remains must fit, or operands are copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from treadle.fuse.layout import axis_strides, stored_strides
from treadle.fuse.maps import Map, NoMap
from treadle.fuse.nests import Access, Body, Product, assemble, coalesce
from treadle.fuse.program import Program
from treadle.ir.graph import Equation
from treadle.kernels.contract import Contraction, Strides
from treadle.ops.dot import free_axes


@dataclass
class _Loop:
    """A dimension of the result and its steps in x, y and the result."""

    dim: int
    size: int
    steps: tuple[int, int, int]


@dataclass
class _Sides:
    """The loops of a product by role."""

    batch: list[_Loop] = field(default_factory=list)
    x_free: list[_Loop] = field(default_factory=list)
    y_free: list[_Loop] = field(default_factory=list)


def contraction(
    eq: Equation,
    program: Program,
    sizes: dict[int, int],
    entries: Map,
    accesses: list[Access],
    body: Body | None,
) -> Product:
    """The contraction of a dot_general whose result has the index map `entries` over
    dimensions of the given sizes; `body` is what its epilogue does, with `accesses`.

    Raises:
      NoMap: if the loops don't fit the kernel's.
    """
    x, y = eq.inputs
    out = eq.outputs[0]
    contract, batch = eq.params["contract"], eq.params["batch"]
    x_source, x_offset, x_steps = axis_strides(x, program)
    y_source, y_offset, y_steps = axis_strides(y, program)
    c_steps = stored_strides(out, program)
    x_free = free_axes(x.type.ndim, contract[0], batch[0])
    y_free = free_axes(y.type.ndim, contract[1], batch[1])
    sides, axis = _Sides(), 0
    for xa, ya in zip(*batch, strict=True):
        sides.batch += _loops(
            entries[axis], sizes, x_steps[xa], y_steps[ya], c_steps[axis]
        )
        axis += 1
    for xa in x_free:
        sides.x_free += _loops(entries[axis], sizes, x_steps[xa], 0, c_steps[axis])
        axis += 1
    for ya in y_free:
        sides.y_free += _loops(entries[axis], sizes, 0, y_steps[ya], c_steps[axis])
        axis += 1
    k, x_k, y_k = _sum_loop(eq, x_steps, y_steps)
    places = [(x_source, x_offset), (y_source, y_offset)]
    swapped = not _is_column(sides.y_free, accesses, sizes)
    if swapped:
        if not _is_column(sides.x_free, accesses, sizes):
            raise NoMap
        sides.x_free, sides.y_free = sides.y_free, sides.x_free
        places.reverse()
        x_k, y_k = y_k, x_k
    ia, ib = (1, 0) if swapped else (0, 1)
    columns = _groups(sides.y_free, accesses, sizes)
    rows = _groups(sides.x_free, accesses, sizes)
    batches = _groups(sides.batch, accesses, sizes)
    row, rest = _pick_row(rows)
    outer = batches + rest
    if len(outer) > 2:
        raise NoMap
    outer = [[]] * (2 - len(outer)) + outer
    everything = {
        loop.dim: loop for s in (sides.batch, sides.x_free, sides.y_free) for loop in s
    }

    def step(group: list[int], which: int) -> int:
        return everything[group[-1]].steps[which] if group else 0

    def extent(group: list[int]) -> int:
        total = 1
        for d in group:
            total *= sizes[d]
        return total

    column = columns[0] if columns else []
    b0, b1 = outer

    def strides(which: int, row_step: int, column_step: int) -> Strides:
        return Strides(step(b0, which), step(b1, which), row_step, column_step)

    contraction = Contraction(
        out.type.dtype,
        extent(row),
        extent(column),
        k,
        strides(ia, step(row, ia), x_k),
        strides(ib, y_k, step(column, ib)),
        strides(2, step(row, 2), step(column, 2) if column else 1),
        extent(b0),
        extent(b1),
    )
    result = Product(contraction, places[0], places[1], out)
    if body is not None:
        result.epilogue = assemble(body, sizes, [b0, b1, row], [], [column], "inner")
    return result


def _loops(entry: Any, sizes: dict[int, int], x: int, y: int, c: int) -> list[_Loop]:
    return [_Loop(d, sizes[d], (x * n, y * n, c * n)) for d, n in entry.terms]


def _sum_loop(
    eq: Equation, x_steps: tuple[int, ...], y_steps: tuple[int, ...]
) -> tuple[int, int, int]:
    """Size and steps of the one loop over all contracted axes."""
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
            raise NoMap
        total *= n
    return total, x_step, y_step


def _groups(loops: list[_Loop], accesses: list[Access], sizes: dict[int, int]) -> list:
    loops = sorted(loops, key=lambda loop: -abs(loop.steps[2]))
    tables = [
        Access(None, None, 0, tuple((loop.dim, loop.steps[i]) for loop in loops))  # type: ignore[arg-type]
        for i in range(3)
    ]
    return coalesce([loop.dim for loop in loops], accesses + tables, sizes)


def _is_column(
    loops: list[_Loop], accesses: list[Access], sizes: dict[int, int]
) -> bool:
    """Whether the loops merge to one along which the result is contiguous."""
    if not loops:
        return True
    last = min(loops, key=lambda loop: abs(loop.steps[2]))
    return last.steps[2] == 1 and len(_groups(loops, accesses, sizes)) == 1


def _pick_row(groups: list[list[int]]) -> tuple[list[int], list[list[int]]]:
    """The row dimension (the fastest of them), and those left for batches."""
    return (groups[-1], groups[:-1]) if groups else ([], [])

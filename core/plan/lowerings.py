"""How work with a nest or a kernel of its own is planned: it fuses with nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from treadle.fuse.filters import filter_launch
from treadle.fuse.running import running_launch
from treadle.fuse.windows import window_launch
from treadle.ir.graph import Atom, Equation, Lit
from treadle.plan.planner import GraphPlanner, Handler
from treadle.plan.steps import OrderStep, Place
from treadle.trace.lowering import FilterTaps, Lowering, Order, Running, Window


def _nest(launch: Callable[..., Any]) -> Handler:
    """The handler of ops whose nest `launch` writes; operands whose views have no such
    loops are copied first."""

    def handle(g: GraphPlanner, eq: Equation) -> None:
        (out,) = eq.outputs
        if out.type.size and not all(a.type.size for a in eq.inputs):
            g.fill(_of_nothing(eq), out, eq)
            return
        found = launch(eq, g.program)
        if found is None:
            copies: list[Atom] = [g.stored(a) for a in eq.inputs]
            found = launch(
                Equation(eq.op, copies, eq.params, eq.outputs, eq.source), g.program
            )
        g.nest(found, [eq], False)

    return handle


def _of_nothing(eq: Equation) -> Lit:
    """What every element of a result is that has no data to depend on."""
    nothing = [np.zeros(a.type.shape, a.type.dtype) for a in eq.inputs]
    value = eq.op.run(*nothing, **eq.params).reshape(-1)[0]
    return Lit(value, type(eq.outputs[0].type)((), value.dtype))


def _order(g: GraphPlanner, eq: Equation) -> None:
    (keys,), (out,) = eq.inputs, eq.outputs
    length = keys.type.shape[-1]
    if not out.type.size:
        return
    rows = math.prod(keys.type.shape[:-1])
    itemsize = keys.type.dtype.itemsize
    work = g.planner.target.order(rows, length, itemsize)
    step = OrderStep(
        [eq],
        [g.contiguous(keys)],
        [g.place(out)],
        rows=rows,
        length=length,
        count=out.type.shape[-1],
        itemsize=itemsize,
        tasks=work.tasks,
        scratch=Place(g.planner.buffer(work.scratch_bytes)),
    )
    g.planner.add(step, g.steps)


NESTS: dict[type[Lowering], Handler] = {
    Window: _nest(window_launch),
    Running: _nest(running_launch),
    FilterTaps: _nest(filter_launch),
    Order: _order,
}

"""How loops and branches are planned: their bodies are planned like programs, on the
same arena, and become commands of the same buffer."""

from __future__ import annotations

from typing import Any

from treadle.dims import is_dim
from treadle.fuse.lowering.launches import (
    Carries,
    Choose,
    KernelEntry,
    Repeat,
    RepeatWhile,
)
from treadle.ir.graph import Atom, Var, is_zero
from treadle.plan.planner import GraphPlanner, Handler
from treadle.plan.schedule import Schedule
from treadle.plan.steps import Branch, Buffer, Loop, Place, Step, While


class _Buffers:
    """The carried values of a loop. Each has two buffers: an iteration reads one and
    writes the other, then their pointers are exchanged. One that is updated in place
    has one buffer."""

    def __init__(self, g: GraphPlanner, carries: Carries) -> None:
        planner = g.planner
        self.old, self.new, self.slots, self.swaps = [], [], [], []
        self.pairs: list[tuple[Buffer, Buffer]] = []
        self.writes: list[Place] = []
        for a, v, one in zip(
            carries.init, carries.results, carries.in_place, strict=True
        ):
            first = g.buffer(v)
            _begin(g, a, Place(first), v)
            if one:
                self.old.append(Place(first))
                self.new.append(Place(first))
                self.pairs.append((first, first))
                self.writes.append(Place(first))
                continue
            second = g.buffer(v)
            self.pairs.append((first, second))
            old, new = planner.slot(first, second), planner.slot(first, second)
            self.slots += [(old, Place(first)), (new, Place(second))]
            self.swaps.append((old, new))
            self.old.append(Place(old))
            self.new.append(Place(new))
            self.writes += [Place(first), Place(second)]


def _begin(g: GraphPlanner, a: Atom, place: Place, v: Var) -> None:
    """Writes what a carry begins as: one number stands for zeros."""
    g.copy(None if is_zero(a) else g.place(a), place, v.type.nbytes)


def _scan(g: GraphPlanner, repeat: Repeat, entry: KernelEntry, how: Any) -> None:
    (body,) = how
    consts = [g.place(a) for a in repeat.consts]
    xs = [g.place(a) for a in repeat.rows]
    carries = _Buffers(g, repeat.carries)
    ys = [g.place(v) for v in repeat.new_rows]
    loop = Loop(
        entry.names,
        [*consts, *xs],
        [*carries.writes, *ys],
        count=repeat.length,
        slots=carries.slots,
        swaps=carries.swaps,
        strands=body.strands,
    )

    def row(place: Place, nbytes: int) -> Place:
        if repeat.reverse:
            place = place.shifted((repeat.length - 1) * nbytes)
            nbytes = -nbytes
        return place._replace(dynamic=(*place.dynamic, (loop, nbytes)))

    inner = repeat.body
    read = inner.inputs[len(consts) + len(carries.old) :]
    rows_in = [row(x, v.type.nbytes) for x, v in zip(xs, read, strict=True)]
    rows_out = [
        row(y, v.type.nbytes // repeat.length)
        for y, v in zip(ys, repeat.new_rows, strict=True)
    ]
    g.planner.add(loop, g.steps)
    before = len(g.planner.plan.buffers)
    loop.body = _plan_body(
        g, loop, body, [*consts, *carries.old, *rows_in], [*carries.new, *rows_out]
    )
    g.planner.close(loop)
    if loop.strands > 1:
        # One strand may be anywhere in the loop while another one is elsewhere.
        for b in g.planner.plan.buffers[before:]:
            if b.first >= 0:
                b.first, b.last = loop.position, g.planner.position
    ends = carries.old
    if not is_dim(repeat.length):
        # Which of the two buffers holds the last value is known: by parity.
        ends = [Place(pair[repeat.length % 2]) for pair in carries.pairs]
    for v, end in zip(repeat.carries.results, ends, strict=True):
        _finish(g, v, end)


def _plan_body(
    g: GraphPlanner,
    loop: Loop,
    schedule: Schedule,
    inputs: list[Place],
    outputs: list[Place],
) -> list[Step]:
    planner = g.planner
    outer = planner.loops
    planner.loops = (*outer, loop)
    try:
        return GraphPlanner(planner, schedule, g.here).run(inputs, outputs)
    finally:
        planner.loops = outer


def _finish(g: GraphPlanner, v: Var, final: Place) -> None:
    """Gives a loop's result its place."""
    if v in g.env:
        g.copy(final, g.place(v), v.type.nbytes)
    else:
        g.env[v] = final


def _while(g: GraphPlanner, repeat: RepeatWhile, entry: KernelEntry, how: Any) -> None:
    test, body = how
    for_test = [g.place(a) for a in repeat.test_consts]
    for_body = [g.place(a) for a in repeat.body_consts]
    carries = _Buffers(g, repeat.carries)
    flag = Place(g.planner.buffer(1))
    places = [*for_test, *for_body]
    loop = While(
        entry.names,
        places,
        [*carries.writes, flag],
        slots=carries.slots,
        swaps=carries.swaps,
        flag=flag,
    )
    g.planner.add(loop, g.steps)
    loop.test = _plan_body(g, loop, test, [*for_test, *carries.old], [flag])
    loop.body = _plan_body(g, loop, body, [*for_body, *carries.old], carries.new)
    g.planner.close(loop)
    for v, old in zip(repeat.carries.results, carries.old, strict=True):
        _finish(g, v, old)


def _cond(g: GraphPlanner, choose: Choose, entry: KernelEntry, how: Any) -> None:
    index = g.place(choose.which)
    places = [g.place(a) for a in choose.operands]
    outs = [g.place(v) for v in choose.results]
    dtype = choose.which.type.dtype
    step = Branch(entry.names, [index, *places], outs, index=index, dtype=dtype)
    g.planner.add(step, g.steps)
    for branch in how:
        inner = GraphPlanner(g.planner, branch, g.here)
        step.branches.append(inner.run(places, outs))


CONTROL: dict[type, Handler] = {
    Repeat: _scan,
    RepeatWhile: _while,
    Choose: _cond,
}
"""What plans kernels that run others."""

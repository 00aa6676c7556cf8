"""How loops and branches are planned: their bodies are planned like programs, on the
same arena, and become commands of the same buffer."""

from __future__ import annotations

from typing import Any, NamedTuple

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
    has one buffer, and one whose values are kept is in the stack of these.

    ends: where each is after the loop, if that is known.
    """

    def __init__(
        self, g: GraphPlanner, carries: Carries, stacks: dict[int, _Stack] | None = None
    ) -> None:
        self.g = g
        self.old: list[Place] = []
        self.new: list[Place] = []
        self.slots: list[tuple[Buffer, Place]] = []
        self.swaps: list[tuple[Buffer, Buffer]] = []
        self.ends: list[Place | tuple[Place, Place]] = []
        self.writes: list[Place] = []
        every = zip(carries.init, carries.results, carries.in_place, strict=True)
        for k, (a, v, one) in enumerate(every):
            if stacks and k in stacks:
                self._stacked(stacks[k], a, v)
                continue
            first = Place(g.buffer(v))
            _begin(g, a, first, v)
            if one:
                self._add(first, first, first, [first])
            else:
                self._exchanged(first, v)

    def _add(
        self,
        old: Place,
        new: Place,
        end: Place | tuple[Place, Place],
        writes: list[Place],
    ) -> None:
        self.old.append(old)
        self.new.append(new)
        self.ends.append(end)
        self.writes += writes

    def _exchanged(self, first: Place, v: Var) -> None:
        planner, second = self.g.planner, Place(self.g.buffer(v))
        targets = first.buffer, second.buffer
        old, new = planner.slot(*targets), planner.slot(*targets)
        self.slots += [(old, first), (new, second)]
        self.swaps.append((old, new))
        self._add(Place(old), Place(new), (first, second), [first, second])

    def _stacked(self, stack: _Stack, a: Atom, v: Var) -> None:
        _begin(self.g, a, stack.begin, v)
        self._add(stack.old, stack.new, stack.end, [Place(stack.begin.buffer)])

    def end(self, k: int, count: int) -> Place:
        """Where a carry is after so many iterations: of two buffers, the parity says
        which, if it is known."""
        end = self.ends[k]
        if isinstance(end, Place):
            return end
        return self.old[k] if is_dim(count) else end[count % 2]


class _Stack(NamedTuple):
    """A carry's values before and after all iterations, one after the other: what an
    iteration reads and writes, where the first is, and the last."""

    old: Place
    new: Place
    begin: Place
    end: Place


def _stacks(g: GraphPlanner, repeat: Repeat, loop: Loop) -> dict[int, _Stack]:
    """The carries that are in a stack of all their values, because that is what new
    rows are: these get their places there, and need no copies."""
    inner, length, found = repeat.body, repeat.length, dict[int, _Stack]()
    count, first = len(repeat.carries.init), len(repeat.consts)
    carried, results = inner.inputs[first : first + count], inner.results[:count]
    rows = list(zip(inner.results[count:], repeat.new_rows, strict=True))
    for k, (before, after, v) in enumerate(
        zip(carried, results, repeat.carries.results, strict=True)
    ):
        kept = [(a is after, y) for a, y in rows if a is before or a is after]
        kept = [(late, y) for late, y in kept if y not in g.env]
        if not kept or before is after or repeat.carries.in_place[k]:
            continue
        low, size = Place(g.buffer(kept[0][1])), v.type.nbytes
        low.buffer.nbytes = (length + 1) * size
        if repeat.reverse:
            new = low.shifted((length - 1) * size)
            new = new._replace(dynamic=((loop, -size),))
            old, begin, end = new.shifted(size), low.shifted(length * size), low
        else:
            old = low._replace(dynamic=((loop, size),))
            new, begin, end = old.shifted(size), low, low.shifted(length * size)
        for late, y in kept:
            g.env[y] = low if late == repeat.reverse else low.shifted(size)
        found[k] = _Stack(old, new, begin, end)
    return found


def _begin(g: GraphPlanner, a: Atom, place: Place, v: Var) -> None:
    """Writes what a carry begins as: one number stands for zeros."""
    g.copy(None if is_zero(a) else g.place(a), place, v.type.nbytes)


def _scan(g: GraphPlanner, repeat: Repeat, entry: KernelEntry, how: Any) -> None:
    (body,) = how
    consts = [g.place(a) for a in repeat.consts]
    xs = [g.place(a) for a in repeat.rows]
    loop = Loop(entry.names, [], [], count=repeat.length, strands=body.strands)
    carries = _Buffers(g, repeat.carries, _stacks(g, repeat, loop))
    ys = [g.place(v) for v in repeat.new_rows]
    loop.reads, loop.writes = [*consts, *xs], [*carries.writes, *ys]
    loop.slots, loop.swaps = carries.slots, carries.swaps

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
    for k, v in enumerate(repeat.carries.results):
        _finish(g, v, carries.end(k, repeat.length))


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

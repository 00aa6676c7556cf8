"""How loops and branches are planned: their bodies are planned like programs, on the
same arena, and become commands of the same buffer."""

from __future__ import annotations

from treadle import dtypes
from treadle.ir.graph import Atom, Equation, Graph, Lit
from treadle.plan.planner import GraphPlanner, Handler
from treadle.plan.steps import Branch, Buffer, Loop, Place, Step, While


class _Carries:
    """The carried values of a loop. Each has two buffers: an iteration reads one and
    writes the other, then their pointers are exchanged."""

    def __init__(self, g: GraphPlanner, init: list[Atom]) -> None:
        self.g = g
        planner = g.planner
        self.old, self.new, self.slots, self.swaps = [], [], [], []
        self.reads: list[Place] = []
        self.writes: list[Place] = []
        for a in init:
            first, second = planner.buffer(a.type.nbytes), planner.buffer(a.type.nbytes)
            start(g, a, Place(first))
            old, new = planner.slot(), planner.slot()
            self.slots += [(old, Place(first)), (new, Place(second))]
            self.swaps.append((old, new))
            self.old.append(Place(old))
            self.new.append(Place(new))
            self.writes += [Place(first), Place(second)]

    def pair(self, i: int) -> tuple[Buffer, Buffer]:
        return self.slots[2 * i][1].buffer, self.slots[2 * i + 1][1].buffer

    def hold(self, loop: Loop) -> None:
        """Keeps the buffers, which the body sees only as pointers, till the end."""
        loop.touched |= {place.buffer for _, place in self.slots}


def start(g: GraphPlanner, a: Atom, place: Place) -> None:
    """Writes a loop's initial value."""
    source, _ = g.program.resolve(a)
    zero = isinstance(source, Lit) and source.type.ndim == 0 and not source.value.any()
    g.copy(None if zero else g.contiguous(a), place, a.type.nbytes)


def _scan(g: GraphPlanner, eq: Equation) -> None:
    graph: Graph = eq.params["graph"]
    n_consts, n_carry = eq.params["n_consts"], eq.params["n_carry"]
    length = eq.params["length"]
    init = list(eq.inputs[n_consts : n_consts + n_carry])
    if length == 0:
        for a, v in zip(init, eq.outputs, strict=False):
            start(g, a, g.place(v))
        return
    carried_in = graph.inputs[n_consts : n_consts + n_carry]
    fixed = [
        a is out for a, out in zip(carried_in, graph.outputs[:n_carry], strict=True)
    ]
    consts = [g.contiguous(a) for a in eq.inputs[:n_consts]]
    xs = [g.contiguous(a) for a in eq.inputs[n_consts + n_carry :]]
    stays = {i: g.contiguous(a) for i, a in enumerate(init) if fixed[i]}
    carries = _Carries(g, [a for i, a in enumerate(init) if not fixed[i]])
    ys = [g.place(v) for v in eq.outputs[n_carry:]]
    loop = Loop(
        [eq],
        [*consts, *xs, *stays.values()],
        [*carries.writes, *ys],
        count=length,
        slots=carries.slots,
        swaps=carries.swaps,
    )

    def row(place: Place, nbytes: int) -> Place:
        if eq.params["reverse"]:
            place = place.shifted((length - 1) * nbytes)
            nbytes = -nbytes
        return place._replace(dynamic=(*place.dynamic, (loop, nbytes)))

    rows_in = [
        row(x, v.type.nbytes)
        for x, v in zip(xs, graph.inputs[n_consts + n_carry :], strict=True)
    ]
    rows_out = [
        row(y, a.type.nbytes) for y, a in zip(ys, graph.outputs[n_carry:], strict=True)
    ]
    old, new = iter(carries.old), iter(carries.new)
    inside = [stays[i] if fixed[i] else next(old) for i in range(n_carry)]
    outside = [next(new) for i in range(n_carry) if not fixed[i]]
    body = _without_fixed(graph, fixed)
    g.planner.add(loop, g.steps)
    loop.body = _plan_body(
        g, loop, body, [*consts, *inside, *rows_in], [*outside, *rows_out]
    )
    carries.hold(loop)
    g.planner.close(loop)
    moving = 0
    for i, v in enumerate(eq.outputs[:n_carry]):
        if fixed[i]:
            final = stays[i]
        else:
            # Which of the two buffers holds the last value is known: by parity.
            final = Place(carries.pair(moving)[length % 2])
            moving += 1
        _finish(g, v, final)


def _without_fixed(graph: Graph, fixed: list[bool]) -> Graph:
    """The body without the carries that it returns as they came."""
    if not any(fixed):
        return graph
    kept = [a for a, f in zip(graph.outputs, fixed, strict=False) if not f]
    rest = graph.outputs[len(fixed) :]
    return Graph(graph.inputs, graph.equations, [*kept, *rest], graph.name)


def _plan_body(
    g: GraphPlanner, loop: Loop, graph: Graph, inputs: list[Place], outputs: list[Place]
) -> list[Step]:
    planner = g.planner
    outer = planner.loops
    planner.loops = (*outer, loop)
    try:
        return GraphPlanner(planner, graph).run(inputs, outputs)
    finally:
        planner.loops = outer


def _finish(g: GraphPlanner, v, final: Place) -> None:  # type: ignore[no-untyped-def]
    """Gives a loop's result its place."""
    if v in g.env or v in g.program.parts:
        g.copy(final, g.place(v), v.type.nbytes)
    else:
        g.env[v] = final


def _while(g: GraphPlanner, eq: Equation) -> None:
    test, body = eq.params["test"], eq.params["body"]
    n_test, n_body = eq.params["n_test_consts"], eq.params["n_body_consts"]
    places = [g.contiguous(a) for a in eq.inputs[: n_test + n_body]]
    carries = _Carries(g, list(eq.inputs[n_test + n_body :]))
    flag = Place(g.planner.buffer(1))
    loop = While(
        [eq],
        places,
        [*carries.writes, flag],
        slots=carries.slots,
        swaps=carries.swaps,
        flag=flag,
    )
    g.planner.add(loop, g.steps)
    loop.test = _plan_body(g, loop, test, [*places[:n_test], *carries.old], [flag])
    loop.body = _plan_body(g, loop, body, [*places[n_test:], *carries.old], carries.new)
    carries.hold(loop)
    loop.touched |= {p.buffer for p in (*places, flag)}
    g.planner.close(loop)
    for v, old in zip(eq.outputs, carries.old, strict=True):
        g.copy(old, g.place(v), v.type.nbytes)
    for _, place in carries.slots:
        g.planner.use(place.buffer, g.planner.position)


def _cond(g: GraphPlanner, eq: Equation) -> None:
    index, *operands = eq.inputs
    if index.type.dtype not in (dtypes.bool_, dtypes.int32, dtypes.int64):
        g.host(eq)
        return
    places = [g.contiguous(a) for a in (index, *operands)]
    outs = [g.place(v) for v in eq.outputs]
    step = Branch([eq], places, outs, index=places[0], dtype=index.type.dtype)
    g.planner.add(step, g.steps)
    for graph in eq.params["branches"]:
        inner = GraphPlanner(g.planner, graph)
        # Each branch begins anew: nothing in it runs together with the one before.
        g.planner.position += 1
        step.branches.append(inner.run(places[1:], outs))
    g.planner.position += 1
    for p in (*places, *outs):
        g.planner.use(p.buffer, g.planner.position)


CONTROL: dict[str, Handler] = {
    "scan": _scan,
    "while_loop": _while,
    "cond": _cond,
    "switch": _cond,
}
"""The ops that hold graphs."""

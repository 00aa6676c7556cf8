"""How loops and branches are planned: their bodies are planned like programs, on the
same arena, and become commands of the same buffer."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.dims import is_dim
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ops.dynamic import dynamic_slice, dynamic_update_slice
from treadle.plan.planner import GraphPlanner, Handler, is_zero
from treadle.plan.steps import Branch, Buffer, Loop, Place, Step, While
from treadle.trace import lowering
from treadle.trace.lowering import Elementwise, Lowering, Scatter


class _Carries:
    """The carried values of a loop. Each has two buffers: an iteration reads one and
    writes the other, then their pointers are exchanged. One that is updated in place
    has one buffer."""

    def __init__(self, g: GraphPlanner, init: list[Atom], in_place: list[bool]) -> None:
        self.g = g
        planner = g.planner
        self.old, self.new, self.slots, self.swaps = [], [], [], []
        self.buffers: list[tuple[Buffer, Buffer]] = []
        self.writes: list[Place] = []
        for a, one in zip(init, in_place, strict=True):
            first = planner.buffer(a.type.nbytes)
            start(g, a, Place(first))
            if one:
                self.old.append(Place(first))
                self.new.append(Place(first))
                self.buffers.append((first, first))
                self.writes.append(Place(first))
                continue
            second = planner.buffer(a.type.nbytes)
            self.buffers.append((first, second))
            old, new = planner.slot(first, second), planner.slot(first, second)
            self.slots += [(old, Place(first)), (new, Place(second))]
            self.swaps.append((old, new))
            self.old.append(Place(old))
            self.new.append(Place(new))
            self.writes += [Place(first), Place(second)]

    def hold(self, loop: Loop) -> None:
        """Keeps the buffers, which the body sees only as pointers, till the end."""
        loop.touched |= {b for pair in self.buffers for b in pair}


def _in_place(graph: Graph, carried: Sequence[Var], outs: Sequence[Atom]) -> list[bool]:
    """Which carries an iteration only writes into: nothing else in it needs the value
    from before, so that it need not be kept, nor copied."""
    makers = {v: eq for eq in graph.equations for v in eq.outputs}
    result = []
    for v, out in zip(carried, outs, strict=True):
        eq = makers.get(out) if isinstance(out, Var) else None
        if eq is None or not isinstance(eq.op.lowering, Scatter):
            result.append(False)
            continue
        alone = eq.inputs[0] is v and v.type.dtype.kind != "c"
        result.append(alone and _is_read_for(eq, v, graph))
    return result


def _is_read_for(write: Equation, v: Var, graph: Graph) -> bool:
    """Whether a value is read only to make what is written over it, element by element
    at the same places: what `x.at[i].add(y)` adds to."""
    if sum(a is v for a in (*write.inputs, *graph.outputs)) != 1:
        return False
    made: set[Var] = set()
    for eq in graph.equations:
        if eq is write:
            continue
        if v in eq.inputs:
            same = eq.op is dynamic_slice and len(eq.inputs) == len(write.inputs) - 1
            if not same or write.op is not dynamic_update_slice:
                return False
            if eq.outputs[0].type.shape != write.inputs[1].type.shape:
                return False
            for a, b in zip(eq.inputs[1:], write.inputs[2:], strict=True):
                if a is not b and not _equal(a, b):
                    return False
            made.update(eq.outputs)
        elif any(isinstance(a, Var) and a in made for a in eq.inputs):
            if not isinstance(eq.op.lowering, Elementwise):
                return False
            made.update(eq.outputs)
    return not any(isinstance(a, Var) and a in made for a in graph.outputs)


def _equal(a: Atom, b: Atom) -> bool:
    """Whether two indices are the same constant."""
    if not (isinstance(a, Lit) and isinstance(b, Lit)) or a.size or b.size:
        return False
    return bool(a.value == b.value)


def start(g: GraphPlanner, a: Atom, place: Place) -> None:
    """Writes a loop's initial value."""
    source, _ = g.program.resolve(a)
    g.copy(None if is_zero(source) else g.contiguous(a), place, a.type.nbytes)


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
    moved = [i for i in range(n_carry) if not fixed[i]]
    in_place = _in_place(
        graph, [carried_in[i] for i in moved], [graph.outputs[i] for i in moved]
    )
    carries = _Carries(g, [init[i] for i in moved], in_place)
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
    for i, v in enumerate(eq.outputs[:n_carry]):
        if fixed[i]:
            _finish(g, v, stays[i])
        elif is_dim(length):
            _finish(g, v, carries.old[moved.index(i)])
        else:
            # Which of the two buffers holds the last value is known: by parity.
            _finish(g, v, Place(carries.buffers[moved.index(i)][length % 2]))


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
    in_place = _in_place(body, body.inputs[n_body:], body.outputs)
    carries = _Carries(g, list(eq.inputs[n_test + n_body :]), in_place)
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
        _finish(g, v, old)


def _cond(g: GraphPlanner, eq: Equation) -> None:
    index, *operands = eq.inputs
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


CONTROL: dict[type[Lowering], Handler] = {
    lowering.Scan: _scan,
    lowering.While: _while,
    lowering.Branch: _cond,
}
"""The ops that hold graphs."""

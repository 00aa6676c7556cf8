"""Nodes to steps: every stored value gets a place, every node its commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle.dims import is_dim
from treadle.fuse.cluster import Cluster
from treadle.fuse.copies import copy_launch, scatter_launch
from treadle.fuse.layout import joined, row_major, stored_strides
from treadle.fuse.nests import Launch
from treadle.fuse.order import Node
from treadle.fuse.partition import Partition, partition
from treadle.fuse.products import product
from treadle.fuse.recompute import built, choose
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ops.movement import broadcast_in_dim
from treadle.plan.region import Region
from treadle.plan.rows import settle_rows
from treadle.plan.steps import (
    Buffer,
    CopyStep,
    HostStep,
    Loop,
    NestStep,
    Place,
    Plan,
    ProductStep,
    Step,
    literal_of,
)
from treadle.plan.target import Target
from treadle.trace.lowering import (
    Host,
    Join,
    Lowering,
    Product,
    Reshape,
    Same,
    Scatter,
)


class Planner:
    """Collects the steps of one program. `position` counts them as they will run."""

    def __init__(self, target: Target, handlers: dict[type[Lowering], Handler]) -> None:
        self.target, self.handlers = target, handlers
        self.plan = Plan([], [], [], [], 0)
        self.order: list[Step] = []
        self.position = 0
        self.loops: tuple[Loop, ...] = ()
        self.constants: dict[Any, Buffer] = {}
        self.targets: dict[Buffer, Sequence[Buffer]] = {}
        self.region = Region([])

    def buffer(self, nbytes: int) -> Buffer:
        """A temporary."""
        b = Buffer(nbytes)
        b.loops = self.loops
        self.plan.buffers.append(b)
        return b

    def constant(self, a: Lit) -> Place:
        """A literal in memory."""
        key = a.key()
        if key not in self.constants:
            b = Buffer(a.type.nbytes, "constant", len(self.plan.constants))
            self.plan.constants.append(literal_of(a))
            self.plan.numbers.append(a.size)
            self.constants[key] = b
        return Place(self.constants[key])

    def slot(self, *targets: Buffer) -> Buffer:
        """A pointer that a loop exchanges, to one of some buffers."""
        self.plan.slots += 1
        made = Buffer(0, "slot", self.plan.slots - 1)
        made.loops = self.loops
        self.targets[made] = targets
        return made

    def use(self, b: Buffer, position: int) -> None:
        """Extends a buffer's life; inside a loop that began after it, to its end."""
        for target in self.targets.get(b, ()):
            self.use(target, position)
        if b.first < 0:
            b.first = position
        b.last = max(b.last, position)
        for loop in self.loops:
            if loop not in b.loops:
                loop.touched.add(b)
                break

    def add(self, step: Step, steps: list[Step], alone: bool = True) -> None:
        """Appends a step. Independent nests that follow each other share a position:
        they run as one parallel region."""
        together = self.region.steps is steps and self.region.position == self.position
        if alone or not (together and self.region.admits(step)):
            self.position += 1
            self.region = Region(steps, self.position)
        self.region.take(step)
        step.position = self.position
        steps.append(step)
        self.order.append(step)
        for place in (*step.reads, *step.writes):
            self.use(place.buffer, self.position)
        scratch = getattr(step, "scratch", None)
        if scratch is not None:
            self.use(scratch.buffer, self.position)

    def close(self, loop: Loop) -> None:
        """Ends a loop: what it touched lives until here."""
        self.position += 1
        for b in loop.touched:
            self.use(b, self.position)


class GraphPlanner:
    """Plans one graph: the program, or the body of a loop or branch of it."""

    def __init__(self, planner: Planner, graph: Graph) -> None:
        self.planner = planner
        self.part: Partition = partition(graph, planner.target.lowering)
        choose(self.part)
        self.program = self.part.program
        self.env: dict[Var, Place] = {}
        self.steps: list[Step] = []
        self.filled: set[Var] = set()

    def run(self, inputs: Sequence[Place], outputs: Sequence[Place]) -> list[Step]:
        """The steps that compute the results into `outputs`."""
        graph = self.program.graph
        self.env.update(zip(graph.inputs, inputs, strict=True))
        copies = self._claim(outputs)
        for node in self.part.nodes:
            self.node(node)
        for a, place in copies:
            self._deliver(a, place)
        return self.steps

    def _claim(self, outputs: Sequence[Place]) -> list[tuple[Atom, Place]]:
        """Lets results be made in place where possible; gives those to be copied."""
        copies = []
        for a, place in zip(self.program.results, outputs, strict=True):
            source = self.program.memory(a)
            if (
                isinstance(source, Var)
                and source in self.part.owner
                and source not in self.env
                and source not in self.program.parts
                and stored_strides(source, self.program) == row_major(source.type.shape)
            ):
                self.env[source] = place
            else:
                copies.append((a, place))
        return copies

    def _deliver(self, a: Atom, place: Place) -> None:
        source = self.contiguous(a)
        self.copy(source, place, a.type.nbytes)

    # Places

    def place(self, v: Atom) -> Place:
        """Where a stored value is, made up if it has not been placed."""
        if isinstance(v, Lit):
            return self.planner.constant(v)
        if v not in self.env:
            if v in self.program.aliases:
                self.env[v] = self.contiguous(self.program.aliases[v])
            elif v in self.program.parts:
                whole, offset, _ = self.program.parts[v]
                self._prepare(whole)
                self.env[v] = self.place(whole).shifted(offset * v.type.dtype.itemsize)
            else:
                self.env[v] = Place(self.planner.buffer(v.type.nbytes))
        return self.env[v]

    def _prepare(self, whole: Var) -> None:
        """Fills a padded array before its inside is written."""
        eq = self.program.maker[whole]
        how = eq.op.lowering
        if isinstance(how, Join) and how.filled and whole not in self.filled:
            self.filled.add(whole)
            self.fill(eq.inputs[-1], whole, eq)

    def contiguous(self, a: Atom) -> Place:
        """Where a value lies in row-major order, copied there if need be."""
        source, chain = self.program.resolve(a)
        plain = all(isinstance(eq.op.lowering, Reshape) for eq in chain)
        strides = stored_strides(source, self.program)
        if plain and strides == row_major(source.type.shape):
            return self.place(source)
        if isinstance(source, Lit) and a.type.dtype.kind == "c":
            return self._spread(source, a)
        if chain and isinstance(chain[0].op.lowering, Reshape):
            return self.contiguous(chain[0].inputs[0])
        v = Var(a.type)
        self.env[v] = Place(self.planner.buffer(a.type.nbytes))
        steps = row_major(a.type.shape)
        if not self.move(a, v, 0, steps, []):
            self.move(self._viewed(chain[0]), v, 0, steps, [])
        return self.env[v]

    def _spread(self, source: Lit, a: Atom) -> Place:
        """A complex number repeated to the type of a view of it."""
        if not any(map(is_dim, a.type.shape)):
            value = np.full(a.type.shape, source.value)
            return self.planner.constant(Lit(value, a.type))
        v, params = Var(a.type), {"shape": a.type.shape, "dims": ()}
        eq = Equation(broadcast_in_dim, [source], params, [v])
        self.host(eq, Host("nests don't compute with complex numbers"))
        return self.env[v]

    def _viewed(self, eq: Equation) -> Var:
        """A view's result, seen through that one view of what is made in memory."""
        inner, v = Var(eq.inputs[0].type), Var(eq.outputs[0].type)
        self.env[inner] = self.contiguous(eq.inputs[0])
        self.program.readers[inner] = []
        self.program.add(Equation(eq.op, [inner], eq.params, [v], eq.source))
        return v

    # Steps

    def nest(self, launch: Launch, equations: list[Equation], together: bool) -> None:
        """Appends a nest."""
        stores = [b.atom for b in launch.bindings if b.store]
        if all(a is not None and a.type.size == 0 for a in stores):
            return
        places = self._bind(launch)
        work = self.planner.target.nest(launch)
        step = NestStep(
            equations,
            *_traffic(launch, places),
            launch=launch,
            places=places,
            tasks=work.tasks,
        )
        if work.scratch_bytes:
            step.scratch = Place(self.planner.buffer(work.scratch_bytes))
        self.planner.add(step, self.steps, alone=not together)

    def _bind(self, launch: Launch) -> list[Place | None]:
        return [
            None
            if b.atom is None
            else self.place(b.atom).shifted(b.offset * op.dtype.itemsize)
            for b, op in zip(launch.bindings, launch.nest.operands, strict=True)
        ]

    def copy(self, source: Place | None, to: Place, nbytes: int) -> None:
        """Appends a copy of bytes, or zeros if there is no source."""
        if nbytes and source != to:
            reads = [] if source is None else [source]
            self.planner.add(CopyStep([], reads, [to], nbytes=nbytes), self.steps)

    def move(
        self, a: Atom, to: Var, offset: int, strides: Sequence[int], eqs: list[Equation]
    ) -> bool:
        """Appends a nest that copies a value to strided places of another; False if
        there is none for all of its views at once."""
        launch = copy_launch(a, to, offset, strides, self.program)
        if launch is not None:
            self.nest(launch, eqs, True)
        return launch is not None

    def fill(self, value: Atom, whole: Var, eq: Equation) -> None:
        """Writes one number everywhere."""
        if is_zero(value):
            self.copy(None, self.place(whole), whole.type.nbytes)
            return
        t = type(whole.type)((whole.type.size,), whole.type.dtype)
        flat, spread = Var(t), Var(t)
        self.env[flat] = self.place(whole)
        params = {"shape": t.shape, "dims": ()}
        self.program.add(Equation(broadcast_in_dim, [value], params, [spread]))
        launch = copy_launch(spread, flat, 0, (1,), self.program)
        assert launch is not None
        self.nest(launch, [eq], False)

    # Nodes

    def node(self, node: Node) -> None:
        """Appends the steps of a node."""
        if isinstance(node, Cluster):
            found = built(node, self.part)
            if isinstance(found, Launch):
                settle_rows(found, node.equations, self.program)
                self.nest(found, node.equations, True)
            else:
                self.product(found, node.equations)
            return
        eq = node.equations[0]
        how = self.program.lowering(eq)
        if isinstance(how, Product):
            known = self.part.built.pop(eq, None)
            self.product(known or product(eq, self.program), [eq])
        elif isinstance(how, Host):
            self.host(eq, how)
        else:
            self.planner.handlers[type(how)](self, eq)

    def product(self, p: Any, equations: list[Equation]) -> None:
        """Appends a contraction."""
        c = self._product_result(p)
        a, b = (
            self.place(atom).shifted(offset * atom.type.dtype.itemsize)
            for atom, offset in (p.a, p.b)
        )
        reads, writes, places = [a, b], [c], []
        if p.epilogue is not None:
            places = self._bind(p.epilogue)
            more_reads, more_writes = _traffic(p.epilogue, places)
            reads += [r for r in more_reads if r.buffer is not c.buffer]
            writes += more_writes
        launches = self.planner.target.contraction(p)
        nbytes = launches[0].scratch_bytes
        scratch = Place(self.planner.buffer(nbytes)) if nbytes else None
        for words in launches:
            step = ProductStep(
                equations,
                reads,
                writes,
                product=p,
                a=a,
                b=b,
                c=c,
                words=words,
                scratch=scratch,
                places=places,
            )
            self.planner.add(step, self.steps)

    def _product_result(self, p: Any) -> Place:
        """Where the product itself goes: into the epilogue's result, if nobody else
        reads it and that has the same layout."""
        if (
            p.epilogue is not None
            and p.c not in self.env
            and p.c not in self.program.parts
        ):
            stores = [
                b
                for b, op in zip(
                    p.epilogue.bindings, p.epilogue.nest.operands, strict=True
                )
                if b.store and op.dtype == p.contraction.dtype
            ]
            loads = [b for b in p.epilogue.bindings if b.atom is p.c]
            for s in stores:
                same = all(
                    (b.offset, b.strides) == (s.offset, s.strides) for b in loads
                )
                alone = len(self._outside_readers(p)) == 0
                if same and alone and s.atom.type.size == p.c.type.size:
                    self.env[p.c] = self.place(s.atom)
                    break
        return self.place(p.c)

    def _outside_readers(self, p: Any) -> list[Equation]:
        node = self.part.owner[p.c]
        if self.program.is_returned(p.c):
            return [self.program.maker[p.c]]
        return [
            r
            for r in self.program.final_readers(p.c)
            if not r.outputs
            or self.part.owner[r.outputs[0]] is not node
            or r.outputs[0] in self.program.aliases
        ]

    def stored(self, a: Atom) -> Var:
        """A value of its own in memory that is equal to `a`."""
        v = Var(a.type)
        self.env[v] = self.contiguous(a)
        return v

    def assign_copy(self, x: Atom, out: Var, eq: Equation) -> None:
        """Makes `out` begin as a copy of x, unless it is written over x."""
        if isinstance(x, Var) and self.env.get(x) == self.place(out):
            return
        source, _ = self.program.resolve(x)
        if isinstance(source, Lit) and source.type.ndim == 0:
            self.fill(source, out, eq)
        elif not self.move(x, out, 0, row_major(out.type.shape), [eq]):
            self.copy(self.contiguous(x), self.place(out), out.type.nbytes)

    def host(self, eq: Equation, how: Host) -> None:
        """Appends a call of the reference implementation."""
        reads = [self.contiguous(a) for a in eq.inputs]
        writes = [self.place(v) for v in eq.outputs]
        types = [a.type for a in eq.inputs], [v.type for v in eq.outputs]
        step = HostStep([eq], reads, writes, types=types, reason=how.reason)
        self.planner.add(step, self.steps)


def _traffic(launch: Launch, places: list) -> tuple[list[Place], list[Place]]:
    reads: list[Place] = []
    writes: list[Place] = []
    for b, place in zip(launch.bindings, places, strict=True):
        if place is not None:
            (writes if b.store else reads).append(place)
    return reads, writes


def is_zero(a: Atom) -> bool:
    """Whether a value is a number whose bytes are 0, whatever the sizes are."""
    number = isinstance(a, Lit) and a.type.ndim == 0 and a.size is None
    return number and not any(a.value.tobytes())  # type: ignore[union-attr]


def _join(g: GraphPlanner, eq: Equation) -> None:
    """Concatenations and paddings: pieces that are not made in place are copied."""
    whole = eq.outputs[0]
    g._prepare(whole)
    how, steps = eq.op.lowering, row_major(whole.type.shape)
    assert isinstance(how, Join)
    for a, (offset, strides) in joined(eq, how, steps):
        if isinstance(a, Var) and a in g.program.parts:
            continue
        if not g.move(a, whole, offset, strides, [eq]):
            g.move(g.stored(a), whole, offset, strides, [eq])


def _scatter(g: GraphPlanner, eq: Equation) -> None:
    """Writes at data-dependent places of a copy of the first operand."""
    x, *rest = eq.inputs
    out = eq.outputs[0]
    launch = scatter_launch(eq, g.program)
    if launch is None:
        inputs = [x, *map(g.stored, rest)]
        copied = Equation(eq.op, inputs, eq.params, eq.outputs, eq.source)
        launch = scatter_launch(copied, g.program)
        assert launch is not None
    g.assign_copy(x, out, eq)
    g.nest(launch, [eq], False)


def _alias(g: GraphPlanner, eq: Equation) -> None:
    """Identities that only passes must not see through."""
    for a, v in zip(eq.inputs, eq.outputs, strict=True):
        place = g.contiguous(a)
        if v in g.env:
            g.copy(place, g.env[v], v.type.nbytes)
        else:
            g.env[v] = place


Handler = Callable[[GraphPlanner, Equation], None]
HANDLERS: dict[type[Lowering], Handler] = {
    Join: _join,
    Same: _alias,
    Scatter: _scatter,
}
"""How lowerings that are no kernels of their own are planned."""

"""Schedule to steps: every stored value gets a place, every kernel its commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.dims import is_dim
from treadle.fuse.lowering.launches import (
    Calls,
    Copy,
    HostCall,
    KernelEntry,
    Launch,
    ProductKernel,
    Sort,
)
from treadle.ir.graph import Atom, Lit, Var
from treadle.ir.origin import NOWHERE, Origin
from treadle.plan.region import Region
from treadle.plan.schedule import Schedule
from treadle.plan.steps import (
    Buffer,
    CallsStep,
    CopyStep,
    HostStep,
    Loop,
    NestStep,
    OrderStep,
    Outline,
    Place,
    Plan,
    ProductStep,
    Step,
    literal_of,
    own_of,
    traffic,
    work_memory,
)


class Planner:
    """Collects the steps of one program. `position` counts them as they will run.

    handlers: what plans each type of kernel.
    """

    def __init__(self, outline: Outline, handlers: dict[type, Handler]) -> None:
        self.handlers = handlers
        inputs = [Buffer(t.nbytes, "input", i) for i, t in enumerate(outline.in_types)]
        outputs = [
            Buffer(t.nbytes, "output", i) for i, t in enumerate(outline.out_types)
        ]
        self.plan = Plan(outline, [], inputs, outputs, [], 0)
        self.order: list[Step] = []
        self.position = 0
        self.loops: tuple[Loop, ...] = ()
        self.constants: dict[Any, Buffer] = {}
        self._origins: dict[Origin, int] = {}
        self.targets: dict[Buffer, Sequence[Buffer]] = {}
        self.region = Region([])

    def buffer(self, nbytes: int) -> Buffer:
        """A temporary."""
        b = Buffer(nbytes)
        b.loops = self.loops
        self.plan.buffers.append(b)
        return b

    def origin(self, origin: Origin) -> int:
        """The number of an origin."""
        number = self._origins.setdefault(origin, len(self._origins))
        if number == len(self.plan.origins):
            self.plan.origins.append(origin)
        return number

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
        for place in (*step.reads, *step.writes, *work_memory(step)):
            self.use(place.buffer, self.position)

    def close(self, loop: Loop) -> None:
        """Ends a loop: what it touched lives until here."""
        self.position += 1
        for b in loop.touched:
            self.use(b, self.position)


class GraphPlanner:
    """Plans one schedule: the program, or the body of a loop or branch of it.

    around: where the loop or branch comes from. here: where the kernel that is planned.
    """

    def __init__(
        self, planner: Planner, schedule: Schedule, around: Origin = NOWHERE
    ) -> None:
        self.planner, self.schedule = planner, schedule
        self.around = self.here = around
        self.within = schedule.kernels.within
        self.env: dict[Var, Place] = {}
        self.steps: list[Step] = []

    def run(self, inputs: Sequence[Place], outputs: Sequence[Place]) -> list[Step]:
        """The steps that compute the results into `outputs`."""
        kernels, how = self.schedule[:2]
        self.env.update(zip(kernels.inputs, inputs, strict=True))
        copies = self._claim(outputs)
        for entry, chosen in zip(kernels.entries, how, strict=True):
            handler = self.planner.handlers[type(entry.kernel)]
            first = len(self.steps)
            origins = [origin.within(self.around) for origin in entry.origins]
            self.here = origins[-1] if origins else self.around
            handler(self, entry.kernel, entry, chosen)
            numbers = tuple(map(self.planner.origin, origins))
            for step in self.steps[first:]:
                step.origins = numbers
        for a, place in copies:
            self.copy(self.place(a), place, a.type.nbytes)
        return self.steps

    def _claim(self, outputs: Sequence[Place]) -> list[tuple[Atom, Place]]:
        """Lets results be made in place where possible; gives those to be copied."""
        copies = []
        for a, place in zip(self.schedule.kernels.results, outputs, strict=True):
            source = self._whole(a)
            if isinstance(source, Var) and source not in self.env:
                self.env[source] = place
            else:
                copies.append((a, place))
        return copies

    def _whole(self, a: Atom) -> Atom:
        """The value whose memory, all of it, a value has."""
        while isinstance(a, Var) and a in self.within:
            a, offset = self.within[a]
            assert not offset, "a result is a part of another value"
        return a

    def place(self, v: Atom) -> Place:
        """Where a stored value is, made up if it has not been placed."""
        if isinstance(v, Lit):
            return self.planner.constant(v)
        if v not in self.env:
            if v in self.within:
                whole, offset = self.within[v]
                self.env[v] = self.place(whole).shifted(offset)
            else:
                self.env[v] = Place(self.buffer(v))
        return self.env[v]

    def buffer(self, v: Var) -> Buffer:
        """A temporary for a value."""
        made = self.planner.buffer(v.type.nbytes)
        made.type = v.type
        origin = self.schedule.kernels.makers.get(v)
        if origin is not None:
            made.origin = self.planner.origin(origin.within(self.around))
        return made

    def bind(self, launch: Launch) -> list[Place | None]:
        """The places of a nest's operands; None for computed indices."""
        return [
            None
            if b.atom is None
            else self.place(b.atom).shifted(b.offset * op.dtype.itemsize)
            for b, op in zip(launch.bindings, launch.nest.operands, strict=True)
        ]

    def scratch(self, nbytes: int) -> Place | None:
        return Place(self.planner.buffer(nbytes)) if is_dim(nbytes) or nbytes else None

    def copy(
        self, source: Place | None, to: Place, nbytes: int, names: tuple[str, ...] = ()
    ) -> None:
        """Appends a copy of bytes, or zeros if there is no source."""
        if nbytes and source != to:
            reads = [] if source is None else [source]
            self.planner.add(CopyStep(names, reads, [to], nbytes=nbytes), self.steps)


def _nest(g: GraphPlanner, launch: Launch, entry: KernelEntry, how: Any) -> None:
    places = g.bind(launch)
    reads, writes = traffic(launch, places)
    if entry.begins is not None and g.place(entry.begins) == writes[0]:
        return
    step = NestStep(
        entry.names,
        reads,
        writes,
        launch=launch,
        places=places,
        tasks=how.tasks,
        scratch=g.scratch(how.scratch_bytes),
    )
    g.planner.add(step, g.steps, entry.alone)


def _product(g: GraphPlanner, p: ProductKernel, entry: KernelEntry, how: Any) -> None:
    c = g.place(p.c)
    a, b = (
        g.place(atom).shifted(offset * atom.type.dtype.itemsize)
        for atom, offset in (p.a, p.b)
    )
    reads, writes, places = [a, b], [c], []
    if p.epilogue is not None:
        places = g.bind(p.epilogue)
        more_reads, more_writes = traffic(p.epilogue, places)
        reads += [r for r in more_reads if r.buffer is not c.buffer]
        writes += more_writes
    scratch = g.scratch(how[0].scratch_bytes)
    for words in how:
        step = ProductStep(
            entry.names,
            reads,
            writes,
            product=p,
            a=a,
            b=b,
            c=c,
            words=words,
            scratch=scratch,
            own=own_of(words, g.planner),
            places=places,
        )
        g.planner.add(step, g.steps)


def _order(g: GraphPlanner, sort: Sort, entry: KernelEntry, how: Any) -> None:
    step = OrderStep(
        entry.names,
        [g.place(sort.keys)],
        [g.place(sort.out)],
        rows=sort.rows,
        length=sort.length,
        count=sort.places,
        itemsize=sort.keys.type.dtype.itemsize,
        tasks=how.tasks,
        scratch=Place(g.planner.buffer(how.scratch_bytes)),
    )
    g.planner.add(step, g.steps)


def _calls(g: GraphPlanner, calls: Calls, entry: KernelEntry, how: Any) -> None:
    step = CallsStep(
        entry.names,
        [g.place(a) for a in calls.operands],
        [g.place(v) for v in calls.results],
        call=calls,
        tasks=how.tasks,
        scratch=g.scratch(how.scratch_bytes),
        own=own_of(how, g.planner),
    )
    g.planner.add(step, g.steps)


def _host(g: GraphPlanner, call: HostCall, entry: KernelEntry, how: Any) -> None:
    step = HostStep(
        entry.names,
        [g.place(a) for a in call.operands],
        [g.place(v) for v in call.results],
        call=call,
    )
    g.planner.add(step, g.steps)


def _copy(g: GraphPlanner, copy: Copy, entry: KernelEntry, how: Any) -> None:
    source, target = copy
    place = None if source is None else g.place(source)
    if entry.begins is not None and g.place(entry.begins) == g.place(target):
        return
    g.copy(place, g.place(target), target.type.nbytes, entry.names)


Handler = Callable[[GraphPlanner, Any, KernelEntry, Any], None]
HANDLERS: dict[type, Handler] = {
    Launch: _nest,
    ProductKernel: _product,
    Sort: _order,
    Calls: _calls,
    HostCall: _host,
    Copy: _copy,
}
"""What plans each type of kernel that runs no other ones."""

"""The plan as data: steps in order, and the places in memory that they use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.fuse.lowering.launches import Calls, HostCall, Launch, ProductKernel
from treadle.ir.graph import Atom
from treadle.ir.origin import Origin
from treadle.late import Number
from treadle.records import field, record


@record(eq=False, slots=True)
class Buffer:
    """A block of memory.

    home: "arena" (offset is assigned by `treadle.plan.memory`), "input" and "output"
      (index counts the program's), "constant" (index counts the plan's), or "slot" (a
      pointer that a loop exchanges; index counts the plan's).
    first, last: the positions of the steps between which it holds a value.
    type: of the value that it was made for; None for work memory. origin: where that
      comes from, a number of the plan's origins; -1 if that is not known.
    """

    nbytes: int
    home: str = "arena"
    index: int = 0
    offset: int = 0
    first: int = -1
    last: int = -1
    loops: tuple[Any, ...] = ()
    type: ArrayType | None = None
    origin: int = -1


class Place(NamedTuple):
    """Bytes within a buffer; `dynamic` adds scale times the index of a loop."""

    buffer: Buffer
    offset: int = 0
    dynamic: tuple[tuple[Loop, int], ...] = ()

    def shifted(self, nbytes: int) -> Place:
        return Place(self.buffer, self.offset + nbytes, self.dynamic)


class Own(NamedTuple):
    """Memory that threads have while they run a task: so many equal parts, in the order
    of their slots."""

    place: Place
    slots: int

    @property
    def stride(self) -> int:
        """Bytes from one part to the next."""
        return self.place.buffer.nbytes // self.slots


@record(eq=False)
class Step:
    """Something that runs. `names` are of the operations that it does; `position`
    orders it. `origins` says where these come from, in their order, as numbers of the
    plan's origins (a copy around a loop does no operation, but is for one).

    own: the memory that threads have for it, if they need any (scratch is for all tasks
      together).
    """

    names: tuple[str, ...]
    reads: list[Place]
    writes: list[Place]
    position: int = -1
    origins: tuple[int, ...] = ()
    own: Own | None = None


@record(eq=False)
class NestStep(Step):
    """A loop nest. `places` has one entry per operand (None for computed indices)."""

    launch: Launch = None  # type: ignore[assignment]
    places: list[Place | None] = field(default_factory=list)
    tasks: int = 1
    scratch: Place | None = None


@record(eq=False)
class ProductStep(Step):
    """A contraction, with a nest as its epilogue or none."""

    product: ProductKernel = None  # type: ignore[assignment]
    a: Place = None  # type: ignore[assignment]
    b: Place = None  # type: ignore[assignment]
    c: Place = None  # type: ignore[assignment]
    words: Any = None
    scratch: Place | None = None
    places: list[Place | None] = field(default_factory=list)


@record(eq=False)
class HostStep(Step):
    """The reference implementation, called back: there is no native lowering."""

    call: HostCall = None  # type: ignore[assignment]


@record(eq=False)
class OrderStep(Step):
    """Finds the first `count` places of the order of each of `rows` rows of `length`
    unsigned integers."""

    rows: int = 0
    length: int = 0
    count: int = 0
    itemsize: int = 4
    tasks: int = 1
    scratch: Place | None = None


@record(eq=False)
class CallsStep(Step):
    """Calls a library for each matrix of a batch, or each line of an array."""

    call: Calls = None  # type: ignore[assignment]
    tasks: int = 1
    scratch: Place | None = None


@record(eq=False)
class CopyStep(Step):
    """Copies bytes (or writes zeros, if there is no source)."""

    nbytes: int = 0


@record(eq=False)
class Loop(Step):
    """A counted loop. Before it, `slots` are pointed at places; after each iteration
    the pairs in `swaps` exchange their pointers.

    strands: into how many parts it falls that don't depend on each other. Each step of
      the body has as many tasks, each of which works on a part of its own.
    """

    count: int = 0
    body: list[Step] = field(default_factory=list)
    slots: list[tuple[Buffer, Place]] = field(default_factory=list)
    swaps: list[tuple[Buffer, Buffer]] = field(default_factory=list)
    touched: set[Buffer] = field(default_factory=set)
    strands: int = 1


@record(eq=False)
class While(Loop):
    """Runs `test`, and while the bool it leaves at `flag` is true, `body`."""

    test: list[Step] = field(default_factory=list)
    flag: Place = None  # type: ignore[assignment]


@record(eq=False)
class Branch(Step):
    """Runs one of several step lists: the one whose number is at `index`."""

    index: Place = None  # type: ignore[assignment]
    dtype: np.dtype = None  # type: ignore[assignment]
    branches: list[list[Step]] = field(default_factory=list)


def walk(steps: Sequence[Step], depth: int = 0) -> Iterator[tuple[int, Step]]:
    """All steps with their depth of nesting."""
    for step in steps:
        yield depth, step
        if isinstance(step, While):
            yield from walk(step.test, depth + 1)
        if isinstance(step, Loop):
            yield from walk(step.body, depth + 1)
        if isinstance(step, Branch):
            for branch in step.branches:
                yield from walk(branch, depth + 1)


class Outline(NamedTuple):
    """What a program takes and gives; how many equations it has, and how many bytes all
    their results."""

    name: str
    in_types: tuple[ArrayType, ...]
    out_types: tuple[ArrayType, ...]
    equations: int
    nbytes: int


@record
class Plan:
    """A whole program: steps, and what the buffers need.

    shares: for results, the donated argument whose memory they may be written to.
    threads: how many run tasks at once, at most.
    numbers: for constants, what they are for other sizes, if these are open; else None.
    origins: where in the user's program steps and buffers come from.
    """

    outline: Outline
    steps: list[Step]
    inputs: list[Buffer]
    outputs: list[Buffer]
    constants: list[np.ndarray]
    slots: int
    arena: int = 0
    buffers: list[Buffer] = field(default_factory=list)
    shares: dict[int, int] = field(default_factory=dict)
    numbers: list[Number | None] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    threads: int = 1

    @property
    def most_threads(self) -> int | None:
        """For how many threads there is memory; None if they need none."""
        owning = any([step.own is not None for _, step in walk(self.steps)])
        return self.threads if owning else None


def traffic(
    launch: Launch, places: Sequence[Place | None]
) -> tuple[list[Place], list[Place]]:
    """What a nest reads and writes."""
    reads: list[Place] = []
    writes: list[Place] = []
    for b, place in zip(launch.bindings, places, strict=True):
        if place is not None:
            (writes if b.store else reads).append(place)
    return reads, writes


def own_of(work: Any, planner: Any) -> Own | None:
    """The memory that threads have while they run a task of a kernel."""
    each, tasks = work.own_bytes, work.tasks
    if not is_dim(each) and each == 0:
        return None
    alone = not is_dim(tasks) and tasks == 1
    slots = 1 if alone else planner.plan.threads
    return Own(Place(planner.buffer(each * slots)), slots)


def work_memory(step: Step) -> list[Place]:
    """What a step uses beside what it reads and writes."""
    found = getattr(step, "scratch", None), step.own and step.own.place
    return [place for place in found if place is not None]


def literal_of(a: Atom) -> np.ndarray:
    """The contiguous array that a literal stands for."""
    return np.ascontiguousarray(a.value)  # type: ignore[union-attr]

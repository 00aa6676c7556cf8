"""Runs a Plan in the abstract: who owns which bytes when a step reads them?

The checker of Plans. It knows nothing of how memory was assigned. Each step's reads
must find their buffer intact: written before, and not overwritten by another that
shares its bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from treadle.errors import InternalError
from treadle.fuse.lowering.launches import Launch, overwrites
from treadle.kernels.lower import is_store
from treadle.plan.steps import (
    Branch,
    Buffer,
    CopyStep,
    Loop,
    NestStep,
    Place,
    Plan,
    ProductStep,
    Step,
    While,
    walk,
    work_memory,
)
from treadle.plan.touched import touched

GRANULE = 64
Key = tuple[str, int]


class Memory:
    """Whose value each piece of memory holds; pieces are granules or whole arrays."""

    def __init__(self, plan: Plan) -> None:
        self.shares = getattr(plan, "shares", {})
        self.owner: dict[Key, Buffer | None] = {}
        self.pointers: dict[int, Place] = {}
        for b in plan.inputs:
            self.owner["input", b.index] = b

    def actual(self, place: Place) -> Buffer:
        """The buffer, through the pointers that loops exchange."""
        while place.buffer.home == "slot":
            place = self.pointers[place.buffer.index]
        return place.buffer

    def pieces(self, b: Buffer) -> Iterator[Key]:
        if not b.nbytes:
            return
        if b.home == "arena":
            first = b.offset // GRANULE
            for i in range(first, first - (-b.nbytes // GRANULE)):
                yield "arena", i
        elif b.home == "output" and b.index in self.shares:
            yield "input", self.shares[b.index]
        elif b.home != "constant":
            yield b.home, b.index

    def read(self, place: Place, step: Step) -> None:
        b = self.actual(place)
        for piece in self.pieces(b):
            found = self.owner.get(piece)
            how = "never written" if found is None else "overwritten"
            _must(
                found is b,
                f"{names(step)} at {step.position} reads a buffer of {b.nbytes} bytes "
                f"({b.home} {b.offset}) that was {how}",
            )

    def write(self, place: Place) -> None:
        b = self.actual(place)
        for piece in self.pieces(b):
            self.owner[piece] = b


def names(step: Step) -> str:
    return f"{type(step).__name__}({', '.join(step.names)})"


def _must(holds: bool, otherwise: str) -> None:
    if not holds:
        raise InternalError(otherwise)


def check_plan(plan: Plan) -> None:
    """Verifies that no buffer is overwritten while its value is needed, and that what
    runs in parallel touches separate memory.

    Raises:
      InternalError: at the first violation.
    """
    memory = Memory(plan)
    for b in plan.buffers:
        if b.home == "arena" and b.first >= 0:
            _must(b.offset % GRANULE == 0, "a buffer is not aligned")
            _must(b.offset + b.nbytes <= plan.arena, "a buffer leaves the arena")
    for _, step in walk(plan.steps):
        _parts_fit(step, plan.threads)
    run(plan.steps, memory)
    for b in plan.outputs:
        if b.nbytes:
            for piece in memory.pieces(b):
                there = memory.owner.get(piece) is b
                _must(there, "a result is not there at the end")


def _parts_fit(step: Step, threads: int) -> None:
    """Each thread that may run a task has what the task needs."""
    if not isinstance(step, ProductStep) or not step.words.own_bytes:
        return
    own, needs = step.own, step.words.own_bytes
    slots = 1 if step.words.tasks == 1 else threads
    enough = own is not None and own.stride >= needs and own.slots >= slots
    _must(enough, f"threads have less than {names(step)} at {step.position} needs")


def run(steps: Sequence[Step], memory: Memory) -> None:
    for _, group in groupby(steps, key=lambda s: s.position):
        region = list(group)
        if len(region) == 1:
            _one(region[0], memory)
        else:
            _together(region, memory)


def _simple(step: Step, memory: Memory) -> None:
    for place in step.reads:
        memory.read(place, step)
    _overwrites(step, memory)
    for scratch in work_memory(step):
        used = {p for w in (*step.reads, *step.writes) for p in _places(w, memory)}
        _must(not used & _places(scratch, memory), "scratch is in use")
        memory.write(scratch)
    for place in step.writes:
        memory.write(place)


def _places(place: Place, memory: Memory) -> set[Key]:
    return set(memory.pieces(memory.actual(place)))


def _overwrites(step: Step, memory: Memory) -> None:
    """What a step reads and overwrites it must read and write at the same points."""
    for w in step.writes:
        for r in dict.fromkeys((*step.reads, *_beside_product(step))):
            mine, theirs = memory.actual(w), memory.actual(r)
            if not _places(w, memory) & _places(r, memory):
                continue
            if mine is theirs and _are_apart(step, w, r):
                continue
            if isinstance(step, ProductStep):
                # A product is in its place before its epilogue reads, and an epilogue
                # writes while others read the operands.
                late = w != step.c and r not in (step.a, step.b)
                _must(late, f"{names(step)} overwrites an operand")
            if mine is theirs:
                _rewrites(step, w, r)
                continue
            if isinstance(step, CopyStep):
                _must(w.offset == r.offset, "a copy overlaps its source")
                continue
            launch, places = _nest_of(step)
            patterns = {
                (b.strides, p.offset)
                for b, p in zip(launch.bindings, places, strict=True)
                if p is not None and memory.actual(p) in (mine, theirs)
            }
            _must(len(patterns) == 1, f"{names(step)} overwrites what it still reads")


def _beside_product(step: Step) -> list[Place]:
    """What a product's epilogue reads beside the product."""
    if not isinstance(step, ProductStep) or step.product.epilogue is None:
        return []
    pairs = zip(step.product.epilogue.bindings, step.places, strict=True)
    made = step.product.c
    return [p for b, p in pairs if p and not b.store and b.atom is not made]


def _are_apart(step: Step, w: Place, r: Place) -> bool:
    """Whether two places of one array have no byte in common."""
    mine, theirs = (touched(step, p) for p in (w, r))
    if w.dynamic != r.dynamic or mine is None or theirs is None:
        return False
    return not np.intersect1d(mine, theirs).size


def _rewrites(step: Step, w: Place, r: Place) -> None:
    """What a step reads of the part of an array that it writes must be each element
    that it then writes itself."""
    launch, places = _nest_of(step)
    bound = list(enumerate(zip(launch.bindings, places, strict=True)))
    stores = [k for k, (b, p) in bound if b.store and p == w]
    loads = [k for k, (b, p) in bound if not b.store and p == r]
    fine = w == r and len(stores) == 1
    fine = fine and (
        overwrites(launch, stores[0], loads)
        or all(_reads_what_it_scatters(launch, stores[0], k) for k in loads)
    )
    _must(fine, f"{names(step)} overwrites what it still reads")


def _reads_what_it_scatters(launch: Launch, store: int, load: int) -> bool:
    """Whether one operand is read where data say that the other is written."""
    if launch.bindings[load]._replace(store=True) != launch.bindings[store]:
        return False
    body = launch.nest.body
    written = [i.args[1:] for i in body if is_store(i) and i.attr == store]
    read = [i.args for i in body if i.name == "load" and i.attr == load]
    return len({*written, *read}) == 1


def _nest_of(step: Step) -> tuple[Any, Sequence[Any]]:
    """The nest that reads and writes element by element."""
    if isinstance(step, ProductStep):
        return step.product.epilogue, step.places
    if not isinstance(step, NestStep):
        raise InternalError(f"{names(step)} overwrites an operand")
    return step.launch, step.places


def _together(region: list[Step], memory: Memory) -> None:
    for i, step in enumerate(region):
        _must(isinstance(step, NestStep), f"{names(step)} runs together with others")
        for other in region[i + 1 :]:
            _separate(step, other, memory)
            _separate(other, step, memory)
    for step in region:
        _simple(step, memory)


def _separate(writer: Step, other: Step, memory: Memory) -> None:
    for w in (*writer.writes, *work_memory(writer)):
        for place in (*other.reads, *other.writes, *work_memory(other)):
            same = memory.actual(w) is memory.actual(place)
            if same and place in other.writes and place != w:
                continue  # two parts of one array
            _must(
                not _places(w, memory) & _places(place, memory),
                f"{names(writer)} and {names(other)} run together on the same memory",
            )


def _one(step: Step, memory: Memory) -> None:
    if isinstance(step, Loop):
        _loop(step, memory)
    elif isinstance(step, Branch):
        _branch(step, memory)
    else:
        _simple(step, memory)


def _loop(step: Loop, memory: Memory) -> None:
    for slot, place in step.slots:
        memory.pointers[slot.index] = place
    # Three rounds show each carried buffer in both roles, and what follows them.
    for _ in range(3 if isinstance(step, While) else step.count % 2 + 2):
        if isinstance(step, While):
            run(step.test, memory)
            memory.read(step.flag, step)
        run(step.body, memory)
        for a, b in step.swaps:
            p, q = memory.pointers[a.index], memory.pointers[b.index]
            memory.pointers[a.index], memory.pointers[b.index] = q, p
    if isinstance(step, While):
        run(step.test, memory)


def _branch(step: Branch, memory: Memory) -> None:
    memory.read(step.index, step)
    before, after = dict(memory.owner), []
    for branch in step.branches:
        memory.owner = dict(before)
        run(branch, memory)
        after.append(memory.owner)
    keys = {k for owner in after for k in owner}
    memory.owner = {
        k: after[0].get(k) for k in keys if len({id(o.get(k)) for o in after}) == 1
    }

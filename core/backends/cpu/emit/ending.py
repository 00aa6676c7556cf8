"""What a column nest does once its sums are known: written once, not for each copy.

The vectors of a block leave their sums in a row on the stack, and a loop over the block
takes them from there. An optimizer's update behind the sum of a bias' gradient is most
of such a nest's code, and a small part of its time.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.backends.cpu.emit.access import Word, load, store
from treadle.backends.cpu.emit.body import Body, Frame, limit
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import has_mask_registers, register_kind
from treadle.kernels.lower import NestOrder, is_reduction, is_running, is_store
from treadle.kernels.nest import is_half

_MUCH = 8
"""Instructions on vectors from which on the ending of a nest is written once."""


class Ending:
    """The ending of the blocks of a column nest. Made in the kernel's entry block.

    before: what is left to do before each sweep, instead of the nest's `held`.
    """

    def __init__(self, b: Builder, plan: NestOrder, body: Body, vectors: int) -> None:
        self._b, self._plan, self._body = b, plan, body
        self._steps, self.before = _divided(plan)
        self._rows = {}
        for i in _taken(plan, self._steps):
            row = f"[{vectors * body.lanes} x {self._kind(i)}]"
            self._rows[i] = b.op(f"alloca {row}, align 64")

    def keep(self, held: Frame, offset: str) -> None:
        """Puts the sums of a frame's vectors, `offset` elements after the block's
        first, where `run` takes them."""
        b, lanes = self._b, self._body.lanes
        for i in self._rows:
            place = self._place(i, offset)
            for copy, value in enumerate(held.values[i]):
                at = f"getelementptr {self._kind(i)}, ptr {place}, i64 {copy * lanes}"
                at = b.op(at) if copy else place
                store(b, at, value, self._plan.nest.body[i].dtype, None)

    def run(
        self, positions: Sequence[Word | str], first: str, end: str, whole: bool
    ) -> None:
        """Emits the ending of the columns first..end of a block. whole: whether these
        are known to be whole vectors."""
        b, lanes, rest = self._b, self._body.lanes, first
        if whole:
            with b.loop(first, end, str(lanes)) as i:
                self._vector(Frame(positions, 1, i), first)
            return
        if not has_mask_registers():
            span = b.op(f"sub i64 {end}, {first}")
            rest = b.op(f"add i64 {first}, {b.op(f'and i64 {span}, {-lanes}')}")
            with b.loop(first, rest, str(lanes)) as i:
                self._vector(Frame(positions, 1, i), first)
        with b.loop(rest, end, str(lanes)) as i:
            frame = Frame(positions, 1, i)
            limit(b, frame, end, lanes, near=True)
            self._vector(frame, first)

    def _vector(self, frame: Frame, first: str) -> None:
        offset = self._b.op(f"sub i64 {frame.index}, {first}")
        for i in self._rows:
            dtype = self._plan.nest.body[i].dtype
            place = self._place(i, offset)
            frame.values[i] = [load(self._b, place, dtype, self._body.lanes, None)]
        for i in self._steps:
            self._body.run(i, frame)

    def _place(self, i: int, offset: str) -> str:
        row = self._rows[i]
        return self._b.op(f"getelementptr {self._kind(i)}, ptr {row}, i64 {offset}")

    def _kind(self, i: int) -> str:
        return register_kind(self._plan.nest.body[i].dtype)


def worth_ending(plan: NestOrder) -> bool:
    """Whether a column nest has an ending that is written once: it stores nothing
    before, and its sums are vectors of numbers as they lie in memory."""
    body = plan.nest.body
    earlier = [i for part in plan.held[:-1] for i in part]
    earlier += [i for sweep in plan.sweeps for i in sweep.body]
    if any(is_store(body[i]) or is_running(body[i]) for i in earlier):
        return False
    steps, _ = _divided(plan)
    taken = _taken(plan, steps)
    plain = all(
        plan.varying[i] and body[i].dtype.kind in "fiu" and not is_half(body[i].dtype)
        for i in taken
    )
    return plain and sum([plan.varying[i] for i in steps]) >= _MUCH


def _divided(plan: NestOrder) -> tuple[list[int], list[list[int]]]:
    """The instructions of the ending, in the order in which they run; and those that
    are held for each sweep."""
    body = plan.nest.body
    needed = set(plan.held[-1])
    for part in reversed(plan.held):
        for i in reversed(part):
            if i in needed:
                needed.update([a for a in body[i].args if not is_reduction(body[a])])
    steps = [i for part in plan.held for i in part if i in needed]
    wanted = {
        a for s in plan.sweeps for i in (*s.body, *s.reductions) for a in body[i].args
    }
    for part in reversed(plan.held):
        for i in reversed(part):
            if i in wanted:
                wanted.update(body[i].args)
    before = [[i for i in part if i in wanted] for part in plan.held[:-1]]
    return steps, before


def _taken(plan: NestOrder, steps: Sequence[int]) -> list[int]:
    """The sums that the ending reads."""
    body = plan.nest.body
    found = {a for i in steps for a in body[i].args if is_reduction(body[a])}
    return sorted(found)

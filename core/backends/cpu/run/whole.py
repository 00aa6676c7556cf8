"""Loops over few numbers, as one native function each: which, and their words.

An iteration of a few small nests spends its time between them. `emit.loop` writes all
of them, and the loop, as one function for the sizes of this use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from treadle.backends.cpu.emit.loop import Move, NativeLoop, Piece, Reach, emit
from treadle.backends.cpu.run import native
from treadle.backends.cpu.run.executor import Slot
from treadle.dims import is_dim
from treadle.kernels.lower import cost
from treadle.kernels.nest import Nest
from treadle.plan.cost import points
from treadle.plan.steps import CopyStep, Loop, NestStep, Place, Step, While

_FEW = 256
"""Points of a nest, up to which calling it takes about as long as what it does."""
_FEW_BYTES = 1024
_MOST_STEPS = 128
_TIMES = 512
"""Iterations that are worth the time of the compiler."""
_UNKNOWN = 16
"""How often a loop that waits for something is taken to run."""
_MOST_WORK = 1200
"""Instructions that are worth being compiled again for each use."""


def times(loops: Sequence[Loop]) -> int:
    """How often the body of the last of some nested loops runs, or is taken to."""
    return math.prod([_UNKNOWN if isinstance(x, While) else x.count for x in loops])


def is_small(loops: Sequence[Loop]) -> bool:
    """Whether the last of some nested loops is worth a function of its own: an
    iteration is little work, done by nests whose sizes are fixed, and there are many.
    """
    step = loops[-1]
    tests = step.test if isinstance(step, While) else []
    steps = [*tests, *step.body]
    if not step.body or len(steps) > _MOST_STEPS:
        return False
    if not _numbers([x.count for x in loops]):
        return False
    if not (isinstance(step, While) or times(loops) >= _TIMES):
        return False
    if not all(map(_is_little, steps)):
        return False
    nests = [s.launch.nest for s in steps if isinstance(s, NestStep)]
    return bool(nests) and sum(map(_work, nests)) <= _MOST_WORK


def _is_little(step: Step) -> bool:
    places = [*step.reads, *step.writes]
    if isinstance(step, NestStep) and step.scratch is not None:
        places.append(step.scratch)
    if not _numbers([n for p in places for n in (p.offset, p.buffer.nbytes)]):
        return False
    if not _numbers([n for p in places for _, n in p.dynamic]):
        return False
    if isinstance(step, CopyStep):
        return _numbers([step.nbytes]) and step.nbytes <= _FEW_BYTES
    if not isinstance(step, NestStep) or step.tasks != 1:
        return False
    launch = step.launch
    words = [n for b in launch.bindings for n in (b.offset, *b.strides)]
    if not _numbers([*launch.outer, *launch.mid, launch.inner, *words]):
        return False
    # A nest without elements still stores what its sums begin with: that is not written
    # for loops.
    sums = any(i.name.startswith("reduce") for i in launch.nest.body)
    return int(sums) <= points(launch) <= _FEW


def _numbers(sizes: Sequence[object]) -> bool:
    return all(type(n) is int for n in sizes)


@lru_cache(maxsize=4096)
def _work(nest: Nest) -> int:
    return sum([max(1, cost(i)) for i in nest.body])


class Words:
    """The words of a small loop: what its function is, and what that is called with."""

    def __init__(
        self,
        step: Loop,
        index: int | None,
        at: Callable[[Place], Slot],
        swaps: Sequence[tuple[int, int]],
    ) -> None:
        self._at, self._index = at, index
        self._known: dict[Slot, int] = {}
        self.roots: list[Slot] = []
        pairs = [(self._root(Slot(a)), self._root(Slot(b))) for a, b in swaps]
        test = self._parts(step.test) if isinstance(step, While) else ()
        body = self._parts(step.body)
        flag = self._reach(step.flag) if isinstance(step, While) else None
        self.loop = NativeLoop(len(self.roots), tuple(pairs), body, test, flag)

    @property
    def source(self) -> native.Source:
        key = self.loop.key
        symbol = "loop_" + key[-16:]
        return native.Source(key, symbol, lambda: emit(self.loop, symbol), 1, True)

    def _root(self, slot: Slot) -> int:
        if slot not in self._known:
            self._known[slot] = len(self.roots)
            self.roots.append(slot)
        return self._known[slot]

    def _reach(self, place: Place) -> Reach:
        slot = self._at(place)
        step = sum([d.scale for d in slot.dynamic if d.slot == self._index])
        others = tuple([d for d in slot.dynamic if d.slot != self._index])
        # Where a buffer lies may depend on open sizes: no number of the function's.
        late, known = (slot.offset, 0) if is_dim(slot.offset) else (0, slot.offset)
        return Reach(self._root(Slot(slot.index, late, others)), known, step)

    def _parts(self, steps: Sequence[Step]) -> tuple[Piece | Move, ...]:
        """What steps do, but for nests without a point."""
        idle = [isinstance(s, NestStep) and not points(s.launch) for s in steps]
        return tuple(
            [self._part(s) for s, no in zip(steps, idle, strict=True) if not no]
        )

    def _part(self, step: Step) -> Piece | Move:
        if isinstance(step, CopyStep):
            source = self._reach(step.reads[0]) if step.reads else None
            return Move(self._reach(step.writes[0]), source, step.nbytes)
        assert isinstance(step, NestStep)
        launch = step.launch
        operands = [
            (binding.offset if place is None else self._reach(place), binding.strides)
            for place, binding in zip(step.places, launch.bindings, strict=True)
        ]
        sizes = launch.outer, launch.mid, launch.inner
        scratch = None if step.scratch is None else self._reach(step.scratch)
        return Piece(launch.nest, *sizes, tuple(operands), scratch)

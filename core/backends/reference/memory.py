"""The memory of a run: the bytes of each buffer of a Plan.

The arena starts as bytes of ones, which are NaN to every float, and so does each
temporary where it begins to hold a value. A step gets the bytes of its own buffers and
no others, inputs are read-only, and steps that run together may not write what others
of them use.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from treadle.errors import InternalError
from treadle.plan.steps import Buffer, Loop, Place, Plan, Step

_NOTHING = 0xFF
Bytes = Sequence[np.ndarray]


class Where(NamedTuple):
    """A place in memory: the bytes of its buffer, and the first one of the place."""

    whole: np.ndarray
    start: int

    def view(
        self, dtype: np.dtype, shape: Sequence[int], steps: Sequence[int] | None = None
    ) -> np.ndarray:
        """An array at the place, with steps in elements, or in row-major order; raises
        InternalError if it is not inside of the buffer."""
        if 0 in shape:
            return np.empty(shape, dtype)
        strides = None if steps is None else [n * dtype.itemsize for n in steps]
        try:
            return np.ndarray(shape, dtype, self.whole, self.start, strides)  # type: ignore[call-overload]
        except (TypeError, ValueError):
            size, start = self.whole.size, self.start
            what = f"{list(shape)} of {dtype} from byte {start} on, {steps} apart"
            raise InternalError(f"{what}, leave a buffer of {size} bytes") from None


class Memory:
    """The buffers of one run; where the pointers point that loops exchange; and the
    current iteration of each loop."""

    def __init__(self, plan: Plan, inputs: Bytes, outputs: Bytes) -> None:
        self.slots: dict[Buffer, Place] = {}
        self.indices: dict[Loop, int] = {}
        self._arena = np.full(plan.arena, _NOTHING, np.uint8)
        kept = [[_kept(a) for a in arrays] for arrays in (inputs, plan.constants)]
        self._homes = {"input": kept[0], "output": outputs, "constant": kept[1]}
        self._born: dict[int, list[Buffer]] = {}
        for b in plan.buffers:
            self._born.setdefault(b.first, []).append(b)

    def at(self, place: Place) -> Where:
        """Where a place is now."""
        b, offset = place.buffer, place.offset
        offset += sum(self.indices[loop] * step for loop, step in place.dynamic)
        if b.home == "slot":
            whole, start = self.at(self.slots[b])
            return Where(whole, start + offset)
        if b.home == "arena":
            return Where(self._arena[b.offset : b.offset + b.nbytes], offset)
        return Where(self._homes[b.home][b.index], offset)

    def begin(self, steps: Sequence[Step]) -> None:
        """Forgets what was where values begin at these steps, which run together, and
        raises InternalError if one of them writes what another one uses."""
        reads = [(self.at(p).whole, step) for step in steps for p in step.reads]
        writes = [(self.at(p).whole, step) for step in steps for p in step.writes]
        for b in self._born.get(steps[0].position, ()):
            new = self.at(Place(b)).whole
            if not any(np.may_share_memory(new, read) for read, _ in reads):
                new[:] = _NOTHING
        for (x, one), (y, other) in product(writes, [*writes, *reads]):
            if one is not other and np.may_share_memory(x, y):
                raise InternalError(f"{_name(one)} and {_name(other)} share memory")


def declared(step: Step, place: Place | None, writes: bool = False) -> None:
    """Raises InternalError if a step does not name a place's buffer among those that it
    reads, or writes."""
    named = step.writes if writes else [*step.reads, *step.writes]
    if place is not None and all(place.buffer is not p.buffer for p in named):
        raise InternalError(f"{_name(step)} does not say that it uses {place}")


def apart(result: np.ndarray, *operands: np.ndarray) -> None:
    """Raises InternalError if a result would be written over an operand."""
    if any(np.shares_memory(result, a) for a in operands):
        raise InternalError("a result would be written over an operand")


def _kept(a: np.ndarray) -> np.ndarray:
    """The bytes of an array, which must stay as they are."""
    found = np.ascontiguousarray(a).reshape(-1).view(np.uint8)
    found.flags.writeable = False
    return found


def _name(step: Step) -> str:
    ops = ", ".join(step.names)
    return f"{type(step).__name__} {step.position} ({ops})"

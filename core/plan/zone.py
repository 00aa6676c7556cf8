"""One place for the memory that threads have while they run a task."""

from __future__ import annotations

from collections.abc import Sequence

from treadle.dims import hint
from treadle.late import number
from treadle.plan.memory import needed
from treadle.plan.steps import Buffer, Own, Place, Plan, Step

_MORE = 1 / 6
"""Of an arena: so much more may be taken."""


def gather(plan: Plan, order: list[Step]) -> None:
    """Lets steps have their threads' own memory in one buffer, where each thread always
    has the same part.

    Nothing stays there from one task to the next. So a thread writes where it has
    written before, which its cache holds, and never where another one has read or
    written: if cores share no cache, that takes many times as long. But the memory is
    there for all steps. Those that need most of it have their own, apart, if all would
    take much more together.

    Args:
      order: all steps, those in loops too, by position.
    """
    apart = [(step, step.own) for step in order if step.own is not None]
    if len(apart) < 2 or all(own.slots == 1 for _, own in apart):
        return
    buffers = list(plan.buffers)
    most = needed(plan, order) * (1 + _MORE)
    sizes = sorted({_part(own) for _, own in apart})

    def put(count: int) -> None:
        """Puts those together that need no more than one of so many sizes."""
        plan.buffers[:] = buffers
        for step, own in apart:
            step.own = own
        if count:
            few = [(s, own) for s, own in apart if _part(own) <= sizes[count - 1]]
            _together(plan, few)

    low, high = 0, len(sizes)
    tried = high
    while low < high:
        put(tried)
        if needed(plan, order) <= most:
            low = tried
        else:
            high = tried - 1
        tried = (low + high + 1) // 2
    put(low)


def _part(own: Own) -> int:
    """The bytes that a thread needs, for the sizes that were traced."""
    return hint(own.place.buffer.nbytes) // own.slots


def _together(plan: Plan, steps: Sequence[tuple[Step, Own]]) -> None:
    """Lets steps have one buffer, of which each thread has a part."""
    sizes = {}
    for _, own in steps:
        nbytes = own.place.buffer.nbytes
        sizes[getattr(nbytes, "key", nbytes), own.slots] = nbytes, own.slots
    flat = [n for pair in sizes.values() for n in pair]
    zone = Buffer(number(_largest, (plan.threads, *flat)))
    moved = {own.place.buffer for _, own in steps}
    zone.first = min([b.first for b in moved])
    zone.last = max([b.last for b in moved])
    for step, _ in steps:
        step.own = Own(Place(zone), plan.threads)
    plan.buffers[:] = [b for b in plan.buffers if b not in moved] + [zone]


def _largest(threads: int, *pairs: int) -> int:
    """What all threads need, of whom each has the most that a step asks for: its bytes
    for so many threads."""
    each = [-(-n // of) for n, of in zip(pairs[::2], pairs[1::2], strict=True)]
    return threads * -(-max(each) // 64) * 64

"""Which results may be written over the memory of which donated arguments."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from treadle.fuse.lowering.launches import Launch, overwrites
from treadle.plan.steps import (
    Buffer,
    CopyStep,
    NestStep,
    Place,
    Plan,
    ProductStep,
    Step,
)


def shared_memory(
    plan: Plan, order: Sequence[Step], donated: Iterable[int]
) -> dict[int, int]:
    """For results (by number) the donated argument whose memory they may take.

    A result may take the memory of an argument that is dead when the result is written,
    or that the writing kernel reads element by element at the same places: the update
    of a parameter happens in place.
    """
    writers: dict[Buffer, list[Step]] = {}
    readers: dict[Buffer, list[Step]] = {}
    for step in order:
        for place in step.writes:
            writers.setdefault(place.buffer, []).append(step)
        for place in step.reads:
            readers.setdefault(place.buffer, []).append(step)
    # By size: only arguments as large as a result are of any use to it.
    free: dict[int, dict[Buffer, int]] = {}
    for i in donated:
        argument = plan.inputs[i]
        free.setdefault(argument.nbytes, {})[argument] = i
    shares: dict[int, int] = {}
    for number, result in enumerate(plan.outputs):
        found = writers.get(result, [])
        if len(found) != 1 or found[0].position != result.first or not result.nbytes:
            continue
        (step,) = found
        read = {p.buffer for p in step.reads}
        fitting = free.get(result.nbytes, {})
        # What the writer itself reads first: that is the old value, and in the cache.
        first = sorted(read & fitting.keys(), key=fitting.__getitem__)
        for argument in chain(first, fitting):
            if _may_take(result, argument, step, readers.get(argument, [])):
                shares[number] = fitting.pop(argument)
                break
    return shares


def _may_take(
    result: Buffer, argument: Buffer, step: Step, readers: Sequence[Step]
) -> bool:
    if argument.last < step.position:
        return True
    if argument.last > step.position:
        return False
    if any(r.position == step.position and r is not step for r in readers):
        return False
    if isinstance(step, CopyStep):
        return step.reads[0] == Place(argument)
    if isinstance(step, NestStep):
        return _same_places(step.launch, step.places, result, argument)
    if isinstance(step, ProductStep) and step.product.epilogue is not None:
        # The product itself is written before the epilogue reads its operands.
        raw = {p.buffer for p in (step.a, step.b, step.c)}
        if result in raw or argument in raw:
            return False
        return _same_places(step.product.epilogue, step.places, result, argument)
    return False


def _same_places(
    launch: Launch, places: Sequence[Place | None], result: Buffer, argument: Buffer
) -> bool:
    stores = [k for k, p in enumerate(places) if p is not None and p.buffer is result]
    loads = [k for k, p in enumerate(places) if p is not None and p.buffer is argument]
    return len(stores) == 1 and bool(loads) and overwrites(launch, stores[0], loads)

"""Which bytes of their places steps read and write."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from treadle import dtypes
from treadle.fuse.check import Loops, places
from treadle.fuse.lowering.launches import Launch
from treadle.fuse.lowering.spaces import loops_of, sides_of
from treadle.plan.steps import (
    CallsStep,
    CopyStep,
    HostStep,
    NestStep,
    OrderStep,
    Place,
    ProductStep,
    Step,
)


def touched(step: Step, place: Place) -> np.ndarray | None:
    """The bytes from the beginning of the buffer that a step which runs no others reads
    or writes at a place; None if its data say which."""
    found = [
        None if there is None else _bytes(there + place.offset, itemsize)
        for p, there, itemsize in _operands(step)
        if p == place
    ]
    if any(one is None for one in found):
        return None
    return np.concatenate(found)  # type: ignore[arg-type]


def _operands(step: Step) -> Iterator[tuple[Place, np.ndarray | None, int]]:
    """A step's places; where elements begin beyond these, and their size in bytes."""
    if isinstance(step, NestStep):
        yield from _of_nest(step.launch, step.places)
    elif isinstance(step, ProductStep):
        product = step.product
        for place, loops, dtype in zip(
            (step.a, step.b, step.c),
            sides_of(product),
            product.contraction.dtypes,
            strict=True,
        ):
            yield place, _starts(loops, dtype.itemsize), dtype.itemsize
        if product.epilogue is not None:
            yield from _of_nest(product.epilogue, step.places)
    else:
        sizes = _sizes(step)
        for place, nbytes in zip((*step.reads, *step.writes), sizes, strict=True):
            yield place, np.zeros(1, int), nbytes


def _of_nest(
    launch: Launch, where: Sequence[Place | None]
) -> Iterator[tuple[Place, np.ndarray | None, int]]:
    for b, o, place in zip(launch.bindings, launch.nest.operands, where, strict=True):
        if place is not None:
            size = o.dtype.itemsize
            loops = loops_of(launch, b, o)
            yield place, None if o.gathers else _starts(loops, size), size


def _starts(loops: Loops, itemsize: int) -> np.ndarray:
    return places(0, loops) * itemsize


def _bytes(starts: np.ndarray, itemsize: int) -> np.ndarray:
    return np.add.outer(starts, np.arange(itemsize)).ravel()


def _sizes(step: Step) -> list[int]:
    """The bytes of what a step reads, then of what it writes."""
    if isinstance(step, CopyStep):
        return [step.nbytes] * (len(step.reads) + len(step.writes))
    if isinstance(step, OrderStep):
        place = dtypes.of_index(step.length).itemsize
        keys, places = step.length * step.itemsize, step.count * place
        return [step.rows * keys, step.rows * places]
    assert isinstance(step, HostStep | CallsStep)
    return [t.nbytes for types in step.call.types for t in types]

"""Runs a Plan step by step, by what each step means.

It reads kernels, places and the order of steps, and nothing that a device chose:
schedules, tasks, scratch and the arguments of matrix kernels are not looked at. So it
runs the Plan of any target, and says whether that is right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

import numpy as np

from treadle.backends.reference import nests, products
from treadle.backends.reference.memory import Memory, apart, declared
from treadle.fuse.nests import Launch
from treadle.plan import steps as kinds
from treadle.plan.steps import Plan, Step
from treadle.run.eager import run as run_op

_BYTE, _BOOL, _PLACE = np.dtype(np.uint8), np.dtype(np.bool_), np.dtype(np.int32)


def run(plan: Plan, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The bytes of a program's results. Results share the memory of donated arguments
    as the plan says; the arrays given stay as they are.

    Raises:
      InternalError: if a step uses what it does not declare, or memory outside of its
        places, or writes over what is still read.
    """
    memory = Memory(plan, inputs)
    with np.errstate(all="ignore"):
        _run(plan.steps, memory)
    return memory.outputs


def _run(steps: Sequence[Step], memory: Memory) -> None:
    """Runs steps in order; those at one position are independent."""
    done = None
    for _, group in groupby(steps, attrgetter("position")):
        together = list(group)
        memory.begin(together)
        for step in together:
            # A device may need several launches for one product.
            product = getattr(step, "product", None)
            if product is None or product is not done:
                _MEANINGS[type(step)](step, memory)
            done = product


def _nest(step: kinds.NestStep, memory: Memory) -> None:
    _launch(step, step.launch, memory)


def _launch(step: Any, launch: Launch, memory: Memory) -> None:
    for place, binding in zip(step.places, launch.bindings, strict=True):
        declared(step, place, writes=binding.store)
    nests.run(launch, [p and memory.at(p) for p in step.places])


def _product(step: kinds.ProductStep, memory: Memory) -> None:
    places = (step.a, step.b, step.c)
    for place in places:
        declared(step, place, writes=place is step.c)
    products.run(step.product, *map(memory.at, places))
    if step.product.epilogue is not None:
        _launch(step, step.product.epilogue, memory)


def _copy(step: kinds.CopyStep, memory: Memory) -> None:
    places = map(memory.at, (*step.writes, *step.reads))
    to, *source = (p.view(_BYTE, (step.nbytes,)) for p in places)
    if not source:
        to[...] = 0
    elif source[0].ctypes.data != to.ctypes.data:
        apart(to, *source)
        to[...] = source[0]


def _order(step: kinds.OrderStep, memory: Memory) -> None:
    unsigned = np.dtype(f"u{step.itemsize}")
    keys = memory.at(step.reads[0]).view(unsigned, (step.rows, step.length))
    places = memory.at(step.writes[0]).view(_PLACE, (step.rows, step.count))
    apart(places, keys)
    places[...] = np.argsort(keys, axis=-1, kind="stable")[:, : step.count]


def _host(step: kinds.HostStep, memory: Memory) -> None:
    (eq,) = step.equations
    places, types = [*step.reads, *step.writes], [*step.types[0], *step.types[1]]
    pairs = zip(map(memory.at, places), types, strict=True)
    views = [place.view(t.dtype, t.shape) for place, t in pairs]
    operands, results = views[: len(step.reads)], views[len(step.reads) :]
    for target, found in zip(results, run_op(eq.op, operands, eq.params), strict=True):
        apart(target, *operands)
        np.copyto(target, found, casting="unsafe")


def _loop(step: kinds.Loop, memory: Memory) -> None:
    memory.slots.update(step.slots)
    for i in range(step.count):
        memory.indices[step] = i
        _run(step.body, memory)
        _swap(step, memory)


def _while(step: kinds.While, memory: Memory) -> None:
    memory.slots.update(step.slots)
    _run(step.test, memory)
    while memory.at(step.flag).view(_BOOL, ()):
        _run(step.body, memory)
        _swap(step, memory)
        _run(step.test, memory)


def _swap(step: kinds.Loop, memory: Memory) -> None:
    for a, b in step.swaps:
        memory.slots[a], memory.slots[b] = memory.slots[b], memory.slots[a]


def _branch(step: kinds.Branch, memory: Memory) -> None:
    declared(step, step.index)
    index = int(memory.at(step.index).view(step.dtype, ()))
    # Indices below 0 take the first branch, those beyond the end the last.
    _run(step.branches[min(max(index, 0), len(step.branches) - 1)], memory)


_MEANINGS: dict[type[Step], Callable[[Any, Memory], None]] = {
    kinds.NestStep: _nest,
    kinds.ProductStep: _product,
    kinds.CopyStep: _copy,
    kinds.OrderStep: _order,
    kinds.HostStep: _host,
    kinds.Loop: _loop,
    kinds.While: _while,
    kinds.Branch: _branch,
}

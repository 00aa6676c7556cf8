"""Runs a Plan step by step, by what each step means.

It reads kernels, places and the order of steps, and nothing that a device chose:
schedules, tasks, scratch and the arguments of matrix kernels are not looked at. So it
runs the Plan of any target, and says whether that is right.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import count, groupby
from operator import attrgetter
from threading import get_ident
from types import MappingProxyType
from typing import Any

import numpy as np

from treadle.backends.capable import lowering_of
from treadle.backends.memory import room, size_class
from treadle.backends.reference import nests, products
from treadle.backends.reference.memory import Memory, apart, declared
from treadle.fuse.lowering.launches import Launch
from treadle.ir.filled import filled_with, sizes_in
from treadle.ir.graph import Equation
from treadle.plan import steps as kinds
from treadle.plan.steps import Plan, Step
from treadle.plan.target import Target
from treadle.run.eager import meaning as run_op
from treadle.trace.lowering import Lowering, Multiplied

_BYTE, _BOOL, _PLACE = np.dtype(np.uint8), np.dtype(np.bool_), np.dtype(np.int32)


def run(
    plan: Plan, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> None:
    """Runs a program on the bytes of its arguments; writes those of its results, which
    may share the memory of donated arguments as the plan says. Raises InternalError if
    a step uses what it does not declare, leaves its places, or overwrites operands."""
    with np.errstate(all="ignore"):
        _run(plan.steps, Memory(plan, inputs, outputs))


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


def _host(step: kinds.HostStep | kinds.CallsStep, memory: Memory) -> None:
    call = step.call
    places, types = [*step.reads, *step.writes], [*call.types[0], *call.types[1]]
    pairs = zip(map(memory.at, places), types, strict=True)
    views = [place.view(t.dtype, t.shape) for place, t in pairs]
    operands, results = views[: len(step.reads)], views[len(step.reads) :]
    made = run_op(call.op, operands, call.params)
    for target, found in zip(results, made, strict=True):
        apart(target, *operands)
        np.copyto(target, found, casting="unsafe")


def _loop(step: kinds.Loop, memory: Memory) -> None:
    slots = memory.slots
    slots.update(step.slots)
    for i in count() if isinstance(step, kinds.While) else range(step.count):
        if isinstance(step, kinds.While):
            _run(step.test, memory)
            if not memory.at(step.flag).view(_BOOL, ()):
                return
        memory.indices[step] = i
        _run(step.body, memory)
        for a, b in step.swaps:
            slots[a], slots[b] = slots[b], slots[a]


def _branch(step: kinds.Branch, memory: Memory) -> None:
    declared(step, step.index)
    index = int(memory.at(step.index).view(step.dtype, ()))
    # Indices below 0 take the first branch, those beyond the end the last.
    _run(step.branches[min(max(index, 0), len(step.branches) - 1)], memory)


_MEANINGS: dict[type[Step], Callable[[Any, Memory], None]] = {
    kinds.NestStep: lambda step, memory: _launch(step, step.launch, memory),
    **{kinds.ProductStep: _product, kinds.CopyStep: _copy, kinds.OrderStep: _order},
    **{kinds.HostStep: _host, kinds.CallsStep: _host, kinds.Branch: _branch},
    **{kinds.Loop: _loop, kinds.While: _loop},
}


class ReferenceTarget(Target):
    """NumPy as a device (see `treadle.plan.target`): there is nothing to choose."""

    name = "reference"
    identity = name
    widens_halves = True
    multiplied = Multiplied()
    integers: Mapping[np.dtype, int] = MappingProxyType({})

    def lowering(self, eq: Equation) -> Lowering:
        return lowering_of(eq, lambda name, dtype: True)

    def link(self, plan: Plan) -> Linked:
        return Linked(plan)

    size_class = staticmethod(size_class)
    room = staticmethod(room)


class Linked:
    """A plan that is run step by step, on the memory to which slots point."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.program, self.sizes = plan, self, sizes_in(plan)
        self.constants = [c.ctypes.data for c in plan.constants]
        self.failures: dict[int, BaseException] = {}
        self.slot_count = 1 + len(plan.inputs) + len(plan.outputs) + len(self.constants)

    def bind(self, values: Sequence[int], constants: Any) -> Linked:
        known = [constants.get(i, c) for i, c in enumerate(self.plan.constants)]
        plan = filled_with(self.plan, self.sizes, values)
        return Linked(replace(plan, constants=known))

    def run(self, slots: int) -> int:
        words = (ctypes.c_int64 * self.slot_count).from_address(slots)
        count, buffers = len(self.plan.inputs), [*self.plan.inputs, *self.plan.outputs]
        arrays = [
            np.ctypeslib.as_array((ctypes.c_uint8 * b.nbytes).from_address(word))
            for word, b in zip(words[1:], buffers, strict=False)
        ]
        try:
            run(self.plan, arrays[:count], arrays[count:])
        except BaseException as error:
            self.failures[get_ident()] = error
            return 1
        return 0

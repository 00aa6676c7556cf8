"""Steps and plans of them, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.fuse.lowering.launches import Binding, Launch, ProductKernel
from treadle.ir.graph import Var
from treadle.kernels.contract import Contraction, Strides
from treadle.kernels.nest import CONTIGUOUS, Instr, Nest, Operand
from treadle.plan.steps import (
    Buffer,
    CopyStep,
    NestStep,
    Outline,
    Place,
    Plan,
    ProductStep,
    Step,
    traffic,
)

F = np.dtype(np.float32)
_ARRAY = Operand(F, CONTIGUOUS)
ROWS, ROW = 4, 8
"""Of an array of 128 bytes."""


def at(offset: int, nbytes: int = 128) -> Place:
    """A buffer of its own in the arena."""
    return Place(Buffer(nbytes, "arena", offset=offset, first=0, last=9))


def given(index: int = 0, home: str = "input", nbytes: int = 128) -> Place:
    return Place(Buffer(nbytes, home, index))


def launch(*operands: tuple[bool, int, int], kind: Operand = _ARRAY) -> Launch:
    """A nest over rows that adds what it loads: for each operand whether it is stored,
    its first element, and the step from row to row."""
    body: list[Instr] = []
    total = 0
    for k, (store, _, _) in enumerate(operands):
        if not store:
            body.append(Instr("load", (), F, k))
            if len(body) > 1:
                body.append(Instr("add", (total, len(body) - 1), F))
            total = len(body) - 1
    for k, (store, _, _) in enumerate(operands):
        if store:
            body.append(Instr("store", (total,), F, k))
    nest = Nest(1, 0, "inner", (kind,) * len(operands), tuple(body))
    bound = [
        Binding(Var(ArrayType((ROWS, ROW), F)), offset, (step,), store)
        for store, offset, step in operands
    ]
    return Launch(nest, (ROWS,), (), ROW, tuple(bound))


def bind(made: Launch, wholes: Sequence[Place]) -> list[Place | None]:
    """Where operands begin in the arrays that they are of."""
    bound = zip(made.bindings, made.nest.operands, wholes, strict=True)
    return [place.shifted(b.offset * o.dtype.itemsize) for b, o, place in bound]


def work(made: Launch, *wholes: Place, **options: Any) -> NestStep:
    places = bind(made, wholes)
    reads, writes = traffic(made, places)
    return NestStep(("nest",), reads, writes, launch=made, places=places, **options)


def nest(reads: Sequence[Place], writes: Sequence[Place], **options: Any) -> NestStep:
    """Adds arrays, element by element."""
    made = launch(*[(False, 0, ROW)] * len(reads), *[(True, 0, ROW)] * len(writes))
    return work(made, *reads, *writes, **options)


def copy(source: Place | None, target: Place, nbytes: int = 128) -> CopyStep:
    reads = [] if source is None else [source]
    return CopyStep(("copy",), reads, [target], nbytes=nbytes)


def product(
    a: Place,
    b: Place,
    c: Place,
    epilogue: Launch | None = None,
    *behind: Place,
    **o: Any,
) -> ProductStep:
    """Of matrices of 4 x 8 and 8 x 8; an epilogue reads and writes what is behind, the
    product first."""
    what = Contraction(
        F, 4, 8, 8, Strides(0, 0, 8, 1), Strides(0, 0, 8, 1), Strides(0, 0, 8, 1)
    )
    var = Var(ArrayType((ROWS, ROW), F))
    made = var if epilogue is None else epilogue.bindings[0].atom
    assert isinstance(made, Var)
    kernel = ProductKernel(what, (var, 0), (var, 0), made, epilogue)
    words = SimpleNamespace(own_bytes=o.pop("own_bytes", 0), tasks=o.pop("tasks", 2))
    reads, writes = [a, b], [c]
    places: list[Place | None] = []
    if epilogue is not None:
        places = bind(epilogue, behind)
        more_reads, more_writes = traffic(epilogue, places)
        reads += [p for p in more_reads if p.buffer is not c.buffer]
        writes += more_writes
    return ProductStep(
        ("product",), reads, writes, product=kernel, a=a, b=b, c=c, words=words,
        places=places, **o,
    )  # fmt: skip


def plan(
    *steps: Step,
    inputs: Sequence[Place] = (),
    outputs: Sequence[Place] = (),
    together: bool = False,
    **options: Any,
) -> Plan:
    """Steps one after another, or all at once; of inner steps too."""
    numbered(steps, 0, together)
    found = Plan(Outline("", (), (), 0, 0), [*steps], [], [], [], 0, arena=1 << 12)
    found.inputs = [p.buffer for p in inputs]
    found.outputs = [p.buffer for p in outputs]
    for name, value in options.items():
        setattr(found, name, value)
    return found


def numbered(steps: Sequence[Step], first: int = 0, together: bool = False) -> int:
    """Gives steps their positions; the next one."""
    for step in steps:
        step.position = first
        first += not together
        for name in ("test", "body"):
            first = numbered(getattr(step, name, []), first)
        for branch in getattr(step, "branches", []):
            first = numbered(branch, first)
    return first

"""How much kernels, steps and programs have to do: numbers of what really runs.

A program's FLOPs here are those of its kernels, after fusion: what a kernel computes
again instead of loading it counts again, what was merged or simplified away does not.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from treadle import dtypes
from treadle.fuse.lowering.launches import Launch
from treadle.ir import scalar
from treadle.ir.scalar import SCALARS
from treadle.kernels.contract import Contraction, Strides
from treadle.kernels.lower import schedule
from treadle.kernels.nest import BROADCAST, STRIDED, Instr, Nest
from treadle.plan.steps import (
    Branch,
    CallsStep,
    CopyStep,
    HostStep,
    Loop,
    NestStep,
    OrderStep,
    ProductStep,
    Step,
    While,
)
from treadle.trace.routine import Attention


class Cost(NamedTuple):
    """What a program, or a part of it, has to do.

    flops: additions, subtractions, multiplications, divisions, square roots, and which
      of two numbers is larger, of floats; `multiply_add` is two.
    transcendentals: exponentials, logarithms, sines, powers, and their kin.
    read, written: bytes that kernels read and write, each element of an operand once
      for each kernel, whether or not a cache holds it.
    """

    flops: int = 0
    transcendentals: int = 0
    read: int = 0
    written: int = 0

    @property
    def bytes(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    def plus(self, other: Cost) -> Cost:
        return Cost(*[a + b for a, b in zip(self, other, strict=True)])

    def times(self, count: int) -> Cost:
        return Cost(*[a * count for a in self])

    def most(self, other: Cost) -> Cost:
        """The larger of each number."""
        return Cost(*map(max, self, other))


NOTHING = Cost()


def points(launch: Launch) -> int:
    """How often the innermost statement runs."""
    return math.prod(launch.outer) * math.prod(launch.mid) * launch.inner


def launch_cost(launch: Launch, cached: Container[int] = ()) -> Cost:
    """What a nest does.

    cached: operands that don't count as read and written.
    """
    flops = transcendentals = 0
    for level, many_flops, many_transcendentals in _per_level(launch.nest):
        times = _times(launch, level)
        flops += times * many_flops
        transcendentals += times * many_transcendentals
    read = written = 0
    for k, binding in enumerate(launch.bindings):
        if binding.atom is None or k in cached:
            continue
        itemsize = launch.nest.operands[k].dtype.itemsize
        nbytes = min(_elements(launch, k), binding.atom.type.size) * itemsize
        written += nbytes * binding.store
        read += nbytes * (not binding.store or k in _combined(launch.nest))
    return Cost(flops, transcendentals, read, written)


_Level = tuple[bool, bool]
"""Whether an instruction runs for each element of mid, and of inner."""


@lru_cache(maxsize=4096)
def _per_level(nest: Nest) -> Sequence[tuple[_Level, int, int]]:
    """The FLOPs and the transcendental functions of all instructions that run equally
    often."""
    found: dict[_Level, list[int]] = {}
    for i, level in _runs(nest):
        counts = found.setdefault(level, [0, 0])
        counts[0] += _flops(nest.body[i], nest)
        counts[1] += nest.body[i].name in scalar.TRANSCENDENTAL
    return [(level, n, m) for level, (n, m) in found.items() if n or m]


def _runs(nest: Nest) -> Iterator[tuple[int, _Level]]:
    """Every instruction as often as sweeps have it, and for which elements it runs."""
    plan = schedule(nest)
    row = nest.axis == "inner"
    for held in plan.held:
        yield from ((i, (False, not row and plan.varying[i])) for i in held)
    for sweep in plan.sweeps:
        for i in (*sweep.body, *sweep.reductions):
            along = row or any([plan.varying[a] for a in nest.body[i].args])
            yield i, (not row, along or plan.varying[i])


def _flops(instr: Instr, nest: Nest) -> int:
    if not dtypes.is_float(instr.dtype):
        return 0
    if instr.name == scalar.INTEGER_POW:
        return _multiplications(int(instr.attr))
    return scalar.FLOPS.get(instr.name, 0)


def _multiplications(exponent: int) -> int:
    """Those of a power by repeated squaring, and the division if it is negative."""
    n = abs(exponent)
    return max(n.bit_length() + n.bit_count() - 2, 0) + (exponent < 0)


def _times(launch: Launch, level: _Level) -> int:
    mid, inner = level
    count = math.prod(launch.outer)
    return (
        count * (math.prod(launch.mid) if mid else 1) * (launch.inner if inner else 1)
    )


def _elements(launch: Launch, k: int) -> int:
    """How many elements of an operand a nest visits."""
    nest, strides = launch.nest, launch.bindings[k].strides
    operand = nest.operands[k]
    if operand.gathers:
        return points(launch)
    steps = strides[: nest.outer + nest.mid]
    loops = (*launch.outer, *launch.mid)
    count = math.prod([n for n, step in zip(loops, steps, strict=True) if step])
    along = operand.inner != BROADCAST
    if operand.inner == STRIDED:
        along = bool(strides[nest.outer + nest.mid])
    return count * (launch.inner if along else 1)


@lru_cache(maxsize=4096)
def _combined(nest: Nest) -> frozenset[int]:
    """The operands into which results are added (and the like)."""
    return frozenset([i.attr for i in nest.body if i.name.startswith("store_")])


def _product_cost(step: ProductStep) -> Cost:
    """What a product does, with its epilogue."""
    product, what = step.product, step.product.contraction
    a, b = (atom.type.size for atom, _ in (product.a, product.b))
    c = product.c.type.size
    if isinstance(what, Contraction):
        a = min(a, _operand(what, what.a, what.m, what.k))
        b = min(b, _operand(what, what.b, what.k, what.n))
        c = what.b0 * what.b1 * what.m * what.n
    itemsize = what.dtype.itemsize
    flops = what.flops if dtypes.is_float(what.dtype) else 0
    cost = Cost(flops, 0, (a + b) * itemsize, c * itemsize)
    if product.epilogue is None:
        return cost
    # It reads the product's blocks, and may write over them, while they are in cache.
    cached = [k for k, p in enumerate(step.places) if p and p.buffer is step.c.buffer]
    return cost.plus(launch_cost(product.epilogue, cached))


def _operand(what: Contraction, strides: Strides, rows: int, columns: int) -> int:
    """The elements of a matrix operand: those that it repeats count once."""
    sizes = (what.b0, what.b1, rows, columns)
    steps = (strides.b0, strides.b1, strides.row, strides.column)
    return math.prod([n for n, step in zip(sizes, steps, strict=True) if step])


def _nbytes(types: Iterable[Any]) -> int:
    return sum([t.nbytes for t in types])


def step_cost(step: Step) -> Cost:
    """What a step does once, without what loops and branches run."""
    if isinstance(step, NestStep):
        return launch_cost(step.launch)
    if isinstance(step, ProductStep):
        return _product_cost(step)
    if isinstance(step, CopyStep):
        return Cost(read=step.nbytes * len(step.reads), written=step.nbytes)
    if isinstance(step, OrderStep):
        read = step.rows * step.length * step.itemsize
        return Cost(read=read, written=step.rows * step.count * 4)
    if isinstance(step, HostStep | CallsStep):
        operands, results = step.call.types
        moved = Cost(read=_nbytes(operands), written=_nbytes(results))
        script = getattr(step.call, "script", None)
        if isinstance(script, Attention):
            return moved.plus(Cost(script.flops, script.pairs))
        return moved
    return NOTHING


class Counted(NamedTuple):
    """A step of a program, or several that one kernel takes.

    step: the first of them. times: how often it runs; of `while` loops, one iteration
      counts, of branches, each. cost: of all these times.
    """

    step: Step
    times: int
    cost: Cost


def count_steps(steps: Sequence[Step], times: int = 1) -> list[Counted]:
    """All kernels that steps run, loops and branches opened, with what each does."""
    found: list[Counted] = []
    for step in launched(steps):
        if isinstance(step, While):
            found += count_steps(step.test, times)
        if isinstance(step, Loop):
            often = times if isinstance(step, While) else times * step.count
            found += count_steps(step.body, often)
        elif isinstance(step, Branch):
            for branch in step.branches:
                found += count_steps(branch, times)
        else:
            found.append(Counted(step, times, step_cost(step).times(times)))
    return found


def launched(steps: Sequence[Step]) -> Iterator[Step]:
    """The steps, but of those that do one product together only the first."""
    done = None
    for step in steps:
        product = step.product if isinstance(step, ProductStep) else None
        if product is None or product is not done:
            yield step
        done = product


def total_cost(steps: Sequence[Step]) -> Cost:
    """What steps do together: one iteration of each `while` loop, and of the branches
    of a choice the most that one of them does."""
    total = NOTHING
    for step in launched(steps):
        if isinstance(step, While):
            total = total.plus(total_cost(step.test)).plus(total_cost(step.body))
        elif isinstance(step, Loop):
            total = total.plus(total_cost(step.body).times(step.count))
        elif isinstance(step, Branch):
            most = NOTHING
            for branch in step.branches:
                most = most.most(total_cost(branch))
            total = total.plus(most)
        else:
            total = total.plus(step_cost(step))
    return total


def line_shares(step: Step) -> dict[int, float]:
    """How a step's work is shared among the places that it comes from (numbers of the
    plan's origins), estimated: by what its operations cost for each element."""
    pairs = list(zip(step.names, step.origins, strict=False))
    if not pairs:
        return dict.fromkeys(step.origins, 1 / max(len(step.origins), 1))
    weights: dict[int, float] = {}
    for name, origin in pairs:
        weight: float = SCALARS[name].cost if name in SCALARS else 1
        if isinstance(step, ProductStep) and name not in SCALARS:
            weight = _per_element(step)
        weights[origin] = weights.get(origin, 0) + weight
    total = sum(weights.values())
    return {origin: weight / total for origin, weight in weights.items()}


def _per_element(step: ProductStep) -> float:
    """What the product itself costs for each element of its result."""
    return step.product.contraction.flops / max(step.product.c.type.size, 1)

"""What a compiled program has to do, in numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from treadle.ir.origin import NOWHERE, Origin
from treadle.plan.cost import Cost, count_steps, line_shares, total_cost
from treadle.plan.steps import (
    CallsStep,
    HostStep,
    Plan,
    Step,
    While,
    walk,
)
from treadle.run.explain import describe
from treadle.run.text import comment, number_text, size_text
from treadle.trace.routine import Attention

_MOST_ROWS = 20


class KernelCost(NamedTuple):
    """A kernel of a program.

    name: what kind it is; does: its operations. times: how often it runs.
    cost: of all these times. origin: the user's line with most of its work.
    """

    name: str
    does: str
    times: int
    cost: Cost
    origin: Origin


@dataclass(frozen=True)
class CostAnalysis:
    """What a program has to do, counted in the kernels that run: what fusion computes
    again counts again, what was simplified away does not.

    flops: additions, subtractions, multiplications, divisions, square roots, and which
      of two numbers is larger, of floats. transcendentals: exponentials, logarithms,
      sines, powers, and their kin.
    bytes_read, bytes_written: each element of a kernel's operands once, whether or not
      a cache holds it.
    kernels: the same for each. notes: what the numbers leave out.
    """

    flops: int
    transcendentals: int
    bytes_read: int
    bytes_written: int
    kernels: Sequence[KernelCost] = field(repr=False)
    notes: Sequence[str] = ()

    def __str__(self) -> str:
        lines = [
            f"{number_text(self.flops)} FLOP, {number_text(self.transcendentals)} "
            f"transcendental functions, {size_text(self.bytes_read)} read, "
            f"{size_text(self.bytes_written)} written"
        ]
        order = sorted(self.kernels, key=lambda k: -(k.cost.flops + k.cost.bytes))
        for k in order[:_MOST_ROWS]:
            lines.append(
                f"{number_text(k.cost.flops):>10} FLOP {size_text(k.cost.bytes):>9}  "
                f"{k.times:>5} x {k.name}: {k.does}{comment(k.origin)}"
            )
        lines += [f"{len(order) - _MOST_ROWS} more"] * (len(order) > _MOST_ROWS)
        return "\n".join([*lines, *self.notes])


def cost_of(plan: Plan) -> CostAnalysis:
    """What a plan's steps have to do."""
    total = total_cost(plan.steps)
    rows = []
    for step, times, cost in count_steps(plan.steps):
        kind, does, _ = describe(step)
        rows.append(KernelCost(kind, does, times, cost, main_origin(step, plan)))
    return CostAnalysis(*total, kernels=tuple(rows), notes=tuple(_notes(plan)))


def main_origin(step: Step, plan: Plan) -> Origin:
    """The user's line with most of a step's work."""
    shares = line_shares(step)
    if not shares:
        return NOWHERE
    return plan.origins[max(shares, key=lambda n: shares[n])]


def _is_attention(step: Step) -> bool:
    return isinstance(step, CallsStep) and isinstance(step.call.script, Attention)


def _notes(plan: Plan) -> list[str]:
    steps = [s for _, s in walk(plan.steps)]
    notes = []
    for kind, what in (
        (While, "while loops count as one iteration each"),
        (HostStep, "what runs on the host (`explain` lists it) counts as bytes alone"),
        (CallsStep, "calls of libraries count as bytes alone"),
    ):
        count = sum(isinstance(s, kind) and not _is_attention(s) for s in steps)
        notes += [f"{count} x {what}"] * (count > 0)
    return notes

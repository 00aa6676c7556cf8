"""Plans that fit into a limit of memory, for more arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from treadle.dims import hint
from treadle.ir.graph import Graph
from treadle.plan.again import compute_again
from treadle.plan.budget import Budget
from treadle.plan.steps import Plan
from treadle.run.text import size_text
from treadle.run.usage import live_text, memory_of

if TYPE_CHECKING:
    from treadle.compile import Stages

_AIMS = 1.0, 0.85, 0.7, 0.55
"""How far below the limit to aim: what is alive is no more than an estimate, and which
values are computed again changes with the aim."""
_MOST_PLANS = 4
"""How often a program is planned for each of them."""
_NAMED = 8
_TOO_LARGE = """\
the temporaries of {} do not fit into memory_limit={}: they take {}, with what was \
found to be computed again (before: {}), which is {} too much. The largest at that \
moment:
{}
Allow more, make the batch smaller, or put `td.remat` into the body of a loop: what a \
loop stacks for the backward pass is not computed again by itself."""


def fitting(first: Stages, limit: int, plan_of: Callable[[Graph], Stages]) -> Stages:
    """The stages of a graph that computes values again until its arena fits.

    What is alive is estimated before it is planned. What a plan takes beyond that is
    looked for in that plan, in the next round.

    Raises:
      MemoryError: if no way is found; there may be one.
    """
    best = first
    for aim in _AIMS:
        found = first
        for _ in range(_MOST_PLANS):
            arena = _arena(found)
            if arena <= limit:
                return found
            budget = Budget(found.graph, found.groups, found.kernels)
            budget.choose(int(budget.alive.max() * aim * limit / arena))
            if not budget.cut:
                break
            found = plan_of(compute_again(found.graph, budget))
            best = min(best, found, key=_arena)
    if _arena(best) > limit:
        raise MemoryError(_too_large(best.plan, limit, _arena(first)))
    return best


def _arena(made: Stages) -> int:
    return hint(made.plan.arena)


def _too_large(plan: Plan, limit: int, before: int) -> str:
    """Why a plan does not fit, with what is alive where it takes most."""
    arena = hint(plan.arena)
    rows = [row for row in memory_of(plan).live if row.kind == "temporary"][:_NAMED]
    shown = "\n".join([f"  {row}" for row in map(live_text, rows)])
    return _TOO_LARGE.format(
        plan.outline.name,
        size_text(limit),
        size_text(arena),
        size_text(before),
        size_text(arena - limit),
        shown,
    )

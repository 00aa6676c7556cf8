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

_MOST_PLANS = 12
"""How often a program is planned to fit into a limit of memory."""
_MOST_WORSE = 3
_STEP = 0.9
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
      MemoryError: if it fits with nothing that can be computed again.
    """
    best, aim, worse = first, 1.0, 0
    for _ in range(_MOST_PLANS):
        arena = hint(best.plan.arena)
        if arena <= limit or worse == _MOST_WORSE:
            break
        budget = Budget(best.graph, best.groups, best.kernels)
        budget.choose(int(budget.alive.max() * aim * limit / arena))
        if not budget.cut:
            break
        found = plan_of(compute_again(best.graph, budget))
        if hint(found.plan.arena) < arena:
            best, aim, worse = found, 1.0, 0
        else:
            aim, worse = aim * _STEP, worse + 1
    if hint(best.plan.arena) > limit:
        raise MemoryError(_too_large(best.plan, limit, hint(first.plan.arena)))
    return best


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

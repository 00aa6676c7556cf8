"""Plans that fit into a limit of memory, for more arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from treadle.dims import hint
from treadle.ir.graph import Graph
from treadle.plan.again import compute_again
from treadle.plan.budget import ORDERS, Budget, Repeat
from treadle.plan.cost import total_cost
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
_HOPELESS = 1.5
"""How far above the limit an order ends, that others aren't tried."""
_FUNCTION = 10
"""What an exponential is worth, as multiplications."""
_NAMED = 8
_TOO_LARGE = """\
the temporaries of {} do not fit into memory_limit={}: they take {}, with what was \
found to be computed again (before: {}), which is {} too much. The largest at that \
moment:
{}
Allow more, make the batch smaller, or put `td.remat` into the body of a loop: what a \
loop stacks for the backward pass is not computed again by itself."""


def fitting(free: Stages, limit: int, plan_of: Callable[[Graph], Stages]) -> Stages:
    """The stages of a graph, given as they are without a limit, that computes values
    again until its arena fits.

    What is alive is estimated before it is planned. What a plan takes beyond that is
    looked for in that plan, in the next round. Of the plans that fit, for each order of
    giving values up, that is taken which has the least to do.

    plan_of: plans with as little memory as can be.

    Raises:
      MemoryError: if no way is found; there may be one.
    """
    if _arena(free) <= limit:
        return free
    first = plan_of(free.graph)
    if _arena(first) <= limit:
        return first
    found: list[Stages] = []
    for order in ORDERS:
        found.append(_within(first, limit, plan_of, order))
        if _arena(found[-1]) > _HOPELESS * limit:
            break
    fitting = [one for one in found if _arena(one) <= limit]
    if not fitting:
        least = min(found, key=_arena)
        raise MemoryError(_too_large(least.plan, limit, _arena(first)))
    return min(fitting, key=_work)


def _within(
    first: Stages,
    limit: int,
    plan_of: Callable[[Graph], Stages],
    order: Callable[[Repeat], Any],
) -> Stages:
    """The first stages found that fit, of values given up in an order; or those that
    come closest."""
    best = first
    for aim in _AIMS:
        found = first
        for _ in range(_MOST_PLANS):
            arena = _arena(found)
            budget = Budget(found.graph, found.groups, found.kernels)
            budget.choose(int(budget.alive.max() * aim * limit / arena), order)
            if not budget.cut:
                break
            found = plan_of(compute_again(found.graph, budget))
            best = min(best, found, key=_arena)
            if _arena(found) <= limit:
                return found
    return best


def _work(made: Stages) -> int:
    """What a plan has to do, as multiplications."""
    cost = total_cost(made.plan.steps)
    return hint(cost.flops + _FUNCTION * cost.transcendentals + cost.bytes)


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

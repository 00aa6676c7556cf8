"""Plans on the disk: what one process has planned, another one links."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from hashlib import blake2b
from typing import Any

import numpy as np

from treadle.backends.objects import default_store
from treadle.backends.sources import source_digest
from treadle.dims import Scope
from treadle.ir.digest import digest
from treadle.ir.graph import Graph
from treadle.ir.origin import numbered, recalled
from treadle.plan.saved import Unsaved, dumps, loads
from treadle.plan.steps import Plan
from treadle.plan.target import Target

_COMPILER = (
    *("backends", "control", "dims", "fuse", "ir", "kernels", "ops", "passes"),
    *("plan", "run", "trace"),
)

WORTH_STORING = 50
"""Equations from which on a plan is looked for: less is planned sooner."""


def key_of(
    graph: Graph,
    target: Target,
    donated: tuple[int, ...],
    scope: Scope | None = None,
    memory_limit: int | None = None,
) -> str:
    """Names all that a plan depends on: the graph, the scope of its sizes if some are
    open, the device, what memory it may take, and the source of the compiler. Empty if
    it can't be stored, or need not be."""
    if _count(graph) < WORTH_STORING:
        return ""
    computed = digest(graph, scope)
    if computed is None:
        return ""
    asked = repr((donated, memory_limit))
    parts = (computed, target.identity, asked, _source_digest())
    return "plan" + blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()


def load(key: str, graph: Graph, scope: Scope | None = None) -> Plan | None:
    """The plan that was stored under a key for an equal graph, if there is one."""
    content = default_store().get(key)
    try:
        if content is None:
            return None
        plan = loads(content, scope)
    except Unsaved:
        return None
    # Equal programs need not stand at the same lines.
    plan.origins = recalled(plan.origins, graph)  # type: ignore[arg-type]
    return plan


def store(
    key: str,
    plan: Plan,
    graph: Graph,
    scope: Scope | None = None,
    since: tuple[int, int] = (0, 0),
) -> None:
    """Keeps a plan for other processes, as long as there is space (see `dumps`)."""
    origins: Any = numbered(plan.origins, graph)
    try:
        content = dumps(replace(plan, origins=origins), scope, since)
        default_store().put(key, content)
    except Unsaved:
        return


def _count(graph: Graph) -> int:
    """The equations of a graph, nested ones as well where these decide."""
    own = len(graph.equations)
    if own >= WORTH_STORING:
        return own
    return own + sum([_count(g) for eq in graph.equations for g in eq.graphs])


@cache
def _source_digest() -> str:
    """Of all that plans depend on: an edited compiler must not meet its old plans, nor
    another NumPy, which computes constants."""
    # Not what stands before a Graph: users' interfaces.
    found = blake2b(source_digest("", *_COMPILER), digest_size=20)
    found.update(np.__version__.encode())
    return found.hexdigest()

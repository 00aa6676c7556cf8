"""Schedules a nest: which instruction runs at which level and in which sweep.

A *sweep* is one pass of the reduction loop (``inner`` of a row nest, ``mid`` of a
column nest). Instructions that depend on the swept index run inside sweeps; the others
are *held*: they run before the sweep that first needs them. A reduction ends its sweep,
and its result is held. What a later sweep needs of an earlier one is computed again if
that is cheap, else kept in scratch rows (row nests only)::

    softmax       sweep 0: load x, reduce_max
                  held 1:  (the maximum)
                  sweep 1: load x, subtract, exp -> scratch, reduce_sum
                  held 2:  1 / sum
                  sweep 2: scratch * (1 / sum), store

Nothing here knows a device.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from functools import cache, lru_cache

import numpy as np

from treadle.ir import scalar
from treadle.ir.scalar import SCALARS
from treadle.kernels.nest import BROADCAST, Instr, Nest, is_half, rounds_half
from treadle.records import record

__all__ = [
    "Level",
    "NestOrder",
    "Sweep",
    "cost",
    "cost_of",
    "in_place",
    "is_reduction",
    "is_running",
    "is_store",
    "schedule",
    "show",
]

_KEEP_ABOVE = 6
"""Cost (in simple instructions) above which a value is kept, not computed again."""

_RUNNING_COSTS = {"sum": 10, "prod": 10, "max": 20, "min": 20, "linear": 20}
_RUNNING_LOGSUMEXP = 200


class Level(IntEnum):
    """What a value depends on: an operation's level is the highest of its arguments."""

    CONST = 0
    ROW = 1
    ELEM = 2
    MID = 3


@record(frozen=True)
class Sweep:
    """One pass of the reduction loop; all fields list instructions in body order.

    body: what to compute, stores included. reductions: what to accumulate.
    saves and restores: values written to and read from scratch.
    """

    body: tuple[int, ...]
    reductions: tuple[int, ...]
    saves: tuple[int, ...]
    restores: tuple[int, ...]


@record(frozen=True)
class NestOrder:
    """The order of work of a nest.

    held[s] runs before sweep s, and held[-1] after the last one. `kept` gives the slot
    of every value that lives in scratch. `varying[i]` is False if instruction i has the
    same value for all of inner.
    """

    nest: Nest
    levels: tuple[Level, ...]
    varying: tuple[bool, ...]
    held: tuple[tuple[int, ...], ...]
    sweeps: tuple[Sweep, ...]
    kept: tuple[int, ...]


def is_reduction(instr: Instr) -> bool:
    return instr.name.startswith("reduce_")


def is_running(instr: Instr) -> bool:
    return instr.name.startswith("running_")


def is_store(instr: Instr) -> bool:
    return instr.name.startswith("store")


def cost(instr: Instr) -> int:
    """Roughly how many simple vector instructions an instruction takes."""
    return cost_of(instr.name, instr.dtype)


@cache
@cache
def cost_of(name: str, dtype: np.dtype) -> int:
    """The same, of an instruction of that name for that dtype."""
    instr = Instr(name, (), dtype)
    if name in ("store", scalar.CONVERT) and is_half(dtype):
        return 6
    return _own_cost(instr) + 6 * rounds_half(instr)


def _own_cost(instr: Instr) -> int:
    if is_running(instr):
        combine = instr.name.removeprefix("running_")
        return _RUNNING_COSTS.get(combine, _RUNNING_LOGSUMEXP)
    return SCALARS[instr.name].cost if instr.name in SCALARS else 1


@lru_cache(maxsize=4096)
def schedule(nest: Nest) -> NestOrder:
    """Assigns levels and sweeps. The nest must pass `check`."""
    levels, varying = _levels(nest)
    swept_level = Level.ELEM if nest.axis == "inner" else Level.MID
    swept = [
        is_reduction(instr) or level >= swept_level
        for instr, level in zip(nest.body, levels, strict=True)
    ]
    stages = _stages(nest)
    count = 1 + max((s for s, e in zip(stages, swept, strict=True) if e), default=-1)
    demands, kept = _demands(nest, stages, swept, levels)
    held: list[list[int]] = [[] for _ in range(count + 1)]
    for i in range(len(nest.body)):
        if not swept[i]:
            held[stages[i]].append(i)
    sweeps = [_sweep(nest, s, swept, demands, kept) for s in range(count)]
    return NestOrder(
        nest,
        tuple(levels),
        tuple(varying),
        tuple(tuple(h) for h in held),
        tuple(sweeps),
        tuple(kept),
    )


def _levels(nest: Nest) -> tuple[list[Level], list[bool]]:
    levels: list[Level] = []
    varying: list[bool] = []
    for instr in nest.body:
        level = max((levels[a] for a in instr.args), default=Level.CONST)
        varies = any(varying[a] for a in instr.args)
        if is_reduction(instr):
            level = Level.ROW if nest.axis == "inner" else Level.ELEM
            varies = varies and nest.axis == "mid"
        elif instr.name == "load" or is_store(instr):
            operand = nest.operands[instr.attr]
            along = operand.inner != BROADCAST
            floor = Level.ELEM if along else Level.ROW
            level = max(level, Level.MID if operand.mid else floor)
            varies = varies or along
        elif is_running(instr):
            level = Level.ELEM if nest.axis == "inner" else Level.MID
            varies = True
        levels.append(level)
        varying.append(varies)
    return levels, varying


def _stages(nest: Nest) -> list[int]:
    """The sweep each instruction belongs to, or comes right before if it is held."""
    stages: list[int] = []
    for instr in nest.body:
        ready = (stages[a] + is_reduction(nest.body[a]) for a in instr.args)
        stages.append(max(ready, default=0))
    return stages


def _demands(
    nest: Nest, stages: list[int], swept: list[bool], levels: list[Level]
) -> tuple[list[set[int]], list[int]]:
    """In which sweeps each swept value is computed, and which values are kept."""
    costs = _recompute_costs(nest, swept, levels)
    demands: list[set[int]] = [set() for _ in nest.body]
    kept: list[int] = []
    for i in reversed(range(len(nest.body))):
        instr = nest.body[i]
        if is_store(instr) or is_reduction(instr):
            demands[i] = {stages[i]}
        needed = demands[i]
        expensive = costs[i] > _KEEP_ABOVE and nest.axis == "inner"
        if swept[i] and len(needed) > 1 and expensive:
            kept.append(i)
            needed = {min(needed)}
        for a in instr.args:
            if swept[a] and not is_reduction(nest.body[a]):
                demands[a] |= needed
    return demands, kept[::-1]


def _recompute_costs(nest: Nest, swept: list[bool], levels: list[Level]) -> list[int]:
    costs: list[int] = []
    for i, instr in enumerate(nest.body):
        if not swept[i] or is_reduction(instr):
            costs.append(0)
            continue
        own = cost(instr)
        if instr.name == "load" and any(levels[a] >= Level.ELEM for a in instr.args):
            own = 12
        costs.append(own + sum(costs[a] for a in instr.args))
    return costs


def _sweep(
    nest: Nest,
    s: int,
    swept: list[bool],
    demands: list[set[int]],
    kept: list[int],
) -> Sweep:
    body, reductions, restores = [], [], []
    for i, instr in enumerate(nest.body):
        if not swept[i] or s not in demands[i]:
            continue
        if is_reduction(instr):
            reductions.append(i)
        elif i in kept and min(demands[i]) < s:
            restores.append(i)
        else:
            body.append(i)
    saves = [i for i in kept if min(demands[i]) == s]
    return Sweep(tuple(body), tuple(reductions), tuple(saves), tuple(restores))


@lru_cache(maxsize=4096)
def in_place(nest: Nest, store: int, load: int) -> bool:
    """Whether operand `store` may share its buffer with operand `load`.

    True if no load comes after a store to the same place, given that both operands
    have the same strides in the argument block (the caller compares those).
    """
    source, target = nest.operands[load], nest.operands[store]
    if (source.inner, source.mid) != (target.inner, target.mid):
        return False
    if source.gathers or target.gathers:
        return False
    loaded, stored = _last_and_first(nest)
    if load not in loaded or store not in stored:
        return True
    return loaded[load] < stored[store]


@lru_cache(maxsize=4096)
def _last_and_first(nest: Nest) -> tuple[dict[int, int], dict[int, int]]:
    """When each operand is loaded for the last time, and stored for the first."""
    loaded: dict[int, int] = {}
    stored: dict[int, int] = {}
    for at, i in enumerate(_execution_order(schedule(nest))):
        instr = nest.body[i]
        if instr.name == "load":
            loaded[instr.attr] = at
        elif is_store(instr):
            stored.setdefault(instr.attr, at)
    return loaded, stored


def _execution_order(plan: NestOrder) -> Iterable[int]:
    for s, sweep in enumerate(plan.sweeps):
        yield from plan.held[s]
        yield from sweep.body
    yield from plan.held[-1]


def show(nest: Nest) -> str:
    """The nest as pseudo-code, in the order in which it runs.

    >>> import numpy as np
    >>> from treadle.kernels.nest import CONTIGUOUS, Operand
    >>> f = np.dtype(np.float32)
    >>> row = Operand(f, CONTIGUOUS)
    >>> load, store = Instr("load", (), f, 0), Instr("store", (1,), f, 1)
    >>> body = (load, Instr("exp", (0,), f), store)
    >>> print(show(Nest(1, 0, "inner", (row, row), body)))
    for rows (1 outer dimension):
      for inner:
        v0: float32 = load #0 [contiguous]
        v1: float32 = exp v0
        store v1 -> #1 [contiguous]
    """
    plan = schedule(nest)
    dims = f"{nest.outer} outer dimension{'s' if nest.outer != 1 else ''}"
    order = ", in order" if nest.serial else ""
    lines = [f"for rows ({dims}{order}):"]
    pad, loop = "  ", "for inner:"
    if nest.axis == "mid":
        lines.append("  for blocks of inner:")
        pad, loop = "    ", f"for mid ({nest.mid}):"
    for s, sweep in enumerate(plan.sweeps):
        lines += [pad + _show_instr(nest, i) for i in plan.held[s]]
        lines.append(pad + loop)
        lines += [f"{pad}  v{i} = scratch" for i in sweep.restores]
        lines += [f"{pad}  {_show_instr(nest, i)}" for i in sweep.body]
        lines += [f"{pad}  scratch = v{i}" for i in sweep.saves]
        lines += [f"{pad}  {_show_instr(nest, i)}" for i in sweep.reductions]
    lines += [pad + _show_instr(nest, i) for i in plan.held[-1]]
    return "\n".join(lines)


def _show_instr(nest: Nest, i: int) -> str:
    instr = nest.body[i]
    values = [f"v{a}" for a in instr.args]
    if is_store(instr):
        how = instr.name.replace("_", " ")
        place = _show_operand(nest, instr.attr, values[1:])
        return f"{how} {values[0]} -> {place}"
    if instr.name == "load":
        what = f"load {_show_operand(nest, instr.attr, values)}"
    elif instr.name == "const":
        what = str(instr.attr)
    else:
        extra = [] if instr.attr is None else [f"<{instr.attr}>"]
        what = " ".join([instr.name, *extra, *values])
    return f"v{i}: {instr.dtype} = {what}"


def _show_operand(nest: Nest, k: int, indices: list[str]) -> str:
    operand = nest.operands[k]
    kind = "" if operand.kind == "array" else f"{operand.kind} "
    notes = [("broadcast", "contiguous", "paired", "strided")[operand.inner]]
    notes += ["mid"] if operand.mid else []
    notes += [f"at {', '.join(indices)}"] if indices else []
    return f"{kind}#{k} [{', '.join(notes)}]"

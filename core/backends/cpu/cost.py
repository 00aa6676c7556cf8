"""How long a nest takes, roughly, and into how many tasks it is worth cutting."""

from __future__ import annotations

from typing import Any

from treadle.dims import hint, is_dim
from treadle.fuse.nests import Launch
from treadle.kernels.lower import cost
from treadle.plan.cost import points, traffic_bytes

_NS_PER_INSTRUCTION = 0.035
"""Per element: an instruction on a vector of 16 takes about half a nanosecond."""
_NS_PER_BYTE = 0.06
_WORTH_SPLITTING_NS = 12_000
_TASK_NS = 150_000


def nanoseconds(launch: Launch) -> float:
    """The estimated time on one thread."""
    work = sum(max(1, cost(i)) for i in launch.nest.body)
    arithmetic = points(launch) * work * _NS_PER_INSTRUCTION
    return max(arithmetic, traffic_bytes(launch) * _NS_PER_BYTE)


def nest_tasks(launch: Launch, threads: int) -> int:
    """The number of tasks: one if small, else a few per thread."""
    time = nanoseconds(launch)
    if threads == 1 or time < _WORTH_SPLITTING_NS:
        return 1
    per_thread = min(4, max(1, int(time / threads / _TASK_NS)))
    return threads * per_thread


def sized_nest_tasks(launch: Launch, threads: int) -> Any:
    """`nest_tasks`, to be found for each size if sizes are not fixed."""
    count = points(launch)
    pairs = zip(launch.bindings, launch.nest.operands, strict=True)
    operands = [
        (b.atom.type.size, op.dtype.itemsize) for b, op in pairs if b.atom is not None
    ]
    if not any(map(is_dim, (count, *[n for n, _ in operands]))):
        return nest_tasks(launch, threads)
    work = sum(max(1, cost(i)) for i in launch.nest.body) * _NS_PER_INSTRUCTION
    widths = tuple(w for _, w in operands)

    def tasks(count: int, *sizes: int) -> int:
        total = 0
        for n, w in zip(sizes, widths, strict=True):
            total += (n if n < count else count) * w
        time = max(count * work, total * _NS_PER_BYTE)
        if threads == 1 or time < _WORTH_SPLITTING_NS:
            return 1
        return threads * min(4, max(1, int(time / threads / _TASK_NS)))

    args = (count, *[n for n, _ in operands])
    scope = next(a for a in args if is_dim(a)).scope
    name = ("tasks", work, widths, threads)
    return scope.derived(name, tasks, args, tasks(*map(hint, args)), 1)

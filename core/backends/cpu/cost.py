"""How long a nest takes, roughly, and into how many tasks it is worth cutting."""

from __future__ import annotations

from treadle.fuse.lowering.launches import Launch
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

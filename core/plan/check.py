"""The checkers of Schedules and Plans."""

from __future__ import annotations

from treadle.dims import hint
from treadle.errors import InternalError
from treadle.fuse.lowering.launches import Calls, Launch, ProductKernel, Sort
from treadle.plan.schedule import Schedule, programs


def check_schedule(schedule: Schedule) -> None:
    """Verifies that each kernel has a way to run that fits its type.

    Raises:
      InternalError: at the first violation.
    """
    kernels, how, strands, _ = schedule
    if len(how) != len(kernels.entries):
        raise InternalError(f"{len(how)} ways to run {len(kernels.entries)} kernels")
    for n, (entry, chosen) in enumerate(zip(kernels.entries, how, strict=True)):
        where = f"entry {n}, {type(entry.kernel).__name__} ({', '.join(entry.names)}),"
        if isinstance(entry.kernel, Launch | Sort | Calls):
            _check_work([chosen], where, strands)
        elif isinstance(entry.kernel, ProductKernel):
            _check_work(chosen, where, strands)
        else:
            found = [inner.kernels for inner in chosen]
            wanted = list(programs(entry.kernel))
            same = [a is b for a, b in zip(found, wanted, strict=False)]
            if len(found) != len(wanted) or not all(same):
                raise InternalError(f"{where} has the schedules of other programs")
            for inner in chosen:
                check_schedule(inner)


def _check_work(launches: list, where: str, strands: int) -> None:
    if not launches:
        raise InternalError(f"{where} is never launched")
    for work in launches:
        memory = hint(work.scratch_bytes), hint(work.own_bytes)
        if hint(work.tasks) < 1 or min(memory) < 0:
            raise InternalError(
                f"{where} runs as {work.tasks} tasks on {work.scratch_bytes} bytes"
            )
        if strands > 1 and work.tasks != strands:
            raise InternalError(
                f"{where} runs as {work.tasks} tasks in a loop of {strands} strands"
            )

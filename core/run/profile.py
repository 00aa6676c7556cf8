"""Profiles: how long each kernel of a program takes, and each line of the user's."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from treadle.ir.origin import NOWHERE, Origin
from treadle.plan.cost import NOTHING, Cost, line_shares, step_cost
from treadle.plan.record import Event, Record, StepTime
from treadle.plan.steps import Plan, ProductStep, Step, walk
from treadle.run.array import Array
from treadle.run.execute import Executable
from treadle.run.explain import describe
from treadle.run.picture import picture
from treadle.run.table import table
from treadle.run.timeline import save


class Speed(NamedTuple):
    """FLOPs and bytes in a second."""

    flops: float
    bytes: float


class Row(NamedTuple):
    """How long a kernel, or a line, took in one run.

    name, does: what it is. share: of all kernels' time. calls: how often it ran.
    cost: of all calls. origin: the user's line; of a kernel, that with most of it.
    """

    name: str
    does: str
    seconds: float
    share: float
    calls: int
    cost: Cost
    origin: Origin = NOWHERE

    @property
    def speed(self) -> Speed:
        """What was achieved."""
        seconds = self.seconds or float("inf")
        return Speed(self.cost.flops / seconds, self.cost.bytes / seconds)


@dataclass(frozen=True)
class Profile:
    """How long the parts of a program take (`td.profile`). To be printed, drawn
    (`plot`), or saved for a viewer of traces (`save`).

    result: what the function returned.
    runs: how many were measured; all times are those of the quickest.
    profiled: seconds that it took. seconds: of the quickest run that is not profiled;
      None if the program has effects, so that it ran once only.
    kernels, lines: the longest first. Lines in one kernel share its time by what their
      operations cost, which is an estimate; all else is measured.
    control: seconds spent on loops and branches themselves.
    machine: the speed of this machine, to compare with: FLOPs of a product of float32
      matrices, bytes of a copy of a long array.
    events: when each kernel ran. lost: how many more there were.
    """

    name: str
    result: Any
    runs: int
    seconds: float | None
    profiled: float
    kernels: Sequence[Row]
    lines: Sequence[Row]
    control: float
    machine: Speed
    steps: dict[int, Row] = field(repr=False)
    events: Sequence[Event] = field(repr=False)
    lost: int = 0

    @property
    def overhead(self) -> float | None:
        """How much longer a run takes because it is profiled: 0.01 is one per cent."""
        return None if self.seconds is None else self.profiled / self.seconds - 1

    def __str__(self) -> str:
        return table(self)

    def plot(self, path: Any = None) -> Any:
        """A picture: kernels and lines by time, and when each thread did what. Gives
        Matplotlib's figure; writes it if there is a path."""
        return picture(self, path)

    def save(self, path: Any) -> None:
        """Writes the run as a trace file (JSON), which Perfetto
        (https://ui.perfetto.dev) and Chrome show."""
        save(self, path)


def profile(
    program: Executable,
    arrays: Sequence[Any],
    unflatten: Callable[[Sequence[Any]], Any],
    machine: Callable[[], Speed],
    runs: int,
) -> Profile | None:
    """Measures a program; None if its device can't.

    Args:
      arrays: its inputs, of which none is given up.
      unflatten: makes the function's result of the program's.
      runs: how many to measure; 0 if it must not run more than once.
    """
    records: list[Record] = []
    plain: list[float] = []
    for _ in range(bool(runs)):
        _plain(program, arrays)
    outs: Any = None
    for _ in range(max(runs, 1)):
        if runs:
            plain.append(_plain(program, arrays))
        found = _profiled(program, arrays)
        if found is None:
            return None
        outs, record = found
        records.append(record)
    best = min(records, key=lambda record: record.seconds)
    steps = _rows(program.plan, best)
    return Profile(
        program.name,
        unflatten(outs),
        len(records),
        min(plain, default=None),
        best.seconds,
        sorted(steps.values(), key=_time, reverse=True),
        sorted(_lines(program.plan, steps), key=_time, reverse=True),
        best.control,
        machine(),
        steps,
        _whole(best.events, program.plan),
        best.lost,
    )


def _plain(program: Executable, arrays: Sequence[Any]) -> float:
    """The seconds that a run takes."""
    seconds = 0.0

    def run(slots: int) -> int:
        nonlocal seconds
        began = time.perf_counter()
        status = program.linked.program.run(slots)
        seconds = time.perf_counter() - began
        return status

    program(_kept(program, arrays), run)
    return seconds


def _profiled(program: Executable, arrays: Sequence[Any]) -> Any:
    """The results, and the record of the run; None if the device has none."""
    record: Record | None = None

    def run(slots: int) -> int:
        nonlocal record
        record = program.target.profile(program.linked, slots)
        return 0 if record is None else record.status

    outs = program(_kept(program, arrays), run)
    return None if record is None else (outs, record)


def _kept(program: Executable, arrays: Sequence[Any]) -> list[Any]:
    """The inputs, with copies of those that the program takes over."""
    given = list(arrays)
    for i in program.donated:
        given[i] = Array(np.array(given[i]))
    return given


def _time(row: Row) -> float:
    return row.seconds


def _firsts(plan: Plan) -> dict[int, int]:
    """For steps that do a product together the number of the first of them."""
    found: dict[int, int] = {}
    done: tuple[Any, int] = None, -1
    for n, (_, step) in enumerate(walk(plan.steps)):
        product = step.product if isinstance(step, ProductStep) else None
        if product is None or product is not done[0]:
            done = product, n
        found[n] = done[1]
    return found


def _rows(plan: Plan, record: Record) -> dict[int, Row]:
    """Each kernel that ran, by the number of its step."""
    firsts = _firsts(plan)
    times: dict[int, StepTime] = {}
    for n, (seconds, calls) in record.times.items():
        old = times.get(firsts[n], StepTime())
        # All launches of one product are one call.
        times[firsts[n]] = StepTime(old.seconds + seconds, max(old.calls, calls))
    total = sum([t.seconds for t in times.values()]) or 1.0
    rows = {}
    for n, (_, step) in enumerate(walk(plan.steps)):
        if n not in times or not times[n].calls:
            continue
        seconds, calls = times[n]
        kind, does, _ = describe(step)
        shares, cost = line_shares(step), step_cost(step).times(calls)
        most = max(shares, key=shares.__getitem__, default=None)
        origin = NOWHERE if most is None else plan.origins[most]
        rows[n] = Row(kind, does, seconds, seconds / total, calls, cost, origin)
    return rows


def _lines(plan: Plan, rows: dict[int, Row]) -> list[Row]:
    """The kernels' time by the lines that they come from."""
    lines: dict[Origin, Row] = {}
    for n, (_, step) in enumerate(walk(plan.steps)):
        row = rows.get(n)
        for number, part in line_shares(step).items() if row else ():
            assert row is not None
            origin = plan.origins[number]
            old = lines.get(origin, Row("line", "", 0.0, 0.0, 0, NOTHING, origin))
            cost = Cost(*[round(x * part) for x in row.cost])
            lines[origin] = Row(
                "line",
                _joined(old.does, _names(step, number)),
                old.seconds + row.seconds * part,
                old.share + row.share * part,
                old.calls + row.calls,
                old.cost.plus(cost),
                origin,
            )
    return list(lines.values())


def _names(step: Step, number: int) -> list[str]:
    pairs = zip(step.names, step.origins, strict=False)
    return [name for name, origin in pairs if origin == number]


def _joined(text: str, names: Sequence[str]) -> str:
    known = text.split(", ") if text else []
    return ", ".join([*known, *dict.fromkeys(n for n in names if n not in known)])


def _whole(events: Sequence[Event], plan: Plan) -> list[Event]:
    """Events of products that take several steps, as those of the first."""
    firsts = _firsts(plan)
    return [e._replace(steps=tuple([firsts[n] for n in e.steps])) for e in events]

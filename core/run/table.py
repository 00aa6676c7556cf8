"""Profiles as tables."""

from __future__ import annotations

from collections.abc import Sequence
from io import StringIO
from typing import Any

from treadle.optional import needed_for
from treadle.run.text import line_text

_WIDTH = 120
_MOST_ROWS = 20


def table(profile: Any) -> str:
    """A profile as text: what the run took, then kernels and lines by time."""
    with needed_for("the table of a profile"):
        from rich.console import Console

    out = StringIO()
    console = Console(file=out, width=_WIDTH, color_system=None)
    for text in _head(profile):
        console.print(text, highlight=False, markup=False)
    console.print(_rows("kernel", profile.kernels, profile.machine))
    console.print(_rows("line", profile.lines, profile.machine))
    return "\n".join([line.rstrip() for line in out.getvalue().splitlines()])


def _head(profile: Any) -> list[str]:
    plain, machine = profile.seconds, profile.machine
    cost = (
        "it has effects, so it ran once, profiled"
        if plain is None
        else f"{time_text(plain)} a run without the profiler, which adds "
        f"{100 * profile.overhead:.1f} %"
    )
    run = f"{profile.name}: {time_text(profile.profiled)} a run"
    run += f", the quickest of {profile.runs}" * (profile.runs > 1)
    lines = [
        f"{run}; {cost}",
        f"loops and branches themselves: {time_text(profile.control)}",
        f"this machine: {machine.flops / 1e9:.1f} GFLOP/s in products of float32, "
        f"{machine.bytes / 1e9:.1f} GB/s in copies",
    ]
    lost = f"the trace file lacks the last {profile.lost} events"
    return lines + [lost] * bool(profile.lost)


def _rows(title: str, rows: Sequence[Any], machine: Any) -> Any:
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, title=None)
    for name in ("time", "share", "calls", "GFLOP/s", "of best", "GB/s", "of best"):
        made.add_column(name, justify="right", no_wrap=True)
    made.add_column(title, overflow="fold")
    if title == "kernel":
        made.add_column("mostly of", overflow="fold")
    for row in rows[:_MOST_ROWS]:
        speed = row.speed
        cells = [
            time_text(row.seconds),
            f"{100 * row.share:.1f} %",
            str(row.calls),
            f"{speed.flops / 1e9:.2f}",
            f"{100 * speed.flops / machine.flops:.0f} %",
            f"{speed.bytes / 1e9:.2f}",
            f"{100 * speed.bytes / machine.bytes:.0f} %",
        ]
        line = line_text(row.origin)
        if title == "kernel":
            cells += [f"{row.name}: {row.does}", line]
        else:
            cells += [f"{line}: {row.does}"]
        made.add_row(*map(Text, cells))
    if len(rows) > _MOST_ROWS:
        rest = rows[_MOST_ROWS:]
        seconds, share = sum(r.seconds for r in rest), sum(r.share for r in rest)
        cells = [time_text(seconds), f"{100 * share:.1f} %", *[""] * 5]
        made.add_row(*map(Text, [*cells, f"{len(rest)} more"]))
    return made


def time_text(seconds: float) -> str:
    """A time, with a unit: ``66.6 us``."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"

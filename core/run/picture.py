"""Profiles as pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.optional import needed_for
from treadle.run.table import time_text
from treadle.run.text import line_text

_MOST_BARS = 10
_MOST_LETTERS = 44


def picture(profile: Any, path: Any = None) -> Any:
    """A figure: kernels and lines by time, and when each thread did what."""
    with needed_for("the picture of a profile"):
        from matplotlib import colormaps
        from matplotlib.figure import Figure

    colours = colormaps["tab20"](range(20))
    colour_of = {
        id(row): colours[i % len(colours)] for i, row in enumerate(profile.kernels)
    }
    figure = Figure(figsize=(13, 8), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=(3, 2))
    kernels = figure.add_subplot(grid[0, 0])
    shown = profile.kernels[:_MOST_BARS]
    names = [f"{row.name}: {row.does}" for row in shown]
    _bars(kernels, "kernels", names, shown, [colour_of[id(row)] for row in shown])
    lines = profile.lines[:_MOST_BARS]
    labels = [f"{line_text(row.origin)}: {row.does}" for row in lines]
    grey = ["0.6"] * len(lines)
    _bars(figure.add_subplot(grid[0, 1]), "lines", labels, lines, grey)
    _timeline(figure.add_subplot(grid[1, :]), profile, colour_of)
    figure.suptitle(f"{profile.name}: {time_text(profile.profiled)} a run")
    if path is not None:
        figure.savefig(path, dpi=110)
    return figure


def _bars(
    axes: Any, title: str, names: Sequence[str], rows: Sequence[Any], colours: Any
) -> None:
    places = range(len(rows))
    axes.barh(places, [1e3 * row.seconds for row in rows], color=colours)
    for place, row in zip(places, rows, strict=True):
        text = f" {100 * row.share:.0f} %, {row.speed.flops / 1e9:.1f} GFLOP/s, "
        text += f"{row.speed.bytes / 1e9:.1f} GB/s"
        axes.text(1e3 * row.seconds, place, text, va="center", fontsize=7)
    axes.set_yticks(places, [_short(name) for name in names], fontsize=7)
    axes.invert_yaxis()
    # Room for what stands behind the longest bar.
    axes.set_xlim(0, 1.8e3 * max([row.seconds for row in rows], default=1e-3))
    axes.set_xlabel("ms a run")
    axes.set_title(f"{title} by time")
    axes.spines[["top", "right"]].set_visible(False)


def _short(text: str) -> str:
    return text if len(text) <= _MOST_LETTERS else text[: _MOST_LETTERS - 1] + "…"


def _timeline(axes: Any, profile: Any, colour_of: dict[int, Any]) -> None:
    threads = sorted({event.thread for event in profile.events} | {0})
    divided = {e.steps for e in profile.events if e.task >= 0}
    divided = {n for steps in divided for n in steps}
    for thread in threads:
        spans, colours = [], []
        for event in profile.events:
            # What several threads do is drawn where each does it.
            around = event.task < 0 and not divided.isdisjoint(event.steps)
            row = profile.steps.get(event.steps[0]) if event.steps else None
            if event.thread == thread and row is not None and not around:
                spans.append((1e3 * event.begin, 1e3 * event.seconds))
                colours.append(colour_of[id(row)])
        axes.broken_barh(spans, (thread - 0.4, 0.8), facecolors=colours)
    labels = [f"worker {n}" if n else "caller" for n in threads]
    axes.set_yticks(threads, labels)
    axes.invert_yaxis()
    axes.set_xlabel("ms since the run began")
    axes.set_title("what each thread did, in the colours of the kernels")
    axes.spines[["top", "right"]].set_visible(False)

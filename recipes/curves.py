"""The picture of a run's metrics."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from treadle.recipes.metrics import Row, series

_SIZE = (10.0, 4.0)
_TRAINING, _TEST = "#8aa4c8", "#c4451c"
_KNOWN = ("step", "seconds", "loss")
_SMOOTH = 40
"""How many averages along the curve the trend is drawn with."""


def draw(rows: list[Row], path: Path, title: str) -> None:
    """Draws the loss and the first other metric, in training and in tests, as a PNG."""
    # Not pyplot: it would look for a window system, and keep the figure.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _panel(left, rows, "loss")
    others = [n for n in rows[-1] if n not in _KNOWN and not n.startswith("test_")]
    _panel(right, rows, others[0] if others else "accuracy")
    if all(value > 0 for value in series(rows, "loss")[1]):
        left.set_yscale("log")
    figure.suptitle(title)
    _save(figure, path)


def draw_together(runs: Mapping[str, list[Row]], metric: str, path: Path) -> None:
    """Draws a metric of several runs, by their names, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for name, rows in runs.items():
        axes.plot(*series(rows, metric), linewidth=2, marker="o", label=name)
    axes.set_xlabel("step")
    axes.set_title(metric.replace("_", " "))
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    temporary = path.with_name(path.name + ".new")
    figure.savefig(temporary, dpi=120, format="png")
    os.replace(temporary, path)


def _panel(axes: Any, rows: list[Row], name: str) -> None:
    steps, values = series(rows, name)
    axes.plot(steps, values, color=_TRAINING, linewidth=0.6, alpha=0.6)
    axes.plot(*_trend(steps, values), color=_TRAINING, linewidth=2, label="training")
    steps, values = series(rows, f"test_{name}")
    axes.plot(steps, values, color=_TEST, linewidth=2, marker="o", label="test")
    axes.set_xlabel("step")
    axes.set_title(name)
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False)


def _trend(steps: list[int], values: list[float]) -> tuple[list[float], list[float]]:
    """Averages over equal parts of the curve."""
    size = max(1, len(steps) // _SMOOTH)
    parts = [slice(i, i + size) for i in range(0, len(steps), size)]
    return [_mean(steps[p]) for p in parts], [_mean(values[p]) for p in parts]


def _mean(values: list[Any]) -> float:
    return sum(values) / len(values)

"""The picture of a run's metrics."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from treadle.recipes.metrics import Row, series

_SIZE = (10.0, 4.0)
_TRAINING, _TEST = "#8aa4c8", "#c4451c"
_SMOOTH = 40
"""How many averages along the curve the trend is drawn with."""


def draw(rows: list[Row], path: Path, title: str) -> None:
    """Draws loss and accuracy, in training and in tests, as a PNG."""
    # Not pyplot: it would look for a window system, and keep the figure.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2)
    _panel(left, rows, "loss")
    _panel(right, rows, "accuracy")
    if all(value > 0 for value in series(rows, "loss")[1]):
        left.set_yscale("log")
    figure.suptitle(title)
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

"""What reports are made of: tables, texts and curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from treadle.recipes.metrics import Row, series

_KNOWN = ("step", "seconds")
_TEST = "test_"
_MOST_POINTS = 1500
"""More points than a screen has columns only make a page longer."""


@dataclass(frozen=True)
class Pairs:
    """Names and values, with a remark to some: these differ from what is usual."""

    title: str
    entries: Sequence[tuple[str, str, str]]


@dataclass(frozen=True)
class Table:
    """Rows below a head.

    numbers: the columns with numbers. code: those with names of programs.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    code: frozenset[int] = frozenset()
    note: str = ""


@dataclass(frozen=True)
class Text:
    """What a model wrote, or what the reader should know."""

    title: str
    text: str
    kind: Literal["", "alarm"] = ""


@dataclass(frozen=True)
class Picture:
    """A PNG."""

    title: str
    png: bytes


Part = Pairs | Table | Text | Picture


@dataclass(frozen=True)
class Curve:
    """Points of a chart, by rising x. dots: whether each is marked."""

    name: str
    x: Sequence[float]
    y: Sequence[float]
    dots: bool = False


@dataclass(frozen=True)
class Chart:
    """Curves over each other. log, log_x: whether the axes are logarithmic at first."""

    title: str
    curves: Sequence[Curve]
    x: str = "step"
    log: bool = False
    log_x: bool = False

    def content(self) -> dict[str, Any]:
        """What the page's script draws."""
        return {
            "title": self.title,
            "x": self.x,
            "log": self.log,
            "logX": self.log_x,
            "series": [
                {"name": c.name, "x": [*c.x], "y": [*c.y], "dots": c.dots}
                for c in self.curves
            ],
        }


@dataclass(frozen=True)
class Report:
    """A page.

    state: what the status is about: training, complete, stopped, failed, waiting.
    version: changes with what is said; None for a page that stays as it is.
    """

    title: str
    charts: Sequence[Chart] = ()
    parts: Sequence[Part] = field(default=())
    state: str = "complete"
    status: str = ""
    version: str | None = None


def charts(rows: Sequence[Row]) -> list[Chart]:
    """The metrics of a run: each in training and in tests, the loss first."""
    names = {n: None for row in rows for n in row if n not in _KNOWN}
    plain = dict.fromkeys(name.removeprefix(_TEST) for name in names)
    ordered = sorted(plain, key=lambda name: name != "loss")
    return [
        Chart(
            name.replace("_", " "),
            [
                curve("training", rows, name),
                curve("test", rows, _TEST + name, dots=True),
            ],
            log=name == "loss",
        )
        for name in ordered
    ]


def together(runs: Mapping[str, Sequence[Row]], names: Sequence[str]) -> list[Chart]:
    """Metrics of several runs, each over each other."""
    return [
        Chart(
            name.replace("_", " "),
            [
                curve(run, rows, name, dots=name.startswith(_TEST))
                for run, rows in runs.items()
            ],
            log=name.endswith("loss"),
        )
        for name in names
    ]


def curve(name: str, rows: Sequence[Row], metric: str, *, dots: bool = False) -> Curve:
    """A metric by step, of no more points than can be seen."""
    steps, values = series(rows, metric)
    return Curve(name, *_thinned(steps, values), dots)


def _thinned(
    steps: Sequence[int], values: Sequence[float]
) -> tuple[list[int], list[float]]:
    """The least and the greatest value of each of many parts: so no peak is lost."""
    size = -(-2 * len(steps) // _MOST_POINTS)
    if size <= 2:
        return [*steps], [*values]
    kept: list[int] = []
    for start in range(0, len(steps), size):
        part = range(start, min(start + size, len(steps)))
        kept += sorted(
            {min(part, key=values.__getitem__), max(part, key=values.__getitem__)}
        )
    if kept[-1] != len(steps) - 1:
        kept.append(len(steps) - 1)
    return [steps[n] for n in kept], [values[n] for n in kept]

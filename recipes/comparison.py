"""Several runs beside each other: in what they differ, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from treadle.recipes import metrics as metrics_file
from treadle.recipes import runs
from treadle.recipes.display import duration, packed
from treadle.recipes.report import learner_of, parts
from treadle.recipes.report.page import page
from treadle.recipes.runs import Run

_WATCHING = ("tensorboard", "profile")
"""Options that change nothing of a training."""
_GAP = 2
"""Between columns."""
_WIDE = 10
"""Numbers that differ by so many times are drawn on a logarithmic axis."""


@dataclass(frozen=True)
class Result:
    """What became of a run.

    metric: what tells how good it is; best: its best test, None if there was none.
    note: what else is to be said.
    """

    run: Run
    metric: str
    best: float | None
    rank: float
    cells: list[str]
    note: str = ""


def result(run: Run, note: str = "") -> Result:
    """What became of a run, from its metrics."""
    learner = learner_of(run)
    metric, mode = run.best if learner is None else learner.best
    rows = metrics_file.read(run.metrics)
    steps, values = metrics_file.series(rows, metric)
    best = (min if mode == "min" else max)(values) if values else None
    rank = float("inf") if best is None else best if mode == "min" else -best
    at = "" if best is None else str(steps[values.index(best)])
    loss = metrics_file.last(rows, "test_loss")
    cells = [
        "" if best is None else f"{best:.4f}",
        at,
        "" if loss is None else f"{loss:.4f}",
        str(rows[-1]["step"]) if rows else "0",
        duration(rows[-1]["seconds"] if rows else 0.0),
    ]
    return Result(run, metric, best, rank, cells, note)


@dataclass(frozen=True)
class Ranking:
    """Runs, the best first, as a table.

    options: those that differ.
    """

    results: Sequence[Result]
    options: Sequence[str]
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def ranking(results: Sequence[Result]) -> Ranking:
    """Runs beside each other: options that differ, and metrics."""
    ranked = sorted(results, key=lambda found: found.rank)
    options = differing([found.run for found in ranked])
    metrics = {found.metric for found in ranked}
    best = metrics.pop().replace("_", " ") if len(metrics) == 1 else "best test"
    words = [name.replace("_", " ") for name in options]
    head = ["run", *words, f"best {best}", "at step", "last test loss", "trained"]
    rows = []
    for name, found in zip(_names(ranked), ranked, strict=True):
        given = _settings(found.run)
        shown = [str(given.get(option, "")) for option in options]
        rows.append([name, *shown, *found.cells, found.note])
    return Ranking(ranked, options, [*head, "time", ""], rows)


def _names(results: Sequence[Result]) -> list[str]:
    """The folders of runs, as far as it takes to tell them apart."""
    beside = len({found.run.folder.parent for found in results}) == 1
    return [
        found.run.folder.name if beside else str(found.run.folder) for found in results
    ]


def show(found: Ranking, out: TextIO) -> None:
    """Prints a table of runs; where the terminal is too narrow for it, some lines for
    each run."""
    from rich.console import Console
    from rich.table import Table

    shown = [n for n, _ in enumerate(found.head) if any(row[n] for row in found.rows)]
    table = Table(box=None, header_style="dim", pad_edge=False)
    for n in shown:
        name = found.head[n]
        table.add_column(name, justify="right" if n and name else "left", no_wrap=True)
    for row in found.rows:
        table.add_row(*[row[n] for n in shown])
    columns = [[found.head[n], *(row[n] for row in found.rows)] for n in shown]
    needed = sum(max(map(len, column)) + _GAP for column in columns)
    console = Console(file=out, highlight=False)
    if not out.isatty():
        console.width = max(console.width, needed)
    if needed <= console.width:
        console.print(table)
        return
    for name, *cells in found.rows:
        told = zip(found.head[1:], cells, strict=True)
        entries = [f"{head} {cell}".strip() for head, cell in told if cell]
        console.print(name, markup=False, style="bold")
        console.print("  " + packed(entries, console.width - 2), markup=False)


def write(found: Ranking, title: str, path: Path) -> None:
    """Writes a page: the table, and curves over each other."""
    names = _names(found.results)
    rows = {
        name: metrics_file.read(result.run.metrics)
        for name, result in zip(names, found.results, strict=True)
    }
    metrics = {n: None for several in rows.values() for row in several for n in row}
    first = list(dict.fromkeys(result.metric for result in found.results))
    rest = [n for n in metrics if n not in (*first, "step", "seconds")]
    rest.sort(key=lambda name: not name.startswith("test_"))
    numbers = frozenset(range(1, len(found.head) - 1))
    table = parts.Table("runs", found.head, found.rows, numbers)
    charts = [*_by_option(found), *parts.together(rows, [*first, *rest])]
    report = parts.Report(title, charts, [table], "compared", f"{len(names)} runs")
    runs.replace_file(path, page(report))


def _by_option(found: Ranking) -> list[parts.Chart]:
    """The best tests by the value of each option that is a number, where all runs tell
    it of one metric."""
    tested = [r for r in found.results if r.best is not None]
    if len({result.metric for result in tested}) != 1:
        return []
    metric = tested[0].metric.replace("_", " ")
    given = [_settings(result.run) for result in tested]
    charts = []
    for option in found.options:
        values: list[Any] = [settings.get(option) for settings in given]
        if any(type(value) not in (int, float) for value in values):
            continue
        curves: dict[str, list[tuple[Any, Any]]] = {}
        for settings, value, result in zip(given, values, tested, strict=True):
            others = [
                f"{name.replace('_', ' ')} {settings.get(name)}"
                for name in found.options
                if name != option
            ]
            curves.setdefault(", ".join(others), []).append((value, result.best))
        if max(map(len, curves.values())) < 2:
            continue
        shown = [
            parts.Curve(name, [x for x, _ in points], [y for _, y in points], True)
            for name, points in ((n, sorted(p)) for n, p in curves.items())
        ]
        label = option.replace("_", " ")
        wide = min(values) > 0 and max(values) >= _WIDE * min(values)
        title = f"best {metric} by {label}"
        charts.append(parts.Chart(title, shown, label, log_x=wide))
    return charts


def _settings(run: Run) -> dict[str, Any]:
    return {"recipe": run.recipe.name, **asdict(run.config)}


def differing(runs: Sequence[Run]) -> list[str]:
    """The options of trainings that are not the same in all runs."""
    given = [_settings(run) for run in runs]
    names = {name: None for settings in given for name in settings}
    return [
        name
        for name in names
        if name not in _WATCHING
        and len({repr(settings.get(name)) for settings in given}) > 1
    ]

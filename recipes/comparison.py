"""Several runs beside each other: in what they differ, and what became of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from treadle.recipes import loop
from treadle.recipes import metrics as metrics_file
from treadle.recipes.display import duration
from treadle.recipes.runs import Run


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
    learner = loop.learner_of(run.recipe, run.config, run.facts)
    metric, mode = learner.best
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


def show(results: Sequence[Result], out: TextIO) -> None:
    """Prints a table of runs, the best first: options that differ, and metrics."""
    from rich.console import Console
    from rich.table import Table

    ranked = sorted(results, key=lambda found: found.rank)
    options = differing([found.run for found in ranked])
    metrics = {found.metric for found in ranked}
    best = metrics.pop().replace("_", " ") if len(metrics) == 1 else "best test"
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("run", no_wrap=True)
    for name in options:
        table.add_column(name.replace("_", " "), justify="right")
    for name in (f"best {best}", "at step", "last test loss", "trained", "time"):
        table.add_column(name, justify="right")
    beside = len({found.run.folder.parent for found in ranked}) == 1
    for found in ranked:
        given, folder = _settings(found.run), found.run.folder
        shown = [str(given.get(name, "")) for name in options]
        name = folder.name if beside else str(folder)
        table.add_row(name, *shown, *found.cells, found.note or None)
    Console(file=out, highlight=False).print(table)


def _settings(run: Run) -> dict[str, Any]:
    return {"recipe": run.recipe.name, **asdict(run.config)}


def differing(runs: Sequence[Run]) -> list[str]:
    """The options that are not the same in all runs."""
    given = [_settings(run) for run in runs]
    names = {name: None for settings in given for name in settings}
    return [
        name
        for name in names
        if len({repr(settings.get(name)) for settings in given}) > 1
    ]

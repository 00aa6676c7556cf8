"""What became of a run: tables for the terminal, a page for the browser."""

from __future__ import annotations

from dataclasses import replace
from typing import TextIO

from treadle import nn
from treadle.recipes import curves, loop
from treadle.recipes import metrics as metrics_file
from treadle.recipes.errors import UsageError
from treadle.recipes.report import examined, facts
from treadle.recipes.report.page import page
from treadle.recipes.report.parts import Pairs, Part, Report, charts
from treadle.recipes.report.server import serve as serve
from treadle.recipes.runs import Run, replace_file
from treadle.recipes.task import Learner


def learner_of(run: Run) -> Learner | None:
    """What a run trains; None if that is in a program of the user's."""
    try:
        return loop.learner_of(run.recipe, run.config, run.facts)
    except UsageError:
        return None


def draw_curves(run: Run) -> bool:
    """Draws the curves, if there is something to draw."""
    rows = metrics_file.read(run.metrics)
    if rows:
        curves.draw(rows, run.curves, facts.title(run))
    return bool(rows)


def write(run: Run, out: TextIO) -> None:
    """Prints the tables, draws the curves, and writes the page."""
    learner = learner_of(run)
    if learner is not None:
        count = nn.count(learner.model)
        run = replace(run, best=learner.best, parameters=count)
    manager = loop.manager_of(run, learner)
    rows = metrics_file.read(run.metrics)
    sections = facts.sections(run, manager, rows)
    _print(sections, out)
    notes = facts.notes(run)
    for note in notes:
        print(f"{note.title}:\n{note.text}\n", file=out)
    drawn = draw_curves(run)
    seen: list[Part] = []
    if learner is not None:
        seen = examined.parts(run, learner, manager)
    state, status = facts.state(run, manager, rows)
    parts = [*notes, *sections, *seen]
    report = Report(facts.title(run), charts(rows), parts, state, status)
    replace_file(run.page, page(report))
    if drawn:
        print(f"curves: {run.curves}", file=out)
    print(f"page:   {run.page}", file=out)


def _print(sections: list[Pairs], out: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(file=out, highlight=False)
    for section in sections:
        table = Table(
            title=section.title, title_justify="left", show_header=False, box=None
        )
        table.add_column(style="dim", min_width=16)
        table.add_column(overflow="fold")
        for name, value, remark in section.entries:
            table.add_row(name, f"{value} ({remark})" if remark else value)
        console.print(table)
        console.print()

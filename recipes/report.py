"""What became of a run: a table for the terminal, a page for the browser."""

from __future__ import annotations

import base64
import html
from dataclasses import fields
from typing import TextIO

from treadle import nn
from treadle.checkpoint import Manager
from treadle.recipes import curves
from treadle.recipes import metrics as metrics_file
from treadle.recipes.display import duration
from treadle.recipes.metrics import Row
from treadle.recipes.runs import Run, replace_file
from treadle.recipes.task import Learner

Section = tuple[str, list[tuple[str, str]]]
_FACT_LENGTH = 60


def sections(run: Run, learner: Learner, manager: Manager) -> list[Section]:
    """What a report says, under headings."""
    rows = metrics_file.read(run.metrics)
    return [
        ("run", _run(run, learner, rows, manager)),
        ("metrics", _metrics(rows, learner, manager)),
        ("options", _options(run)),
        ("data", [(k, _short(v)) for k, v in run.facts.items()]),
    ]


def _run(
    run: Run, learner: Learner, rows: list[Row], manager: Manager
) -> list[tuple[str, str]]:
    done = manager.latest_step() or 0
    state = "complete" if done >= run.config.steps else "not complete"
    seconds = rows[-1]["seconds"] if rows else 0.0
    return [
        ("recipe", run.recipe.name),
        ("folder", str(run.folder)),
        ("steps", f"{done} of {run.config.steps} ({state})"),
        ("training time", duration(seconds)),
        ("parameters", f"{nn.count(learner.model):,}"),
        ("checkpoints", ", ".join(map(str, manager.all_steps())) or "none"),
    ]


def _metrics(
    rows: list[Row], learner: Learner, manager: Manager
) -> list[tuple[str, str]]:
    names = [n for n in (rows[-1] if rows else {}) if n not in ("step", "seconds")]
    found = [
        (name.replace("_", " "), f"{metrics_file.last(rows, name):.4f}")
        for name in names
    ]
    step, (metric, _) = manager.best_step(), learner.best
    if step is not None:
        value = manager.metrics(step)[metric]
        label = f"best {metric.replace('_', ' ')}"
        found.append((label, f"{value:.4f} (checkpoint of step {step})"))
    return found


def _options(run: Run) -> list[tuple[str, str]]:
    shown = []
    for field in fields(run.config):
        value = getattr(run.config, field.name)
        usual = "" if value == field.default else f" (usually {field.default})"
        shown.append((field.name.replace("_", " "), f"{value}{usual}"))
    return shown


def _short(value: object) -> str:
    text = repr(value) if isinstance(value, str) and not value.isalpha() else str(value)
    return text if len(text) <= _FACT_LENGTH else text[: _FACT_LENGTH - 1] + "…"


def title(run: Run) -> str:
    """A run's name as headings show it."""
    name, recipe = run.folder.resolve().name, run.recipe.name
    return name if name.startswith(recipe) else f"{recipe} · {name}"


def draw_curves(run: Run) -> bool:
    """Draws the curves, if there is something to draw."""
    rows = metrics_file.read(run.metrics)
    if rows:
        curves.draw(rows, run.curves, title(run))
    return bool(rows)


def write(run: Run, learner: Learner, manager: Manager, out: TextIO) -> None:
    """Prints the tables, draws the curves, and writes the page."""
    found = sections(run, learner, manager)
    _print(found, out)
    drawn = draw_curves(run)
    replace_file(run.page, _page(run, found, drawn))
    if drawn:
        print(f"curves: {run.curves}", file=out)
    print(f"page:   {run.page}", file=out)


def _print(found: list[Section], out: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(file=out, highlight=False)
    for heading, entries in found:
        table = Table(title=heading, title_justify="left", show_header=False, box=None)
        table.add_column(style="dim", min_width=16)
        table.add_column(overflow="fold")
        for name, value in entries:
            table.add_row(name, value)
        console.print(table)
        console.print()


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: #222; }
img { max-width: 100%; }
section { display: inline-block; vertical-align: top; margin-right: 3rem; }
h2 { font-size: 1rem; margin: 1.5rem 0 0.3rem; }
th { text-align: left; font-weight: normal; color: #777; padding-right: 1.5rem; }
"""


def _page(run: Run, found: list[Section], drawn: bool) -> str:
    """A page that needs no other file."""
    parts = [f"<h1>{html.escape(title(run))}</h1>"]
    if drawn:
        picture = base64.b64encode(run.curves.read_bytes()).decode()
        parts.append(f'<img alt="curves" src="data:image/png;base64,{picture}">')
    for heading, entries in found:
        rows = "".join(
            f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>"
            for name, value in entries
        )
        parts.append(f"<section><h2>{heading}</h2><table>{rows}</table></section>")
    head = f"<meta charset='utf-8'><title>{html.escape(title(run))}</title>"
    return (
        f"<!doctype html><html><head>{head}<style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )

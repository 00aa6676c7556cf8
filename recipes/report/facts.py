"""What is known of a run without running anything of it."""

from __future__ import annotations

from dataclasses import fields

from treadle.checkpoint import Manager
from treadle.recipes import metrics as metrics_file
from treadle.recipes import profiles, runs
from treadle.recipes.display import duration
from treadle.recipes.metrics import Row
from treadle.recipes.report.parts import Pairs, Table, Text
from treadle.recipes.runs import Run

_FACT_LENGTH = 60


def sections(run: Run, manager: Manager, rows: list[Row]) -> list[Pairs]:
    """What the terminal is told, too."""
    return [
        Pairs("run", _run(run, rows, manager)),
        Pairs("metrics", _metrics(run, rows, manager)),
        Pairs("options", _options(run)),
        Pairs("data", [(k, _short(v), "") for k, v in run.facts.items()]),
    ]


def state(run: Run, manager: Manager, rows: list[Row]) -> tuple[str, str]:
    """What a run is doing, in a word and in a sentence."""
    saved, steps = manager.latest_step() or 0, run.config.steps
    reached = max(saved, rows[-1]["step"] if rows else 0)
    place = f"step {reached:,} of {steps:,}"
    if runs.is_claimed(run.folder):
        return "training", f"training: {place}"
    if notes(run):
        return "failed", f"the run has ended: it diverged after {place}"
    if saved >= steps:
        return "complete", f"the run has ended: {place}"
    return "stopped", f"the run has ended early: {place}"


def notes(run: Run) -> list[Text]:
    """What went wrong."""
    path = run.diverged / "why.txt"
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8").rstrip()
    return [Text("values that are not finite", text, "alarm")]


KERNELS = "kernels of a training step"


def kernels(found: profiles.Kernels) -> Table:
    """Where the time of a step goes."""
    numbers, code = frozenset(range(2, len(profiles.HEAD))), frozenset({0, 1})
    return Table(KERNELS, profiles.HEAD, found["rows"], numbers, code, found["about"])


def title(run: Run) -> str:
    """A run's name as headings show it."""
    name, recipe = run.folder.resolve().name, run.recipe.name
    return name if name.startswith(recipe) else f"{recipe} · {name}"


def _run(run: Run, rows: list[Row], manager: Manager) -> list[tuple[str, str, str]]:
    done = manager.latest_step() or 0
    state = "complete" if done >= run.config.steps else "not complete"
    seconds = rows[-1]["seconds"] if rows else 0.0
    count = run.parameters
    entries = [
        ("recipe", run.recipe.name),
        ("folder", str(run.folder)),
        ("steps", f"{done} of {run.config.steps} ({state})"),
        ("training time", duration(seconds)),
        ("parameters", "" if count is None else f"{count:,}"),
        ("checkpoints", ", ".join(map(str, manager.all_steps())) or "none"),
    ]
    return [(name, value, "") for name, value in entries if value]


def _metrics(run: Run, rows: list[Row], manager: Manager) -> list[tuple[str, str, str]]:
    names = [n for n in (rows[-1] if rows else {}) if n not in ("step", "seconds")]
    found = [
        (name.replace("_", " "), f"{metrics_file.last(rows, name):.4f}", "")
        for name in names
    ]
    step, (metric, _) = manager.best_step(), run.best
    if step is not None:
        value = manager.metrics(step)[metric]
        label = f"best {metric.replace('_', ' ')}"
        found.append((label, f"{value:.4f} (checkpoint of step {step})", ""))
    return found


def _options(run: Run) -> list[tuple[str, str, str]]:
    shown = []
    for field in fields(run.config):
        value = getattr(run.config, field.name)
        remark = "" if value == field.default else f"usually {field.default}"
        shown.append((field.name.replace("_", " "), str(value), remark))
    return shown


def _short(value: object) -> str:
    plain = not isinstance(value, str) or value.isalpha()
    text = str(value) if plain else repr(value)
    if isinstance(value, list):
        text = ", ".join(map(str, value))
    return text if len(text) <= _FACT_LENGTH else text[: _FACT_LENGTH - 1] + "…"

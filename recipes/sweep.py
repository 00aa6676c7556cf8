"""A sweep: one recipe trained with several options, in one process.

Runs that differ only in numbers share what is compiled: kernels are kept by what they
compute.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from treadle.recipes import comparison, curves, loop, runs
from treadle.recipes import metrics as metrics_file
from treadle.recipes.display import Quiet
from treadle.recipes.errors import DivergedError, UsageError, command
from treadle.recipes.runs import Run
from treadle.recipes.task import Recipe

_SIGNAL_STATUS = 128


def sweep(
    recipe: Recipe, values: Mapping[str, Sequence[Any]], folder: Path | None
) -> int:
    """Trains a recipe with each combination of values, and compares the runs.

    folder: where the runs go. Those that are there go on, or are complete.

    Raises:
      UsageError: if no option has several values.
    """
    several = [name for name, found in values.items() if len(found) > 1]
    if not several:
        raise UsageError(
            "give an option several values: "
            + command("sweep", recipe.place, "--learning-rate", "1e-3,3e-4")
        )
    if folder is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        folder = runs.ROOT / f"sweep-{recipe.name}-{stamp}"
    results = []
    combinations = list(product(*values.values()))
    print(f"{len(combinations)} runs of {recipe.name} in {folder}")
    for number, combination in enumerate(combinations, 1):
        chosen = dict(zip(values, combination, strict=True))
        label = "-".join(f"{name.replace('_', '-')}-{chosen[name]}" for name in several)
        place = folder / label.replace("/", "_")
        said = ", ".join(f"{name.replace('_', ' ')} {chosen[name]}" for name in several)
        print(f"{number}/{len(combinations)}  {said}", end="  ", flush=True)
        run, note, status = _train(recipe, recipe.config(**chosen), place)
        if status:
            print(note)
            return status
        results.append(comparison.result(run, note))
        last = results[-1]
        shown = "" if last.best is None else f"{last.best:.4f}"
        print(note or f"{last.metric.replace('_', ' ')} {shown}", flush=True)
    print()
    found = comparison.ranking(results)
    comparison.show(found, sys.stdout)
    rows = {r.run.folder.name: metrics_file.read(r.run.metrics) for r in results}
    picture, page = folder / "curves.png", folder / "compare.html"
    curves.draw_together(rows, results[0].metric, picture)
    comparison.write(found, f"{recipe.name} · {folder.name}", page)
    print(f"\ncurves: {picture}\npage:   {page}\ncompare: {command('compare', folder)}")
    return 0


def _train(recipe: Recipe, config: Any, folder: Path) -> tuple[Run, str, int]:
    """A run; what is to be said of it; the status with which the command ends, if it
    does."""
    data = recipe.load(config)
    if runs.exists(folder):
        run = runs.load(folder, {recipe.place: recipe})
        runs.check_same_data(run, data.facts)
        run = replace(run, config=config)
    else:
        run = runs.create(recipe, config, data.facts, folder)
    learner = loop.learner_of(recipe, config, data.facts)
    with runs.claimed(run):
        try:
            outcome = loop.train(run, data, learner, Quiet())
        except DivergedError:
            return run, "diverged", 0
    if outcome.interrupted is not None and outcome.step < config.steps:
        note = (
            f"stopped by {outcome.interrupted.name}; to go on, give the same command "
            f"with {command('--run-dir', folder.parent).partition(' ')[2]}"
        )
        return run, note, _SIGNAL_STATUS + outcome.interrupted
    return run, outcome.stopped or "", 0

"""What the commands do, once the command line is understood."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from treadle import nn
from treadle.checkpoint import DamagedError
from treadle.errors import StructureError
from treadle.optional import need, needed_for
from treadle.recipes import comparison, loop, runs, template
from treadle.recipes import report as reports
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.config import Training
from treadle.recipes.display import Display, display, duration
from treadle.recipes.errors import UsageError, command
from treadle.recipes.runs import Run
from treadle.recipes.step import make_test
from treadle.recipes.task import Begun, Data, Learner, Recipe, Trained
from treadle.recipes.tensorboard import PACKAGES, PURPOSE

_SIGNAL_STATUS = 128


def show_list() -> int:
    """Prints the recipes and the runs."""
    print("recipes:")
    width = max(map(len, RECIPES))
    for name in RECIPES:
        print(f"  {name:<{width}}  {RECIPES.summary(name)}")
    print("\ntrain one: treadle train NAME    its options: treadle train NAME --help")
    names = runs.names()
    if names:
        print("\nruns, the latest first:")
        print("\n".join(f"  {name}" for name in names))
    return 0


def train(recipe: Recipe, config: Training, folder: Path | None) -> int:
    """Starts a run."""
    if config.tensorboard:
        need(PURPOSE, *PACKAGES)  # Before there is a run.
    data = recipe.load(config)
    learner = loop.learner_of(recipe, config, data.facts)
    run = runs.create(recipe, config, data.facts, folder)
    return _train(run, data, learner, [])


def resume(name: str, changes: Mapping[str, Any]) -> int:
    """Goes on with a run, with changed options."""
    run = runs.find(name, RECIPES)
    config = replace(run.config, **changes)
    changed = runs.changes(run.config, config)
    data = run.data(config)
    run = replace(run, config=config)
    learner = loop.learner_of(run.recipe, run.config, run.facts)
    done = loop.manager_of(run, learner).latest_step() or 0
    if done > run.config.steps:
        raise UsageError(
            f"--steps {run.config.steps}: {run.folder} is at step {done} already\n"
            f"To train on: {_longer(run, 2 * done)}"
        )
    return _train(run, data, learner, changed)


def _train(run: Run, data: Data, learner: Learner, changed: list[str]) -> int:
    screen = display(sys.stdout)
    with runs.claimed(run), _explained(run):
        _introduce(run, data, learner, screen)
        if changed:
            screen.note(f"changed: {', '.join(changed)}")
        if runs.code_changed(run):
            screen.note(
                f"changed: {run.recipe.file}, since the run began with {run.code}"
            )
        outcome = loop.train(run, data, learner, screen)
        drawn = reports.draw_curves(run)
    early = outcome.step < run.config.steps
    if early and outcome.interrupted is not None:
        screen.note(
            f"stopped by {outcome.interrupted.name} after step {outcome.step}, which "
            f"is saved\nresume: {command('resume', run.folder)}"
        )
        return _SIGNAL_STATUS + outcome.interrupted
    if outcome.stopped is not None:
        screen.note(f"stopped after step {outcome.step}: {outcome.stopped}")
    screen.note(f"trained {outcome.step} steps in {duration(outcome.seconds)}")
    if drawn:
        screen.note(f"curves: {run.curves}")
    screen.note(f"report: {command('report', run.folder)}")
    if run.recipe.sample is not None:
        screen.note(f"sample: {command('sample', run.folder)}")
    screen.note(f"resume: {_longer(run, 2 * run.config.steps)}")
    names = [n for n in outcome.tested if n != "test_loss"] or list(outcome.tested)
    for name in names:
        screen.note(f"{name.replace('_', ' ')}: {outcome.tested[name]:.4f}")
    if run.recipe.details is not None:
        for line in run.recipe.details(_known(run, outcome.model), data):
            screen.note(line)
    return 0


def _longer(run: Run, steps: int) -> str:
    """The command that goes on with a run."""
    options = {"steps": steps}
    if run.recipe.longer is not None:
        options |= run.recipe.longer(Begun(run.config, run.facts), steps)
    flags = (part for name, v in options.items() for part in (f"--{name}", v))
    return command("resume", run.folder, *flags)


def _known(run: Run, model: Any) -> Trained:
    return Trained(model, run.config, run.facts, run.folder)


def _introduce(run: Run, data: Data, learner: Learner, screen: Display) -> None:
    facts = run.facts
    if data.about:
        screen.note(f"data: {data.about}")
    screen.note(
        f"{run.recipe.name}: {nn.count(learner.model):,} parameters, "
        f"{facts['training']:,} {facts['examples']} to train with, "
        f"{facts['test']:,} to test with"
    )
    screen.note(f"run: {run.folder}")


def evaluate(name: str, best: bool) -> int:
    """Tests a run's model."""
    run = runs.find(name, RECIPES)
    if run.recipe.name == runs.FIT:
        return _show_tests(run, best)
    data = run.data()
    learner = loop.learner_of(run.recipe, run.config, run.facts)
    checkpoint = _trained(run, learner, best)
    model = checkpoint.state.evaluated(learner)
    tested = make_test(learner, data.test)(model)
    print(f"{run.folder}, step {int(checkpoint.state.step)}")
    for metric, value in tested.items():
        print(f"{metric.replace('_', ' ')}: {value:.4f}")
    if run.recipe.details is not None:
        for line in run.recipe.details(_known(run, model), data):
            print(line)
    return 0


def _show_tests(run: Run, best: bool) -> int:
    """What the tests of a run gave whose model only its program has."""
    manager = loop.manager_of(run, None)
    step = manager.best_step() if best else manager.latest_step()
    if step is None:
        raise _untrained(run)
    print(f"{run.folder}, step {step}, as it was tested in the training")
    for metric, value in manager.metrics(step).items():
        print(f"{metric.replace('_', ' ')}: {value:.4f}")
    print(
        "Its model is in the program that trained it, which tests it again, also with "
        f"other data, by\nrecipes.evaluate(model, data, run_dir={str(run.folder)!r})"
    )
    return 0


def _untrained(run: Run) -> UsageError:
    return UsageError(
        f"{run.folder} has no checkpoint to take yet\n"
        f"Train on: {command('resume', run.folder)}"
    )


def _trained(run: Run, learner: Learner, best: bool) -> loop.Checkpoint:
    """A run's latest checkpoint, or its best."""
    manager = loop.manager_of(run, learner)
    step = manager.best_step() if best else None
    if manager.latest_step() is None or (best and step is None):
        raise _untrained(run)
    template = loop.beginning(learner, run.config)
    with _explained(run):
        if step is not None:
            return manager.restore(template, step)
        return loop.restored(
            manager, template, lambda text: print(text, file=sys.stderr)
        )


@contextmanager
def _explained(run: Run) -> Iterator[None]:
    """Adds to an error of restoring what it means for the run."""
    try:
        yield
    except StructureError as error:
        raise UsageError(
            f"{error}\nThe model is built from {run.settings} (and from options that "
            "were given to change it): put the options back as "
            f"they were, or start a new run: {run.recipe.anew}"
        ) from None
    except DamagedError as error:
        raise UsageError(
            f"{error}\nTo train again from the start, delete {run.checkpoints} and "
            f"run: {command('resume', run.folder)}"
        ) from None


def report(name: str) -> int:
    """Shows what became of a run."""
    reports.write(runs.find(name, RECIPES), sys.stdout)
    return 0


def report_live(name: str, port: int) -> int:
    """Serves the report of a run while it goes on, or before it begins."""

    @cache
    def find() -> Path:
        return runs.find(name, RECIPES).folder

    reports.serve(name, lambda: runs.load(find(), RECIPES), port, sys.stdout)
    return 0


def compare(names: Sequence[str], page: Path | None) -> int:
    """Shows runs beside each other, those of a sweep by its folder."""
    folders = [folder for name in names for folder in runs.inside(name)]
    chosen = [runs.find(folder, RECIPES) for folder in folders]
    found = comparison.ranking([comparison.result(run) for run in chosen])
    comparison.show(found, sys.stdout)
    if page is not None:
        try:
            comparison.write(found, " and ".join(names), page)
        except OSError as error:
            raise UsageError(
                f"--page {page}: {error.strerror}\nGive a file in a folder that exists "
                "and can be written to."
            ) from None
        print(f"\npage: {page}")
    return 0


def sample(name: str, values: Mapping[str, Any], best: bool) -> int:
    """Lets a run's model write. Pictures go to files in the run's folder."""
    run = runs.find(name, RECIPES)
    write = run.recipe.sample
    if write is None:
        raise _unable(run, "doesn't write", lambda recipe: recipe.sample)
    step, trained = _used(run, best)
    wanted = run.recipe.sampling(**values)
    pictures = 0
    for piece in write(trained, wanted):
        if isinstance(piece, str):
            print(piece, end="", flush=True)
            continue
        pictures += 1
        part = f"-{pictures}" if pictures > 1 else ""
        path = run.folder / f"sample-{step}-{wanted.seed}{part}.png"
        with needed_for("writing pictures"):
            from PIL import Image
        Image.fromarray(np.asarray(piece)).save(path)
        print(f"picture: {path}", end="", flush=True)
    print()
    return 0


def export(name: str, folder: Path, best: bool) -> int:
    """Writes a run's model to a folder, for others to use."""
    run = runs.find(name, RECIPES)
    write = run.recipe.export
    if write is None:
        raise _unable(run, "has no form of its own", lambda recipe: recipe.export)
    if folder.exists():
        raise UsageError(f"{folder} exists: it is left as it is")
    step, trained = _used(run, best)
    write(trained, folder)
    print(f"wrote {folder}: the model of {run.folder} at step {step}")
    return 0


def _used(run: Run, best: bool) -> tuple[int, Trained]:
    learner = loop.learner_of(run.recipe, run.config, run.facts)
    state = _trained(run, learner, best).state
    return int(state.step), _known(run, state.evaluated(learner))


def _unable(run: Run, why: str, ability: Callable[[Recipe], Any]) -> UsageError:
    able = ", ".join(r.name for r in RECIPES.values() if ability(r) is not None)
    return UsageError(
        f"{run.folder} is a run of {run.recipe.name}, which {why}\n"
        f"Runs of these do: {able}"
    )


def new(name: str) -> int:
    """Writes a recipe to begin with."""
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_-]*", name):
        raise UsageError(
            f"{name!r} is no name of a recipe: letters, digits and dashes, such as "
            "my-recipe"
        )
    name = name.replace("_", "-")
    path = Path(name.replace("-", "_") + ".py")
    text = Path(template.__file__).read_text(encoding="utf-8")
    text = text.replace(template.RECIPE.name, name).replace("FILE", path.name)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists: it is left as it is") from None
    print(f"wrote {path}\ntrain it: {command('train', path)}")
    return 0

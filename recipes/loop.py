"""The training loop: steps, tests, checkpoints; exact resume; clean stop."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import replace
from signal import Signals
from typing import Any, NamedTuple

import numpy as np

import treadle as td
from treadle import nn, rng, tree
from treadle.checkpoint import Manager
from treadle.data import Loader
from treadle.recipes import divergence, profiles
from treadle.recipes import metrics as metrics_file
from treadle.recipes.callbacks import Callback, EarlyStopping, Progress
from treadle.recipes.config import Training
from treadle.recipes.display import Display, Lasting
from treadle.recipes.errors import DivergedError, option_text
from treadle.recipes.interrupt import Interrupts
from treadle.recipes.runs import Run
from treadle.recipes.step import Step, TrainState, make_step, make_test, next_batch
from treadle.recipes.task import Data, Facts, Learner, Metrics, Recipe
from treadle.recipes.tensorboard import TensorBoard


class Position(NamedTuple):
    """Which batch comes next. Saved with every checkpoint."""

    epoch: int = 0
    batch: int = 0
    batch_size: int = 0

    def of(self, loader: Loader) -> tuple[int, int]:
        """The place of a loader whose batches may be of another size: none of the
        examples that were seen in this epoch come again."""
        size = loader.state()["batch_size"]
        batch = -(-self.batch * self.batch_size // size)
        return (self.epoch, batch) if batch < len(loader) else (self.epoch + 1, 0)


class Checkpoint(NamedTuple):
    """What is saved: from it, a training goes on as if it had never stopped."""

    state: TrainState
    position: Position


class Outcome(NamedTuple):
    """How a training ended.

    model: as it is used (`Learner.evaluated`).
    interrupted: the signal that ended it early.
    stopped: why it ended early of its own accord.
    """

    model: Any
    step: int
    tested: Metrics
    seconds: float
    interrupted: Signals | None
    stopped: str | None


def learner_of(recipe: Recipe, config: Training, facts: Facts) -> Learner:
    """The learner that the seed determines."""
    return recipe.learner(config, facts, rng.fold_in(rng.key(config.seed), 1))


def beginning(learner: Learner, config: Training) -> Checkpoint:
    """What stands before the first step; also the template for restoring."""
    state = TrainState(
        learner.model,
        learner.optimizer.init(learner.model),
        rng.fold_in(rng.key(config.seed), 2),
        td.numpy.zeros((), td.int32),
    )
    return Checkpoint(state, Position(batch_size=config.batch_size))


def manager_of(run: Run, learner: Learner | None) -> Manager:
    """The checkpoints of a run; learner: if what it trains is known here."""
    metric, mode = run.best if learner is None else learner.best
    return Manager(
        run.checkpoints,
        max_to_keep=run.config.keep,
        best_metric=metric,
        mode=mode,
    )


def restored(
    manager: Manager, template: Checkpoint, note: Callable[[str], None]
) -> Checkpoint:
    """The latest intact checkpoint; the template if there is none.

    Raises:
      StructureError: if it is that of another model.
      DamagedError: if none is intact.
    """
    if manager.latest_step() is None:
        return template
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = manager.restore(template)
    for warning in caught:
        note(f"warning: {warning.message}")
    return found


def train(
    run: Run,
    data: Data,
    learner: Learner,
    display: Display,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """Trains until the run's last step, until a callback or a signal ends it.

    A run that has checkpoints goes on from the latest.

    Raises:
      OSError: if nobody reads any more what is displayed: after the current step, which
        is saved.
    """
    shown = Lasting(display)
    with Interrupts() as interrupts, manager_of(run, learner) as manager:
        begin = beginning(learner, run.config)
        checkpoint = restored(manager, begin, shown.note)
        step = make_step(learner, run.config.accumulate)
        count = nn.count(learner.model)
        run = replace(run, best=learner.best, parameters=count)
        run.write()  # Now it is known that its options fit, and what was saved.
        log = metrics_file.Log(run.metrics, int(checkpoint.state.step))
        if run.config.patience is not None:
            stopping = EarlyStopping(run.config.patience, *learner.best)
            callbacks = [*callbacks, stopping]
        if run.config.tensorboard:
            callbacks = [*callbacks, TensorBoard(run.logs)]
        divergence.forget(run.diverged)
        training = _Training(
            run, data, learner, step, shown, manager, log, callbacks, interrupts
        )
        shown.start(int(checkpoint.state.step), run.config.steps)
        try:
            outcome = training.run(checkpoint)
        finally:
            for callback in callbacks:
                callback.on_end()
            shown.close()
            log.close()
    if shown.lost is not None and outcome.interrupted is None:
        raise shown.lost
    return outcome


class _Training:
    """One call of `train`."""

    def __init__(
        self,
        run: Run,
        data: Data,
        learner: Learner,
        step: Step,
        display: Lasting,
        manager: Manager,
        log: metrics_file.Log,
        callbacks: Sequence[Callback],
        interrupts: Interrupts,
    ) -> None:
        self.about, self.config = run, run.config
        self.steps = run.config.steps
        self.data, self.display, self.manager, self.log = data, display, manager, log
        self.learner, self.step = learner, step
        self.test = make_test(learner, data.test)
        self.callbacks = callbacks
        self.stopped: str | None = None
        self.interrupts = interrupts
        self.saved = 0
        self.started = time.monotonic() - log.seconds

    def run(self, checkpoint: Checkpoint) -> Outcome:
        """Trains from a checkpoint on."""
        state, position = checkpoint
        number = self.saved = int(state.step)
        batches = self._batches(position)
        tested: Metrics = {}
        self._call("on_start", metrics_file.read(self.about.metrics))
        if self.config.profile is not None and number < self.config.steps:
            self._profile(checkpoint, self.config.profile)
        while (
            number < self.config.steps
            and self.stopped is None
            and self.interrupts.received is None
            and self.display.lost is None
        ):
            taken, position = next(batches)
            state, metrics = self.step(state, taken)
            number += 1
            self.display.update(number, metrics)
            self._call("on_step", Progress(number, self.steps, state.model, metrics))
            tested = self._record(number, Checkpoint(state, position), metrics)
        batches.close()
        if self.saved != number:
            self._save(number, Checkpoint(state, position), None)
        if number >= self.config.steps or self.stopped is not None:
            tested = tested or self._tested(number, state.evaluated(self.learner))
        self.manager.wait()
        return Outcome(
            state.evaluated(self.learner),
            number,
            tested,
            self._seconds(),
            self.interrupts.received,
            self.stopped,
        )

    def _batches(
        self, position: Position
    ) -> Generator[tuple[Any, Position], None, None]:
        """What the steps from a position on take, and the position after each."""
        loader = self.data.batches
        size = int(loader.state()["batch_size"])
        epoch, batch = position.of(loader)
        loader.restore(loader.state() | {"epoch": epoch, "batch": batch})
        with closing(loader.repeat()) as batches:
            while True:
                taken = next_batch(batches, self.config.accumulate)
                yield taken, Position(*loader.place, size)

    def _profile(self, checkpoint: Checkpoint, runs: int) -> None:
        """Measures the next step, which is not made by that."""
        with closing(self._batches(checkpoint.position)) as batches:
            taken, _ = next(batches)
        found = profiles.measured(self.step, checkpoint.state, taken, runs)
        profiles.write(found, self.about.profile, int(checkpoint.state.step))
        self.display.note(f"profile: {self.about.profile}")

    def _tested(self, number: int, model: Any) -> Metrics:
        told = self.learner.told
        return self.test(model) | ({} if told is None else told(number))

    def _call(self, event: str, about: Any) -> None:
        for callback in self.callbacks:
            reason = getattr(callback, event)(about)
            if not isinstance(reason, str | None):
                raise TypeError(
                    f"{type(callback).__name__}.{event} returned {reason!r}: a text "
                    "ends the training and says why, None lets it go on"
                )
            self.stopped = self.stopped or reason

    def _record(self, number: int, checkpoint: Checkpoint, metrics: Metrics) -> Metrics:
        """Logs and saves what is due after a step; the test's metrics, if one was."""
        tested: Metrics = {}
        due = number % self.config.checkpoint_every == 0 or number == self.config.steps
        if due:
            model = checkpoint.state.evaluated(self.learner)
            tested = self._tested(number, model)
            self.display.test(number, tested)
        if due or number % self.config.log_every == 0:
            values = {name: float(value) for name, value in metrics.items()} | tested
            for name in ("loss", "test_loss"):
                value = values.get(name, 0.0)
                if not math.isfinite(value):
                    found = f"the {name.replace('_', ' ')} is {value}"
                    in_test = checkpoint if name == "test_loss" else None
                    raise self._diverged(number, found, math.isinf(value), in_test)
            row = {"step": number, **values}
            row["seconds"] = round(self._seconds(), 3)
            self.log.write(row)
            self._call("on_log", row)
        if due:
            self._save(number, checkpoint, tested or None)
        if tested:
            self._call("on_test", Progress(number, self.steps, model, tested))
        return tested

    def _save(
        self, number: int, checkpoint: Checkpoint, tested: Metrics | None
    ) -> None:
        # A signal may come after a step whose loss nobody has looked at.
        leaves = [np.asarray(leaf) for leaf in tree.leaves(checkpoint.state.model)]
        if not all(np.isfinite(leaf).all() for leaf in leaves):
            inf = not any(np.isnan(leaf).any() for leaf in leaves)
            what = "the model has values that are not finite"
            raise self._diverged(number, what, inf)
        # The rows before a checkpoint must not be lost if the checkpoint is not.
        self.log.sync()
        # force: where a damaged checkpoint of this step was passed over, it lies there.
        self.manager.save(number, checkpoint, tested, force=True)
        self.saved = number

    def _diverged(
        self, number: int, what: str, inf: bool, in_test: Checkpoint | None = None
    ) -> DivergedError:
        """The error for a training that has no use going on: it says why.

        inf: whether there are infinities, and no NaN. in_test: what was tested, where
          the steps were right.
        """
        self.manager.wait()
        kept = self.manager.latest_step()
        lines = [f"{what} after step {number}: the training has diverged"]
        if in_test is None:
            origin = self._origin(number, inf)
        else:
            model = in_test.state.evaluated(self.learner)
            origin = divergence.in_test(self.test, model, in_test, inf)
        if origin is not None:
            path = divergence.keep(self.about.diverged, origin)
            lines.append(f"In {origin.where}, {origin.why}")
            lines.append(f"What was before is kept: {path}")
        last = f"Step {kept} is saved, but from it the same happens again. "
        lines.append(f"{'' if kept is None else last}{self._remedy(origin)}")
        divergence.note(self.about.diverged, "\n".join(lines))
        return DivergedError("\n".join(lines))

    def _remedy(self, origin: divergence.Origin | None) -> str:
        if origin is not None and origin.done == 0:
            return (
                "Nothing had been learnt by then, so it is not the learning rate: look "
                "at that line, and at what it was given."
            )
        rate = self.config.learning_rate
        line = "" if origin is None else ", or mend that line"
        return (
            f"Start a run with a smaller {option_text('learning_rate')}, such as "
            f"{rate / 10:g} instead of {rate:g}{line}."
        )

    def _origin(self, number: int, inf: bool) -> divergence.Origin | None:
        # The steps have used up the arrays with which it began.
        learner = learner_of(self.about.recipe, self.config, self.about.facts)
        begin = beginning(learner, self.config)
        start = restored(self.manager, begin, self.display.note)

        def stopped() -> bool:
            return self.interrupts.received is not None

        with closing(self._batches(start.position)) as batches:
            return divergence.in_steps(self.step, start, batches, number, inf, stopped)

    def _seconds(self) -> float:
        return time.monotonic() - self.started

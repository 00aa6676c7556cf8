"""The training loop: steps, tests, checkpoints; exact resume; clean stop."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from signal import Signals
from typing import Any, NamedTuple

import numpy as np

import treadle as td
from treadle import nn, optim, rng, tree
from treadle.checkpoint import Manager
from treadle.data import Loader
from treadle.recipes import metrics as metrics_file
from treadle.recipes.config import Training
from treadle.recipes.display import Display, Lasting
from treadle.recipes.errors import UsageError
from treadle.recipes.interrupt import Interrupts
from treadle.recipes.runs import Run
from treadle.recipes.task import Data, Facts, Learner, Metrics, Recipe


@tree.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Everything that a step changes."""

    model: Any
    optimizer: Any
    key: rng.Key
    step: Any


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

    interrupted: the signal that ended it early.
    """

    step: int
    tested: Metrics
    seconds: float
    interrupted: Signals | None


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


def make_step(
    learner: Learner,
) -> Callable[[TrainState, Any], tuple[TrainState, Metrics]]:
    """The training step, compiled."""

    @td.jit(donate="state")
    def step(state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        key = rng.fold_in(state.key, state.step)

        def loss(model: Any) -> Any:
            value, (metrics, model) = learner.loss(model, batch, key)
            return value, (metrics, model)

        (value, (metrics, model)), grads = td.value_and_grad(loss, has_aux=True)(
            state.model
        )
        updates, optimizer = learner.optimizer.update(grads, state.optimizer, model)
        model = optim.apply_updates(model, updates)
        after = TrainState(model, optimizer, state.key, state.step + 1)
        return after, {"loss": value, **metrics}

    return step


def make_test(learner: Learner, data: Data) -> Callable[[Any], dict[str, float]]:
    """The test of a model: average metrics over the held-out examples."""

    @td.jit
    def test_batch(model: Any, batch: Any) -> Metrics:
        value, (metrics, _) = learner.loss(nn.inference(model), batch, None)
        return {"loss": value, **metrics}

    def test(model: Any) -> dict[str, float]:
        totals: dict[str, float] = {}
        examples = 0
        for batch, size in data.test():
            examples += size
            for name, value in test_batch(model, batch).items():
                totals[name] = totals.get(name, 0.0) + float(value) * size
        return {f"test_{name}": total / examples for name, total in totals.items()}

    return test


def manager_of(run: Run, learner: Learner) -> Manager:
    """The checkpoints of a run."""
    metric, mode = learner.best
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


def train(run: Run, data: Data, learner: Learner, display: Display) -> Outcome:
    """Trains until the run's last step, or until a signal.

    A run that has checkpoints goes on from the latest.

    Raises:
      OSError: if nobody reads any more what is displayed: after the current step, which
        is saved.
    """
    shown = Lasting(display)
    with Interrupts() as interrupts, manager_of(run, learner) as manager:
        begin = beginning(learner, run.config)
        checkpoint = restored(manager, begin, shown.note)
        run.write()  # Now it is known that its options fit what was saved.
        log = metrics_file.Log(run.metrics, int(checkpoint.state.step))
        training = _Training(run, data, learner, shown, manager, log)
        shown.start(int(checkpoint.state.step), run.config.steps)
        try:
            outcome = training.run(checkpoint, interrupts)
        finally:
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
        display: Lasting,
        manager: Manager,
        log: metrics_file.Log,
    ) -> None:
        self.config: Training = run.config
        self.data, self.display, self.manager, self.log = data, display, manager, log
        self.step = make_step(learner)
        self.test = make_test(learner, data)
        self.started = time.monotonic() - log.seconds

    def run(self, checkpoint: Checkpoint, interrupts: Interrupts) -> Outcome:
        """Trains from a checkpoint on."""
        state, position = checkpoint
        number = begun = int(state.step)
        loader = self.data.batches
        epoch, batch = position.of(loader)
        loader.restore(loader.state() | {"epoch": epoch, "batch": batch})
        batches = loader.repeat()
        tested: Metrics = {}
        while (
            number < self.config.steps
            and interrupts.received is None
            and self.display.lost is None
        ):
            state, metrics = self.step(state, next(batches))
            position = Position(*loader.place, self.config.batch_size)
            number += 1
            self.display.update(number, metrics)
            tested = self._record(number, Checkpoint(state, position), metrics)
        batches.close()
        if number >= self.config.steps:
            tested = tested or self.test(state.model)
        elif not tested and number > begun:
            self._save(number, Checkpoint(state, position), None)
        self.manager.wait()
        return Outcome(number, tested, self._seconds(), interrupts.received)

    def _record(self, number: int, checkpoint: Checkpoint, metrics: Metrics) -> Metrics:
        """Logs and saves what is due after a step; the test's metrics, if one was."""
        tested: Metrics = {}
        due = number % self.config.checkpoint_every == 0
        if due or number == self.config.steps:
            tested = self.test(checkpoint.state.model)
            self.display.test(number, tested)
        if tested or number % self.config.log_every == 0:
            values = {name: float(value) for name, value in metrics.items()} | tested
            for name in ("loss", "test_loss"):
                if not math.isfinite(values.get(name, 0.0)):
                    raise self._diverged(number, f"the {name} is {values[name]}")
            row = {"step": number, **values}
            self.log.write(row | {"seconds": round(self._seconds(), 3)})
        if tested:
            self._save(number, checkpoint, tested)
        return tested

    def _save(
        self, number: int, checkpoint: Checkpoint, tested: Metrics | None
    ) -> None:
        # A signal may come after a step whose loss nobody has looked at.
        leaves = tree.leaves(checkpoint.state.model)
        if not all(np.isfinite(np.asarray(leaf)).all() for leaf in leaves):
            raise self._diverged(number, "the model has values that are not finite")
        # The rows before a checkpoint must not be lost if the checkpoint is not.
        self.log.sync()
        # force: where a damaged checkpoint of this step was passed over, it lies there.
        self.manager.save(number, checkpoint, tested, force=True)

    def _diverged(self, number: int, what: str) -> UsageError:
        """The error for a training that has no use going on."""
        self.manager.wait()
        kept = self.manager.latest_step()
        last = f"Step {kept} is saved, but from it the same happens again. "
        rate = self.config.learning_rate
        return UsageError(
            f"{what.replace('_', ' ')} after step {number}: the training has diverged\n"
            f"{'' if kept is None else last}Start a run with a smaller "
            f"--learning-rate, such as {rate / 10:g} instead of {rate:g}."
        )

    def _seconds(self) -> float:
        return time.monotonic() - self.started

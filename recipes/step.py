"""What is compiled of a training: its step, and its test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import treadle as td
from treadle import nn, optim, rng, tree
from treadle.recipes.errors import UsageError, option_text
from treadle.recipes.task import Learner, Metrics, Update


@tree.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """Everything that a step changes."""

    model: Any
    optimizer: Any
    key: rng.Key
    step: Any

    def evaluated(self, learner: Learner) -> Any:
        """The model that is tested and used."""
        return learner.evaluated(self.model, self.optimizer)


Step = Callable[[TrainState, Any], tuple[TrainState, Metrics]]
Test = Callable[[Any], dict[str, float]]


def make_step(learner: Learner, accumulate: int = 1) -> Step:
    """The training step, compiled.

    accumulate: of so many batches, which it takes as one with a further axis in front
      (`next_batch`), the gradients and metrics are averaged.

    Raises:
      UsageError: if there are gradients to be averaged, but the learner makes its steps
        itself.
    """
    if learner.update is not None:
        if accumulate > 1:
            raise UsageError(
                f"{option_text('accumulate', accumulate)}: this recipe makes its steps "
                f"itself\nA larger {option_text('batch_size')} does the same."
            )
        return _own_step(learner.update)

    def gradients(model: Any, batch: Any, key: rng.Key) -> tuple[Any, Metrics, Any]:
        def loss(model: Any) -> Any:
            value, (metrics, model) = learner.loss(model, batch, key)
            return value, (metrics, model)

        (value, (metrics, model)), grads = td.value_and_grad(loss, has_aux=True)(model)
        return model, {"loss": value, **metrics}, grads

    def averaged(model: Any, batches: Any, key: rng.Key) -> tuple[Any, Metrics, Any]:
        def more(carry: Any, numbered: Any) -> tuple[Any, None]:
            model, total = carry
            number, batch = numbered
            model, *found = gradients(model, batch, rng.fold_in(key, number))
            return (model, tree.map(lambda a, b: a + b, total, found)), None

        first = tree.map(lambda x: x[0], batches)
        _, *shapes = td.eval_shape(gradients, model, first, key)
        zeros = tree.map(lambda x: td.numpy.zeros(x.shape, x.dtype), shapes)
        numbered = td.numpy.arange(accumulate), batches
        (model, total), _ = td.scan(more, (model, zeros), numbered)
        metrics, grads = tree.map(lambda x: x / accumulate, total)
        return model, metrics, grads

    @td.jit(donate="state")
    def step(state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        key = rng.fold_in(state.key, state.step)
        differentiate = gradients if accumulate == 1 else averaged
        model, metrics, grads = differentiate(state.model, batch, key)
        updates, optimizer = learner.optimizer.update(grads, state.optimizer, model)
        model = optim.apply_updates(model, updates)
        after = TrainState(model, optimizer, state.key, state.step + 1)
        return after, metrics

    return step


def _own_step(update: Update) -> Step:
    @td.jit(donate="state")
    def step(state: TrainState, batch: Any) -> tuple[TrainState, Metrics]:
        after, metrics = update(state, batch)
        return replace(after, step=state.step + 1), metrics

    return step


def next_batch(batches: Iterator[Any], accumulate: int) -> Any:
    """What the next step takes."""
    if accumulate == 1:
        return next(batches)
    several = [next(batches) for _ in range(accumulate)]
    return tree.map(lambda *x: np.stack(x), *several)


def make_test(
    learner: Learner, batches: Callable[[], Iterable[tuple[Any, int]]]
) -> Test:
    """The test of a model: average metrics over the examples of `Data.test`."""

    @td.jit
    def test_batch(model: Any, batch: Any) -> Metrics:
        value, (metrics, _) = learner.loss(nn.inference(model), batch, None)
        return metrics if value is None else {"loss": value, **metrics}

    def test(model: Any) -> dict[str, float]:
        totals: dict[str, float] = {}
        examples = 0
        for batch, size in batches():
            examples += size
            for name, value in test_batch(model, batch).items():
                totals[name] = totals.get(name, 0.0) + float(value) * size
        return {f"test_{name}": total / examples for name, total in totals.items()}

    return test

"""What `recipes.fit` is given: whether a training can be made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from treadle import optim
from treadle.recipes.callbacks import Callback
from treadle.recipes.config import Training
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Learner

_PAIRS = """\
data gives batches of {found}, and a model learns from pairs: fit(model, (x, y))
What has other batches is trained with a `recipes.Learner`, which has its own loss."""
_CLASSES = """\
the targets are classes from {low} to {high}, but the model gives {outputs} numbers \
for each example
Classes count from 0, and each has an output: the last layer needs {most} at least. \
Where whole numbers are to be predicted, give them as floats."""


def share(test: Any) -> float | None:
    """The share of the data that is set apart for testing; None if `test` is data.

    Raises:
      UsageError: if it is a number that is no share.
    """
    if not isinstance(test, (int, float, np.number)):
        return None
    if isinstance(test, bool) or not 0 < test < 1:
        raise UsageError(
            f"test={test} is no share of the data: give a number between 0 and 1, such "
            "as 0.2, or the examples themselves, (x, y)"
        )
    return float(test)


def steps(epochs: Any, count: int, options: Mapping[str, Any], config: Training) -> int:
    """How many updates so many epochs of `count` examples are.

    Raises:
      UsageError: if there are steps, too, or it is no positive number.
    """
    if "steps" in options:
        raise UsageError("steps and epochs say the same: give one of them")
    number = isinstance(epochs, (int, float, np.number))
    if not number or isinstance(epochs, bool) or not 0 < epochs < math.inf:
        raise UsageError(f"epochs={epochs!r}: expected a number above 0, such as 10")
    return max(1, round(epochs * count / (config.batch_size * config.accumulate)))


def check_functions(
    loss: Any, metrics: Any, optimizer: Any, callbacks: Any
) -> tuple[Any, Any, Any, tuple[Callback, ...]]:
    """All of them, once each is what it should be.

    Raises:
      UsageError: for what is not; it says how it is given.
    """
    if loss is not None and not callable(loss):
        raise UsageError(
            f"loss={loss!r}: expected a function of outputs and targets, such as "
            "nn.squared_error"
        )
    if metrics is not None and not _functions(metrics):
        raise UsageError(
            f"metrics={metrics!r}: expected functions of outputs and targets by name, "
            'such as {"error": nn.absolute_error}'
        )
    if optimizer is not None and not isinstance(optimizer, optim.Transform):
        raise UsageError(
            f"optimizer={optimizer!r}: expected one of treadle.optim, such as "
            "optim.adamw(1e-3)"
        )
    several = isinstance(callbacks, Sequence)
    wrong = [c for c in callbacks if not isinstance(c, Callback)] if several else None
    if wrong is None or wrong:
        raise UsageError(
            f"callbacks={callbacks!r}: expected a list of objects of `recipes.Callback`"
        )
    return loss, metrics, optimizer, tuple(callbacks)


def _functions(metrics: Any) -> bool:
    return isinstance(metrics, Mapping) and all(map(callable, metrics.values()))


def check_batch(model: Any, batch: Any) -> None:
    """
    Raises:
      UsageError: if a model can't learn from such examples.
    """
    if isinstance(model, Learner):
        return
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        found = type(batch).__name__
        if isinstance(batch, (tuple, list)):
            found = f"{len(batch)} parts"
        raise UsageError(_PAIRS.format(found=found))
    for name, part in zip(("inputs", "targets"), batch, strict=True):
        dtype = getattr(part, "dtype", None)
        if dtype is not None and np.dtype(dtype).kind in "OSUMm":
            raise UsageError(
                f"the {name} have dtype {dtype}: a model takes numbers"
                + "\nClasses by name become so: "
                "`names, y = np.unique(y, return_inverse=True)`." * (name == "targets")
            )


def check_classes(outputs: Any, low: int, high: int) -> None:
    """
    Raises:
      UsageError: if outputs (*batch, classes) are of fewer classes than targets name.
    """
    if low < 0 or outputs.shape[-1] <= high:
        raise UsageError(
            _CLASSES.format(
                low=low,
                high=high,
                outputs=outputs.shape[-1],
                most=high - min(low, 0) + 1,
            )
        )

"""What a training calls as it goes on, and what may end it before its last step."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from treadle.recipes.errors import UsageError, unknown


@dataclass(frozen=True)
class Progress:
    """How far a training is.

    step: the updates that were made.
    steps: those that are to be made.
    model: as it is now; after a test, the one that was tested. After a step its arrays
      are reused for the next one: what is to be kept of it has to be copied.
    metrics: of the step, or of the test.
    """

    step: int
    steps: int
    model: Any
    metrics: Mapping[str, Any]


class Callback:
    """Something that is called while a training goes on: override what you need.

    A text that is returned ends the training after this step, which is saved; the text
    says why.

    Raises:
      TypeError: where a class is made with a method `on_...` that nothing calls.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in vars(cls):
            if name.startswith("on_") and not hasattr(Callback, name):
                called = [n for n in vars(Callback) if n.startswith("on_")]
                raise TypeError(
                    f"{cls.__name__}: {unknown('event of a callback', name, called)}"
                )

    def on_start(self, rows: Sequence[Mapping[str, Any]]) -> str | None:
        """The training begins, or goes on after the steps whose metrics are `rows`."""
        return None

    def on_step(self, progress: Progress) -> str | None:
        """An update was made."""
        return None

    def on_log(self, row: Mapping[str, Any]) -> str | None:
        """A row of metrics was logged."""
        return None

    def on_test(self, progress: Progress) -> str | None:
        """The model was tested."""
        return None

    def on_end(self) -> None:
        """The training has ended, in whatever way."""


class EarlyStopping(Callback):
    """Ends a training when tests don't get better any more.

    Args:
      patience: so many tests in a row may be no better than the best before them.
      metric: what tells how good the model is; a row of `metrics.jsonl` has it.
      mode: which of its extremes is best.
      min_delta: by how much a test has to be better to count as such.

    >>> stopping = EarlyStopping(2, "test_loss", "min")
    >>> stopping.on_start([{"test_loss": 1.0}, {"test_loss": 2.0}])
    >>> stopping.on_test(Progress(3, 9, None, {"test_loss": 1.0}))
    'test loss was not better than 1 in 2 tests'
    """

    def __init__(
        self,
        patience: int,
        metric: str,
        mode: Literal["min", "max"],
        *,
        min_delta: float = 0.0,
    ) -> None:
        if not 0 <= min_delta < math.inf:
            raise UsageError(f"min_delta {min_delta}: expected a number from 0 on")
        self.patience, self.metric, self.mode = patience, metric, mode
        self.min_delta = min_delta
        self.best = math.inf
        self.since = 0

    def on_start(self, rows: Sequence[Mapping[str, Any]]) -> str | None:
        """Sees the tests again that were made before."""
        self.best, self.since = math.inf, 0
        for row in rows:
            if self.metric in row:
                self._see(row[self.metric])
        return self._reason()

    def on_test(self, progress: Progress) -> str | None:
        """Compares a test with the best."""
        if self.metric not in progress.metrics:
            raise UsageError(
                f"early stopping needs {self.metric}, but a test gives "
                f"{', '.join(progress.metrics) or 'nothing'}"
            )
        self._see(progress.metrics[self.metric])
        return self._reason()

    def _see(self, value: float) -> None:
        value = value if self.mode == "min" else -value
        is_better = value < self.best - self.min_delta
        self.since = 0 if is_better else self.since + 1
        self.best = value if is_better else self.best

    def _reason(self) -> str | None:
        if self.since < self.patience:
            return None
        best = self.best if self.mode == "min" else -self.best
        name = self.metric.replace("_", " ")
        return f"{name} was not better than {best:.6g} in {self.since} tests"

"""How often a classifier is right, and how it errs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source
from treadle.metrics.base import Metric, count, counted, masked

AVERAGES = ("binary", "micro", "macro", "weighted", None)


def _guesses(name: str, predictions: Any, labels: Any) -> tuple[Any, Any]:
    """Which class is predicted, and which is right.

    Raises:
      ValueError: if the shapes don't fit.
      TypeError: for predictions that are neither classes nor logits.
    """
    predictions, labels = tnp.asarray(predictions), tnp.asarray(labels)
    if predictions.shape[:-1] == labels.shape and predictions.ndim > labels.ndim:
        return tnp.argmax(predictions, -1), labels
    if predictions.shape != labels.shape:
        raise ValueError(
            f"{name}.update takes logits (..., classes) or classes (...), and labels "
            f"(...); got {td.typeof(predictions)} and {td.typeof(labels)}"
            f"{at(user_source())}"
        )
    if td.dtypes.is_differentiable(predictions.dtype):
        raise TypeError(
            f"{name}.update got {td.typeof(predictions)} for labels of the same shape"
            f"{at(user_source())}\n"
            "Say where the border lies: `metric.update(logits > 0, labels)`."
        )
    return predictions, labels


def _share(part: Any, whole: Any) -> td.Array:
    """A ratio of counts; NaN of nothing."""
    return tnp.where(whole == 0, tnp.nan, part / tnp.maximum(whole, 1)).astype(
        tnp.float32
    )


@tree.register_dataclass
@dataclass(frozen=True)
class Accuracy(Metric):
    """The share of examples whose class is predicted.

    >>> logits = tnp.array([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]])
    >>> Accuracy().update(logits, tnp.array([1, 1, 1])).compute()
    Array(0.6667, dtype=float32)
    """

    correct: Any = field(default_factory=count)
    count: Any = field(default_factory=count)

    def update(self, predictions: Any, labels: Any, where: Any = None) -> Self:
        """With more examples.

        Args:
          predictions: logits or probabilities (..., classes), or classes (...).
          labels: (...), integers or bools.
          where: (...), which examples count.
        """
        guess, label = _guesses("Accuracy", predictions, labels)
        here = masked("Accuracy", label.shape, where)
        return replace(
            self,
            correct=self.correct + counted(here & (guess == label)),
            count=self.count + counted(here),
        )

    def compute(self) -> td.Array:
        return _share(self.correct, self.count)


@partial(tree.register_dataclass, static=("k",))
@dataclass(frozen=True)
class TopKAccuracy(Metric):
    """The share of examples whose class is among the k most probable. Of equal logits
    the first counts as the larger.

    >>> logits = tnp.array([[0.1, 0.5, 0.4], [0.1, 0.5, 0.4]])
    >>> TopKAccuracy(2).update(logits, tnp.array([2, 0])).compute()
    Array(0.5, dtype=float32)
    """

    k: int
    correct: Any = field(default_factory=count)
    count: Any = field(default_factory=count)

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError(
                f"TopKAccuracy: k is 1 or more, got {self.k!r}{at(user_source())}"
            )

    def update(self, logits: Any, labels: Any, where: Any = None) -> Self:
        """With more examples: logits (..., classes), labels (...) of integers; `where`
        (...) says which count.

        Raises:
          ValueError: if the shapes don't fit.
        """
        logits, labels = tnp.asarray(logits), tnp.asarray(labels)
        if logits.shape[:-1] != labels.shape or logits.ndim == 0:
            raise ValueError(
                "TopKAccuracy.update takes logits (..., classes) and labels (...); got "
                f"{td.typeof(logits)} and {td.typeof(labels)}{at(user_source())}"
            )
        here = masked("TopKAccuracy", labels.shape, where)
        numbers = tnp.arange(logits.shape[-1])
        label = labels[..., None]
        mine = numbers == label
        own = tnp.where(mine, logits, 0).sum(-1, keepdims=True)
        before = (logits > own) | ((logits == own) & (numbers < label))
        right = mine.any(-1) & (before.sum(-1) < self.k)
        return replace(
            self,
            correct=self.correct + counted(here & right),
            count=self.count + counted(here),
        )

    def compute(self) -> td.Array:
        return _share(self.correct, self.count)


def _tallied(here: Any, classes: Any, number: int) -> td.Array:
    """How many examples there are of each class; of no other class any."""
    flat = tnp.where(here, classes, -1).reshape(-1).astype(tnp.int32)
    ones = tnp.ones(flat.shape, tnp.int64)
    return td.segment_sum(ones, flat, number)


@partial(tree.register_dataclass, static=("classes",))
@dataclass(frozen=True)
class ConfusionMatrix(Metric):
    """How often each class was taken for each: rows are labels, columns predictions.

    Labels and predictions that are no class are left out.

    >>> matrix = ConfusionMatrix(2).update(tnp.array([0, 1, 1]), tnp.array([0, 0, 1]))
    >>> matrix.compute()
    Array([[1, 1],
           [0, 1]], dtype=int64)
    """

    classes: int
    counts: Any = None

    def __post_init__(self) -> None:
        if self.counts is None:
            zeros = tnp.zeros((self.classes, self.classes), tnp.int64)
            object.__setattr__(self, "counts", zeros)

    def update(self, predictions: Any, labels: Any, where: Any = None) -> Self:
        """With more examples; arguments as of `Accuracy.update`."""
        guess, label = _guesses("ConfusionMatrix", predictions, labels)
        here = masked("ConfusionMatrix", label.shape, where)
        size = self.classes
        here &= (guess >= 0) & (guess < size) & (label >= 0) & (label < size)
        cells = _tallied(here, label.astype(tnp.int32) * size + guess, size * size)
        return replace(self, counts=self.counts + cells.reshape(size, size))

    def compute(self) -> td.Array:
        return self.counts


class _OfClasses(Metric):
    """What is known of each class: how often it was right, predicted, and there."""

    classes: int
    average: str | None
    right: Any
    predicted: Any
    actual: Any

    def __post_init__(self) -> None:
        if self.average not in AVERAGES:
            raise ValueError(
                f"{type(self).__name__}: average is one of "
                f"{', '.join(map(repr, AVERAGES))}, got {self.average!r}"
                f"{at(user_source())}"
            )
        if self.average == "binary" and self.classes != 2:
            raise ValueError(
                f'{type(self).__name__}: average="binary" looks at class 1 of 2, and '
                f"there are {self.classes} classes{at(user_source())}\n"
                'Choose "macro", "micro", "weighted" or None.'
            )
        for name in ("right", "predicted", "actual"):
            if getattr(self, name) is None:
                zeros = tnp.zeros(self.classes, tnp.int64)
                object.__setattr__(self, name, zeros)

    def update(self, predictions: Any, labels: Any, where: Any = None) -> Self:
        """With more examples; arguments as of `Accuracy.update`."""
        name, number = type(self).__name__, self.classes
        guess, label = _guesses(name, predictions, labels)
        here = masked(name, label.shape, where)
        return replace(  # type: ignore[type-var]
            self,
            right=self.right + _tallied(here & (guess == label), label, number),
            predicted=self.predicted + _tallied(here, guess, number),
            actual=self.actual + _tallied(here, label, number),
        )

    def _averaged(self, part: Any, whole: Any) -> td.Array:
        """Of each class, or averaged; 0 where a class has nothing to be a share of."""
        if self.average == "micro":
            part, whole = part.sum(), whole.sum()
        each = (part / tnp.maximum(whole, 1)).astype(tnp.float32)
        if self.average == "macro":
            return each.mean()
        if self.average == "weighted":
            weights = self.actual / tnp.maximum(self.actual.sum(), 1)
            return (each * weights.astype(tnp.float32)).sum()
        return each[1] if self.average == "binary" else each


@partial(tree.register_dataclass, static=("classes", "average"))
@dataclass(frozen=True)
class Precision(_OfClasses):
    """Of what was predicted to be of a class, the share that is.

    Args:
      average: "binary" for class 1 of 2, "micro" over all examples, "macro" the mean
        over classes, "weighted" that by their numbers of examples, or None for each.

    A class that was never predicted counts as 0.

    >>> seen = Precision(2).update(tnp.array([1, 1, 0]), tnp.array([1, 0, 1]))
    >>> seen.compute()
    Array(0.5, dtype=float32)
    """

    classes: int
    average: str | None = "binary"
    right: Any = None
    predicted: Any = None
    actual: Any = None

    def compute(self) -> td.Array:
        return self._averaged(self.right, self.predicted)


@partial(tree.register_dataclass, static=("classes", "average"))
@dataclass(frozen=True)
class Recall(_OfClasses):
    """Of what is of a class, the share that was predicted to be; `average` as of
    `Precision`. A class that never was there counts as 0.

    >>> seen = Recall(2).update(tnp.array([1, 1, 0]), tnp.array([1, 0, 1]))
    >>> seen.compute()
    Array(0.5, dtype=float32)
    """

    classes: int
    average: str | None = "binary"
    right: Any = None
    predicted: Any = None
    actual: Any = None

    def compute(self) -> td.Array:
        return self._averaged(self.right, self.actual)


@partial(tree.register_dataclass, static=("classes", "average"))
@dataclass(frozen=True)
class F1(_OfClasses):
    """The harmonic mean of `Precision` and `Recall`; `average` as of these.

    >>> seen = F1(3, "macro").update(tnp.array([0, 1, 1]), tnp.array([0, 1, 2]))
    >>> seen.compute()
    Array(0.5556, dtype=float32)
    """

    classes: int
    average: str | None = "binary"
    right: Any = None
    predicted: Any = None
    actual: Any = None

    def compute(self) -> td.Array:
        return self._averaged(2 * self.right, self.predicted + self.actual)

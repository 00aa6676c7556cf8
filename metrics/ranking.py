"""How well scores put examples of class 1 before those of class 0."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.metrics.base import Metric, masked, pair


class _OfScores(Metric):
    """How many examples of each class have scores in each of many bins."""

    bins: int
    positive: Any
    negative: Any

    def __post_init__(self) -> None:
        for name in ("positive", "negative"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, tnp.zeros(self.bins, tnp.int64))

    def update(self, scores: Any, labels: Any, where: Any = None) -> Self:
        """With more examples: scores from 0 to 1, such as probabilities, and labels, 0
        or 1, of one shape; `where` says which count."""
        name = type(self).__name__
        x, y = pair(f"{name}.update", scores, labels)
        here, y = masked(name, x.shape, where), y.astype(bool)
        place = tnp.clip(
            tnp.floor(x.astype(tnp.float32) * self.bins), 0, self.bins - 1
        ).astype(tnp.int32)

        def tallied(flags: Any) -> Any:
            flat = tnp.where(flags, place, -1).reshape(-1)
            return td.segment_sum(tnp.ones(flat.shape, tnp.int64), flat, self.bins)

        return replace(  # type: ignore[type-var]
            self,
            positive=self.positive + tallied(here & y),
            negative=self.negative + tallied(here & ~y),
        )


@partial(tree.register_dataclass, static=("bins",))
@dataclass(frozen=True)
class ROCAUC(_OfScores):
    """The area under the ROC curve: how often the higher of the scores of two examples
    of different classes is that of class 1.

    Scores in one of the `bins` count as equal, so it is exact up to that; `roc_auc` is
    exact, and needs all scores at once. NaN without examples of both classes.

    >>> seen = ROCAUC().update(tnp.array([0.1, 0.8, 0.4]), tnp.array([0, 1, 1]))
    >>> seen.compute()
    Array(1., dtype=float32)
    """

    bins: int = 1000
    positive: Any = None
    negative: Any = None

    def compute(self) -> td.Array:
        above, below = _wide(self.positive), _wide(self.negative)
        won = (above * (tnp.cumsum(below) - 0.5 * below)).sum()
        return (won / (above.sum() * below.sum())).astype(tnp.float32)


@partial(tree.register_dataclass, static=("bins",))
@dataclass(frozen=True)
class AveragePrecision(_OfScores):
    """The area under the curve of precision over recall, as steps.

    Scores in one of the `bins` count as equal; `average_precision` is exact, and needs
    all scores at once. NaN without examples of class 1.

    >>> scores, labels = tnp.array([0.9, 0.8, 0.4]), tnp.array([0, 1, 1])
    >>> AveragePrecision().update(scores, labels).compute()
    Array(0.5833, dtype=float32)
    """

    bins: int = 1000
    positive: Any = None
    negative: Any = None

    def compute(self) -> td.Array:
        here = _wide(self.positive)
        right = tnp.flip(tnp.cumsum(tnp.flip(here)))
        seen = tnp.flip(tnp.cumsum(tnp.flip(here + _wide(self.negative))))
        gained = (here * right / tnp.maximum(seen, 1)).sum()
        return (gained / here.sum()).astype(tnp.float32)


def _wide(counts: Any) -> Any:
    # Products of two counts, exactly.
    return counts.astype(tnp.float64)


def _sorted(name: str, scores: Any, labels: Any) -> tuple[Any, Any, Any]:
    """Scores in order, the same as they were, and labels, all with one axis."""
    x, y = pair(name, scores, labels)
    x = x.reshape(-1)
    return tnp.sort(x), x, y.reshape(-1).astype(tnp.float32)


def roc_auc(scores: tnp.ArrayLike, labels: tnp.ArrayLike) -> td.Array:
    """The area under the ROC curve of all examples, exactly: how often the higher of
    the scores of two examples of different classes is that of class 1; equal ones
    count half.

    Shapes: scores, and labels of 0 and 1, of one shape. NaN without both classes.

    >>> roc_auc(tnp.array([0.1, 0.4, 0.35, 0.8]), tnp.array([0, 0, 1, 1]))
    Array(0.75, dtype=float32)
    """
    order, x, y = _sorted("roc_auc", scores, labels)
    below = tnp.searchsorted(order, x, side="left")
    rank = 0.5 * (below + tnp.searchsorted(order, x, side="right") + 1)
    n, positive = x.size, _wide(y).sum()
    won = (_wide(rank) * y).sum() - positive * (positive + 1) / 2
    return (won / (positive * (n - positive))).astype(tnp.float32)


def average_precision(scores: tnp.ArrayLike, labels: tnp.ArrayLike) -> td.Array:
    """The area under the curve of precision over recall of all examples, exactly: the
    mean over class 1 of the precision among the scores that are no lower.

    Shapes: scores, and labels of 0 and 1, of one shape. NaN without class 1.

    >>> average_precision(tnp.array([0.1, 0.4, 0.35, 0.8]), tnp.array([0, 0, 1, 1]))
    Array(0.8333, dtype=float32)
    """
    order, x, y = _sorted("average_precision", scores, labels)
    seen = x.size - tnp.searchsorted(order, x, side="left")
    places = tnp.argsort(x)
    before = tnp.concatenate([tnp.zeros(1, y.dtype), tnp.cumsum(y[places])])
    right = y.sum() - before[x.size - seen]
    return ((y * right / seen).sum() / y.sum()).astype(tnp.float32)

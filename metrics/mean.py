"""Means, and what else is known from a pass over values."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Self

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.metrics.base import (
    Metric,
    check_alike,
    count,
    counted,
    masked,
    number,
    pair,
)


@tree.register_dataclass
@dataclass(frozen=True)
class Mean(Metric):
    """The mean of values, such as losses.

    It is kept as it is, not as a sum, which would lose digits.

    >>> Mean().update(tnp.array([1.0, 2.0])).update(6.0).compute()
    Array(3., dtype=float32)
    """

    mean: Any = field(default_factory=number)
    weight: Any = field(default_factory=number)

    def update(self, values: tnp.ArrayLike, weights: Any = None) -> Self:
        """The mean of more values, of any shape.

        Args:
          weights: of the values, of their shape; bools leave out values, NaN too.
        """
        x = tnp.asarray(values).astype(tnp.float32)
        if weights is None:
            w = tnp.ones(x.shape, tnp.float32)
        else:
            x, w = pair("Mean.update", x, weights)
            w = w.astype(tnp.float32)
            x = tnp.where(w == 0, 0, x)
        total = w.sum()
        mean = (w * x).sum() / tnp.where(total == 0, 1, total)
        return self.merge(replace(self, mean=mean, weight=total))

    def merge(self, other: Self) -> Self:
        check_alike(self, other)
        weight = self.weight + other.weight
        share = other.weight / tnp.where(weight == 0, 1, weight)
        mean = self.mean + (other.mean - self.mean) * share
        return replace(self, mean=mean, weight=weight)

    def compute(self) -> td.Array:
        return tnp.where(self.weight == 0, tnp.nan, self.mean)


@tree.register_dataclass
@dataclass(frozen=True)
class Perplexity(Metric):
    """``exp`` of the mean of losses: over how many tokens a model is undecided.

    >>> Perplexity().update(tnp.log(tnp.array([4.0, 9.0]))).compute()
    Array(6., dtype=float32)
    """

    losses: Mean = field(default_factory=Mean)

    def update(self, losses: tnp.ArrayLike, weights: Any = None) -> Self:
        """With more losses, such as those of `nn.cross_entropy`; `weights` as those of
        `Mean`, bools for padding."""
        return replace(self, losses=self.losses.update(losses, weights))

    def merge(self, other: Self) -> Self:
        check_alike(self, other)
        return replace(self, losses=self.losses.merge(other.losses))

    def compute(self) -> td.Array:
        return tnp.exp(self.losses.compute())


class Summary(NamedTuple):
    """What `Statistics` know; the variance and its root are those of a population."""

    mean: td.Array
    variance: td.Array
    std: td.Array
    min: td.Array
    max: td.Array
    number: td.Array


@tree.register_dataclass
@dataclass(frozen=True)
class Statistics(Metric):
    """Mean, variance, extremes and number of values, in one pass (Welford 1962, merged
    as Chan et al. 1979).

    >>> found = Statistics().update(tnp.array([1.0, 3.0])).update(8.0).compute()
    >>> found.mean, found.variance, found.max
    (Array(4., dtype=float32), Array(8.6667, dtype=float32), Array(8., dtype=float32))
    """

    mean: Any = field(default_factory=number)
    squares: Any = field(default_factory=number)
    least: Any = field(default_factory=lambda: tnp.asarray(tnp.inf, tnp.float32))
    most: Any = field(default_factory=lambda: tnp.asarray(-tnp.inf, tnp.float32))
    count: Any = field(default_factory=count)

    def update(self, values: tnp.ArrayLike, where: Any = None) -> Self:
        """With more values, of any shape; `where` says which count."""
        x = tnp.asarray(values).astype(tnp.float32)
        here = masked("Statistics", x.shape, where)
        n = counted(here)
        mean = tnp.where(here, x, 0).sum() / tnp.maximum(n, 1)
        squares = tnp.square(tnp.where(here, x - mean, 0)).sum()
        least = tnp.where(here, x, tnp.inf).min(initial=tnp.inf)
        most = tnp.where(here, x, -tnp.inf).max(initial=-tnp.inf)
        return self.merge(type(self)(mean, squares, least, most, n))

    def merge(self, other: Self) -> Self:
        check_alike(self, other)
        n = self.count + other.count
        gap = other.mean - self.mean
        share = (other.count / tnp.maximum(n, 1)).astype(tnp.float32)
        spread = tnp.square(gap) * share * self.count.astype(tnp.float32)
        return type(self)(
            self.mean + gap * share,
            self.squares + other.squares + spread,
            tnp.minimum(self.least, other.least),
            tnp.maximum(self.most, other.most),
            n,
        )

    def reset(self) -> Self:
        fresh = type(self)()
        return tree.map(lambda x, new: tnp.full_like(x, new), self, fresh)

    def compute(self) -> Summary:
        mean = tnp.where(self.count == 0, tnp.nan, self.mean)
        variance = (self.squares / tnp.maximum(self.count, 1)).astype(tnp.float32)
        variance = tnp.where(self.count == 0, tnp.nan, variance)
        deviation = tnp.sqrt(variance)
        return Summary(mean, variance, deviation, self.least, self.most, self.count)

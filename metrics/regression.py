"""How far predictions of real values are off."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

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
from treadle.metrics.mean import Mean


@partial(tree.register_dataclass, static=("root",))
@dataclass(frozen=True)
class MeanSquaredError(Metric):
    """The mean of ``(prediction - target)²``, or its square root.

    >>> seen = MeanSquaredError().update(tnp.array([1.0, 5.0]), tnp.array([1.0, 3.0]))
    >>> seen.compute()
    Array(2., dtype=float32)
    """

    root: bool = False
    errors: Mean = field(default_factory=Mean)

    def update(self, predictions: Any, targets: Any, where: Any = None) -> Self:
        """With more values, of any one shape; `where` says which count."""
        x, y = pair("MeanSquaredError.update", predictions, targets)
        errors = tnp.square(x.astype(tnp.float32) - y.astype(tnp.float32))
        return replace(self, errors=self.errors.update(errors, where))

    def merge(self, other: Self) -> Self:
        check_alike(self, other)
        return replace(self, errors=self.errors.merge(other.errors))

    def compute(self) -> td.Array:
        mean = self.errors.compute()
        return tnp.sqrt(mean) if self.root else mean


@tree.register_dataclass
@dataclass(frozen=True)
class _Moments:
    """Means of two values, and sums of products of their distances from these."""

    x: Any = field(default_factory=number)
    y: Any = field(default_factory=number)
    xx: Any = field(default_factory=number)
    xy: Any = field(default_factory=number)
    yy: Any = field(default_factory=number)
    count: Any = field(default_factory=count)

    def update(self, name: str, x: Any, y: Any, where: Any) -> _Moments:
        x, y = pair(f"{name}.update", x, y)
        x, y = x.astype(tnp.float32), y.astype(tnp.float32)
        here = masked(name, x.shape, where)
        n = counted(here)
        mean_x, mean_y = [
            tnp.where(here, v, 0).sum() / tnp.maximum(n, 1).astype(tnp.float32)
            for v in (x, y)
        ]
        a, b = tnp.where(here, x - mean_x, 0), tnp.where(here, y - mean_y, 0)
        sums = (a * a).sum(), (a * b).sum(), (b * b).sum()
        return self.merge(_Moments(mean_x, mean_y, *sums, n))

    def merge(self, other: _Moments) -> _Moments:
        n = self.count + other.count
        share = (other.count / tnp.maximum(n, 1)).astype(tnp.float32)
        both = share * self.count.astype(tnp.float32)
        x, y = other.x - self.x, other.y - self.y
        return _Moments(
            self.x + x * share,
            self.y + y * share,
            self.xx + other.xx + both * x * x,
            self.xy + other.xy + both * x * y,
            self.yy + other.yy + both * y * y,
            n,
        )


@tree.register_dataclass
@dataclass(frozen=True)
class R2(Metric):
    """The share of the variance of targets that predictions explain: 1 is perfect, 0
    no better than the mean.

    >>> R2().update(tnp.array([1.0, 2.0, 2.0]), tnp.array([1.0, 2.0, 3.0])).compute()
    Array(0.5, dtype=float32)
    """

    errors: Mean = field(default_factory=Mean)
    moments: _Moments = field(default_factory=_Moments)

    def update(self, predictions: Any, targets: Any, where: Any = None) -> Self:
        """With more values, of any one shape; `where` says which count."""
        moments = self.moments.update("R2", targets, targets, where)
        x, y = (tnp.asarray(v).astype(tnp.float32) for v in (predictions, targets))
        x, y = pair("R2.update", x, y)
        return replace(
            self,
            errors=self.errors.update(tnp.square(x - y), where),
            moments=moments,
        )

    def merge(self, other: Self) -> Self:
        check_alike(self, other)
        errors = self.errors.merge(other.errors)
        return replace(self, errors=errors, moments=self.moments.merge(other.moments))

    def compute(self) -> td.Array:
        return 1 - self.errors.mean * self.errors.weight / self.moments.xx


@tree.register_dataclass
@dataclass(frozen=True)
class Pearson(Metric):
    """The correlation of predictions and targets, from -1 to 1.

    >>> seen = Pearson().update(tnp.array([1.0, 2.0, 3.0]), tnp.array([9.0, 6.0, 3.0]))
    >>> seen.compute()
    Array(-1., dtype=float32)
    """

    moments: _Moments = field(default_factory=_Moments)

    def update(self, predictions: Any, targets: Any, where: Any = None) -> Self:
        """With more values, of any one shape; `where` says which count."""
        moments = self.moments.update("Pearson", predictions, targets, where)
        return replace(self, moments=moments)

    def merge(self, other: Self) -> Self:
        check_alike(self, other)
        return replace(self, moments=self.moments.merge(other.moments))

    def compute(self) -> td.Array:
        m = self.moments
        return m.xy / (tnp.sqrt(m.xx) * tnp.sqrt(m.yy))

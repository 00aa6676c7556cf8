"""The unit of this package: a pytree that is updated, merged and read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source

_NOT_STACKED = """\
merged takes one metric whose leaves are stacked, as `td.vmap` gives it, not a {found} \
of them{at}
Of single ones: `a.merge(b)`."""


class Metric(ABC):
    """A number about many examples, of which it keeps only what has to be summed.

    ``metric.update(...)`` gives the metric with more examples, `merge` that of two sets
    of examples, `compute` the number; `reset` begins anew. Nothing is changed in place,
    and every metric is a pytree whose leaves keep their types: it may be carried by a
    `scan`, mapped by `vmap`, donated to a jitted function.
    """

    @abstractmethod
    def compute(self) -> Any:
        """What it measures; NaN where there were no examples."""

    def merge(self, other: Self) -> Self:
        """The metric of the examples of both.

        Raises:
          TypeError: for a metric of another kind, or with other options.
        """
        check_alike(self, other)
        return tree.map(lambda a, b: a + b, self, other)

    def reset(self) -> Self:
        """The metric without examples."""
        return tree.map(tnp.zeros_like, self)


def check_alike(metric: Metric, other: Any) -> None:
    """
    Raises:
      TypeError: for a metric of another kind, or with other options.
    """
    if tree.structure(metric) != tree.structure(other):
        raise TypeError(
            f"{type(metric).__name__}.merge takes a metric like itself: "
            f"{tree.difference(tree.structure(metric), tree.structure(other))}"
            f"{at(user_source())}"
        )


def count() -> td.Array:
    """No examples yet; of 64 bits, so that no set of examples is too large."""
    return tnp.zeros((), tnp.int64)


def number() -> td.Array:
    """A sum of nothing."""
    return tnp.zeros((), tnp.float32)


def counted(flags: td.Array) -> td.Array:
    """How many are true."""
    return flags.sum(dtype=tnp.int64)


def masked(name: str, shape: tuple, where: Any) -> td.Array:
    """Which examples count, as bools of the given shape.

    Raises:
      ValueError: if `where` has another shape.
    """
    if where is None:
        return tnp.ones(shape, bool)
    where = tnp.asarray(where)
    if where.shape != shape:
        raise ValueError(
            f"{name}.update: where says of each example whether it counts, bools of "
            f"shape {shape}; got {td.typeof(where)}{at(user_source())}"
        )
    return where.astype(bool)


def pair(name: str, x: Any, y: Any) -> tuple[td.Array, td.Array]:
    """Both as arrays of one shape.

    Raises:
      ValueError: if the shapes differ.
    """
    x, y = tnp.asarray(x), tnp.asarray(y)
    if x.shape != y.shape:
        raise ValueError(
            f"{name} takes two arrays of one shape; got {td.typeof(x)} and "
            f"{td.typeof(y)}{at(user_source())}"
        )
    return x, y


def merged(stack: Any) -> Any:
    """One metric of many that are stacked along the first axis of their leaves, as
    `vmap` and `scan` give them.

    >>> from treadle import metrics
    >>> halves = td.vmap(lambda x: metrics.Mean().update(x))(tnp.array([[1.0], [2.0]]))
    >>> merged(halves).compute()
    Array(1.5, dtype=float32)

    Raises:
      TypeError: for a list of metrics.
    """
    if isinstance(stack, list | tuple):
        raise TypeError(
            _NOT_STACKED.format(found=type(stack).__name__, at=at(user_source()))
        )
    first = tree.map(lambda x: x[0], stack)
    rest = tree.map(lambda x: x[1:], stack)
    return td.scan(lambda sofar, one: (sofar.merge(one), None), first, rest)[0]

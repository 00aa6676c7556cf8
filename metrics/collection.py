"""Several metrics that are updated at once."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from treadle import tree
from treadle.errors import at, user_source
from treadle.metrics.base import Metric, check_alike

_NOT_METRICS = """\
Collection takes a dict of metrics by name, got {found!r:.80}{at}
For example `metrics.Collection({{"loss": metrics.Mean()}})`."""
_CLASS = """\
Collection: {name!r} is the class {kind}, not a metric{at}
Make one of it: `{kind}(...)`."""


@tree.register_dataclass
@dataclass(frozen=True)
class Collection(Metric):
    """Metrics by name. Each takes from the arguments of `update` those that it names; a
    metric of one thing (`Mean`, `Perplexity`) takes what has its own name.

    >>> import treadle.numpy as tnp
    >>> from treadle import metrics
    >>> seen = Collection({"loss": metrics.Mean(), "accuracy": metrics.Accuracy()})
    >>> seen = seen.update(
    ...     loss=tnp.array([0.5, 1.5]),
    ...     predictions=tnp.array([0, 1]),
    ...     labels=tnp.array([0, 0]),
    ... )
    >>> seen.compute()
    {'loss': Array(1., dtype=float32), 'accuracy': Array(0.5, dtype=float32)}
    """

    metrics: Mapping[str, Metric]

    def __post_init__(self) -> None:
        named = isinstance(self.metrics, Mapping)
        if not named or not all(hasattr(m, "update") for m in self.metrics.values()):
            raise TypeError(
                _NOT_METRICS.format(found=self.metrics, at=at(user_source()))
            )
        for name, metric in self.metrics.items():
            if isinstance(metric, type):
                raise TypeError(
                    _CLASS.format(name=name, kind=metric.__name__, at=at(user_source()))
                )

    def __getitem__(self, name: str) -> Metric:
        return self.metrics[name]

    def update(self, **arguments: Any) -> Self:
        """With more examples.

        Raises:
          TypeError: if a metric lacks an argument, or none takes one.
        """
        used: set[str] = set()
        after = {}
        for name, metric in self.metrics.items():
            taken = _taken(name, metric, arguments)
            used |= taken.values() & arguments.keys()
            update: Any = metric.update  # type: ignore[attr-defined]
            after[name] = update(**{own: arguments[n] for own, n in taken.items()})
        left = arguments.keys() - used
        if left:
            raise TypeError(
                f"Collection.update: no metric takes {', '.join(sorted(left))}"
                f"{at(user_source())}"
            )
        return replace(self, metrics=after)

    def merge(self, other: Self) -> Self:
        check_alike(self, other)
        both = {n: m.merge(other.metrics[n]) for n, m in self.metrics.items()}
        return replace(self, metrics=both)

    def reset(self) -> Self:
        return replace(self, metrics={n: m.reset() for n, m in self.metrics.items()})

    def compute(self) -> dict[str, Any]:
        return {name: metric.compute() for name, metric in self.metrics.items()}


def _taken(name: str, metric: Metric, arguments: Mapping[str, Any]) -> dict[str, str]:
    """For each argument of a metric's update, the name of what it gets."""
    wanted = inspect.signature(metric.update).parameters  # type: ignore[attr-defined]
    required = [p.name for p in wanted.values() if p.default is p.empty]
    taken = {own: own for own in wanted if own in arguments}
    if len(required) == 1 and name in arguments:
        taken[required[0]] = name
    missing = [own for own in required if own not in taken]
    if missing:
        raise TypeError(
            f"Collection.update: {name!r}, {type(metric).__name__}, needs "
            f"{', '.join(missing)}; got {', '.join(arguments) or 'nothing'}"
            f"{at(user_source())}"
        )
    return taken

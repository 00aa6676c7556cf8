"""Batches in an order that a key and a position determine: no state, exact resume."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from treadle import rng
from treadle.data.order import Order
from treadle.recipes.errors import UsageError


class Position(NamedTuple):
    """Which batch comes next. Saved with every checkpoint."""

    epoch: int = 0
    batch: int = 0


class Batches:
    """Examples in random order, another one in each epoch.

    What is left when an epoch's examples don't fill a batch is not seen in that epoch.

    Args:
      fetch: from the numbers of some examples to the examples.
      count: how many examples there are.
      size: examples per batch.
      key: determines the orders.

    >>> import numpy as np
    >>> batches = Batches(lambda numbers: numbers, count=5, size=2, key=rng.key(0))
    >>> first, position = batches.take(Position())
    >>> position
    Position(epoch=0, batch=1)
    >>> again, _ = batches.take(Position())
    >>> bool(np.all(first == again))
    True
    """

    def __init__(
        self, fetch: Callable[[np.ndarray], Any], count: int, size: int, key: Any
    ) -> None:
        if size > count:
            raise UsageError(
                f"--batch-size {size}: there are {count} training examples only"
            )
        self.fetch, self.count, self.size, self.key = fetch, count, size, key
        self._order: tuple[int, Order] | None = None

    @property
    def per_epoch(self) -> int:
        """The number of batches in an epoch."""
        return self.count // self.size

    def take(self, position: Position) -> tuple[Any, Position]:
        """The batch at a position, and the next position."""
        start = position.batch * self.size
        batch = self.fetch(self._epoch(position.epoch)[start : start + self.size])
        if position.batch + 1 < self.per_epoch:
            return batch, Position(position.epoch, position.batch + 1)
        return batch, Position(position.epoch + 1, 0)

    def _epoch(self, epoch: int) -> Order:
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, Order(rng.fold_in(self.key, epoch), self.count)
        return self._order[1]


def in_turn(
    fetch: Callable[[np.ndarray], Any], count: int, size: int
) -> Iterator[tuple[Any, int]]:
    """All examples once, in batches, each with its size: for tests."""
    for start in range(0, count, size):
        numbers = np.arange(start, min(start + size, count))
        yield fetch(numbers), len(numbers)

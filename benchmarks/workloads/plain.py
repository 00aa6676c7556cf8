"""Single products, and calls that do next to nothing."""

from dataclasses import dataclass

import numpy as np

from workloads.dense import normal
from workloads.program import Program


@dataclass(frozen=True)
class Product(Program):
    """The product of two square matrices of the dtype."""

    trains: bool = False
    size: int = 2048

    def drawn(self, rng):
        return {}

    def examples(self, rng):
        return tuple(normal(rng, self.size, self.size) for _ in range(2))

    def loss(self, F, p, a, b):
        return a @ b


@dataclass(frozen=True)
class Calls(Program):
    """A thousand calls with small arrays, so that milliseconds of a step are
    microseconds of a call."""

    trains: bool = False
    repeat: int = 1000
    arrays: int = 1
    to_one: bool = False
    """Whether the arrays are added up; else each has 1 added."""

    def drawn(self, rng):
        return {}

    def examples(self, rng):
        return tuple(np.full(4, i, np.float32) for i in range(self.arrays))

    def loss(self, F, p, *xs):
        return sum(xs[1:], xs[0]) if self.to_one else [x + 1 for x in xs]

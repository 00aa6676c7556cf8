"""The record of the op tables: an op, what it must agree with, and arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from treadle.trace.op import Op

Draw = Callable[[np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Case:
    """One application of an op.

    oracle: the same function of the same arrays, by JAX. (Results of ops with several
      are a list or tuple.)
    args: how to draw each argument; real ones in float64.
    params: of the op; the oracle knows them.
    smooth: whether it has derivatives; without them, it says so.
    second: whether second derivatives exist where the arguments are drawn.
    tolerance: how far apart float64 results may be.
    slow: whether it is one of many like it, which run with the slow tests.
    """

    op: Op
    oracle: Callable[..., Any]
    args: tuple[Draw, ...]
    params: dict[str, Any] = field(default_factory=dict)
    label: str = ""
    smooth: bool = True
    second: bool = True
    tolerance: float = 1e-9
    slow: bool = False

    def function(self, *arrays: Any) -> tuple[Any, ...]:
        """The op's results, always as a tuple."""
        out = self.op(*arrays, **self.params)
        return tuple(out) if self.op.multiple else (out,)

    def expected(self, *arrays: Any) -> tuple[Any, ...]:
        """The oracle's results, always as a tuple."""
        out = self.oracle(*arrays)
        return tuple(out) if isinstance(out, list | tuple) else (out,)

    def draw(self, seed: int = 0) -> list[np.ndarray]:
        """Arguments; other ones for another seed."""
        rng = np.random.default_rng(seed)
        return [np.asarray(draw(rng)) for draw in self.args]

    @property
    def name(self) -> str:
        return f"{self.op.name}-{self.label}" if self.label else self.op.name


def normal(*shape: int) -> Draw:
    return lambda rng: rng.normal(size=shape)


def between(low: float, high: float, *shape: int) -> Draw:
    return lambda rng: rng.uniform(low, high, size=shape)


def distinct(*shape: int) -> Draw:
    """Numbers of which no two are close, in random order."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        n = int(np.prod(shape))
        return ((rng.permutation(n) - n / 2) / 4 + 0.1).reshape(shape)

    return draw


def complexes(*shape: int) -> Draw:
    return lambda rng: rng.normal(size=shape) + 1j * rng.normal(size=shape)


def integers(low: int, high: int, *shape: int, dtype: str = "int32") -> Draw:
    return lambda rng: rng.integers(low, high, size=shape).astype(dtype)


def booleans(*shape: int) -> Draw:
    return lambda rng: rng.random(shape) < 0.5


def constant(values: Any, dtype: str = "float64") -> Draw:
    """The same for every seed: places where a function is special."""
    return lambda rng: np.asarray(values, dtype)

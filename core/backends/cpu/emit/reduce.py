"""Reductions: what to carry, how to combine two partial results, how to finish.

A partial result is a list of values ("parts"): one for most reductions, value and index
for argmax and argmin. Parts are vectors while a sweep runs, and a row reduction ends by
combining the lanes pairwise; the order depends on the row's length alone, never on how
rows are divided among tasks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import (
    Value,
    bits,
    constant,
    is_signed,
    lane_numbers,
    register_kind,
    select,
)
from treadle.backends.cpu.emit.ops import extremum
from treadle.records import record

Parts = list[Value]

COMBINING = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}
"""What combines what is stored with what is there."""

BLOCK_TURNS = 256
"""How many turns of a loop add to the same sum. Longer sums are added block by block,
so that a sum of millions is rounded little more than one of hundreds."""


@record(frozen=True)
class Reduction:
    """name: "sum", "prod", "max", "min", "and", "or", "argmax" or "argmin"."""

    name: str
    dtype: np.dtype
    index: np.dtype | None = None

    @property
    def with_index(self) -> bool:
        return self.index is not None

    @property
    def width(self) -> int:
        """How many parts there are."""
        return 2 if self.with_index else 1

    @property
    def rounds(self) -> bool:
        """Whether each term is rounded, so that long sums are better made of blocks."""
        return self.name == "sum" and register_kind(self.dtype) in ("float", "double")

    @property
    def is_exact(self) -> bool:
        """Whether any order of terms gives the same bits. Of two zeros, or of two NaNs,
        the order tells which it is."""
        return self.with_index or register_kind(self.dtype) not in ("float", "double")

    def identity(self, b: Builder, lanes: int, first: int = 0) -> Parts:
        """Parts that change nothing; `first` is the index of the first lane."""
        kind = register_kind(self.dtype)
        start = constant(b, self.neutral, kind, lanes)
        if self.index is None:
            return [start]
        word = register_kind(self.index)
        return [start, lane_numbers(b, word, lanes) + first]

    def identity_of_each(self, b: Builder, lanes: int) -> Parts:
        """Parts that change nothing, where each lane is a reduction of its own."""
        start = self.identity(b, lanes)
        return [start[0], start[1].like(0)] if self.with_index else start

    @property
    def neutral(self) -> int | float:
        """The number that changes nothing."""
        kind = register_kind(self.dtype)
        if self.name in ("sum", "or"):
            return 0
        if self.name == "prod":
            return 1
        if self.name == "and":
            return -1
        lowest = self.name in ("max", "argmax")
        if kind in ("float", "double"):
            return float("-inf") if lowest else float("inf")
        if not is_signed(self.dtype):
            return 0 if lowest else -1
        half = 1 << (bits(kind) - 1)
        return -half if lowest else half - 1

    def combine(self, x: Parts, y: Parts) -> Parts:
        """Of equal candidates for argmax, the one with the lower index wins."""
        if self.with_index:
            wins = self._beats(x, y)
            return [select(wins, a, b) for a, b in zip(x, y, strict=True)]
        a, b = x[0], y[0]
        if self.name in ("max", "min"):
            return [extremum(a, b, self.name == "max", is_signed(self.dtype))]
        if self.name == "sum":
            return [a | b if a.kind == "i1" else a + b]
        if self.name == "prod":
            return [a & b if a.kind == "i1" else a * b]
        return [a & b if self.name == "and" else a | b]

    def followed(self, x: Parts, y: Parts) -> Parts:
        """The same, where no index of `y` is before that of `x`."""
        if not self.with_index:
            return self.combine(x, y)
        largest = self.name == "argmax"
        if x[0].is_float:
            wins = y[0].compare("ugt" if largest else "ult", x[0])
            wins = wins & x[0].compare("ord", x[0])
        else:
            how = ("s" if is_signed(self.dtype) else "u") + ("gt" if largest else "lt")
            wins = y[0].compare(how, x[0])
        return [select(wins, b, a) for a, b in zip(x, y, strict=True)]

    def _beats(self, x: Parts, y: Parts) -> Value:
        largest = self.name == "argmax"
        earlier = x[1].compare("slt", y[1])
        if not x[0].is_float:
            how = ("s" if is_signed(self.dtype) else "u") + ("gt" if largest else "lt")
            equal = x[0].compare("eq", y[0])
            return x[0].compare(how, y[0]) | (equal & earlier)
        x_nan, y_nan = x[0].is_nan(), y[0].is_nan()
        beyond = x[0].compare("ogt" if largest else "olt", y[0])
        equal = x[0].compare("oeq", y[0]) | (x_nan & y_nan)
        return beyond | (x_nan & ~y_nan) | (equal & earlier)

    def across_lanes(self, parts: Parts) -> Parts:
        """Combines the lanes, halving their number each time."""
        while (lanes := parts[0].lanes) > 2:
            half = lanes // 2
            low = [p.shuffle(list(range(half))) for p in parts]
            high = [p.shuffle(list(range(half, lanes))) for p in parts]
            parts = self.combine(low, high)
        if parts[0].lanes == 1:
            return parts
        return self.combine([p.lane(0) for p in parts], [p.lane(1) for p in parts])

    def masked(self, mask: Value, parts: Parts, otherwise: Parts) -> Parts:
        return [select(mask, p, o) for p, o in zip(parts, otherwise, strict=True)]


def combined(reductions: Sequence[Reduction], x: Parts, y: Parts) -> Parts:
    """The parts of several reductions, combined with others of the same."""
    left, right = iter(x), iter(y)
    result = []
    for r in reductions:
        parts = ([next(side) for _ in range(r.width)] for side in (left, right))
        result += r.combine(*parts)
    return result

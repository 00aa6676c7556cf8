"""Random programs over what is unusual: many axes, of length 0 and 1, all integer
widths with overflow, infinities and zeros with signs, padding that removes and spreads.

Every step is exact, so compiled and eager programs must agree to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import treadle.numpy as tnp
from tests.core.fuse import random_rules
from tests.core.fuse.random_programs import NAMES, Generator, Program
from treadle.ops.shape import pad

NAMES["pad"] = pad

FLOATS = ("float32", "float32", "float64")
INTEGERS = tuple(f"{u}int{bits}" for u in ("", "u") for bits in (8, 16, 32, 64))
ODD = (0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.0, 100.0)
ODDER = (*ODD, np.inf, -np.inf, np.nan)


class Awkward(Generator):
    """Grows programs of few, exact kinds of steps."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, FLOATS)
        self.dims = [1, 1, self.r.choice([2, 3, 5]), self.r.choice([0, 2, 4, 17])]

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        return super().shape(rank or self.r.choice([0, 1, 2, 3, 4, 6, 7]))

    def input(self, shape: tuple[int, ...], kind: str = "f") -> None:
        dtype = np.dtype(self.r.choice([self.dtype, *INTEGERS, "bool"]))
        if dtype.kind in "iu":
            ends = np.iinfo(dtype)
            x = self.numbers.integers(ends.min, ends.max, shape, dtype, endpoint=True)
        elif dtype.kind == "b":
            x = self.numbers.random(shape) < 0.5
        else:
            x = self.numbers.choice(self.r.choice([ODD, ODDER]), shape)
        self.inputs.append(np.asarray(x, dtype))
        self.values.append(tnp.asarray(self.inputs[-1]))

    def comparable(self, x: np.ndarray) -> bool:
        """What is exact in any order of summation, with or without fused multiply-add:
        no large numbers."""
        if x.dtype.kind in "biu" or x.size > 4000:
            return x.size <= 4000
        y = np.abs(x[np.isfinite(x)])
        exact = y.max(initial=0) < 1 << 18 and (y * 8 == np.round(y * 8)).all()
        return x.dtype.name in FLOATS and bool(exact)


def unary(g: Generator) -> None:
    if (a := g.pick("fib")) is not None:
        g.add(g.r.choice(UNARY), a)


UNARY = (
    *("-{0}", "tnp.abs({0})", "{0} + 1", "{0} * 3", "{0} - 2", "~{0}", "1 - {0}"),
    *("tnp.sign({0})", "{0} > 0", "{0} == 0", "{0} + 0.0", "{0} * 1", "{0} * -1"),
    *("{0} << 1", "{0} >> 1", "{0} // 3", "{0} % 3", "tnp.logical_not({0})"),
    *("tnp.isnan({0})", "tnp.isfinite({0})", "tnp.signbit({0})", "tnp.floor({0})"),
)


def binary(g: Generator) -> None:
    if (a := g.pick("fib")) is None:
        return
    shape = g.values[a].shape

    def fits(v: Any) -> bool:
        both = zip(reversed(v.shape), reversed(shape), strict=False)
        return all(m == n or 1 in (m, n) for m, n in both)

    if (b := g.pick("fib", pred=fits)) is not None:
        g.add(g.r.choice(BINARY), a, b)


BINARY = (
    *("{0} + {1}", "{0} - {1}", "{0} * {1}", "tnp.where({0} > {1}, {0}, {1})"),
    *("{0} < {1}", "{0} == {1}", "{0} != {1}", "{0} & {1}", "{0} | {1}", "{0} ^ {1}"),
    *("tnp.where({0} == {0}, {1}, {0})", "tnp.copysign({0}, {1})"),
)


def convert(g: Generator) -> None:
    if (a := g.pick("fib")) is not None:
        g.add(f"{{0}}.astype('{g.r.choice((*FLOATS, *INTEGERS, 'bool'))}')", a)


def reduce(g: Generator) -> None:
    if (a := g.pick("fib", rank=1)) is None:
        return
    axes = range(g.values[a].ndim)
    some = tuple(sorted(g.r.sample(axes, g.r.randint(1, len(axes)))))
    name = g.r.choice(["sum", "any", "all", "count_nonzero", "max", "prod"])
    g.add(f"tnp.{name}({{0}}, axis={some}, keepdims={g.r.random() < 0.5})", a)


def spread(g: Generator) -> None:
    if (a := g.pick("fib")) is None:
        return
    shape = [g.r.choice([1, 2, 3, 0]) if n == 1 else n for n in g.values[a].shape]
    lead = [g.r.choice([1, 1, 2, 3]) for _ in range(g.r.randrange(3))]
    g.add(f"tnp.broadcast_to({{0}}, {(*lead, *shape)})", a)


def padding(g: Generator) -> None:
    # What is cut away again is made first: of many axes, gigabytes.
    if (a := g.pick("fib", rank=1, pred=lambda v: v.ndim < 8)) is None:
        return
    r, v = g.r, g.values[a]
    sides = [(r.randint(-2, 3), r.randint(-2, 3), r.choice([0, 0, 2])) for _ in v.shape]
    fill = r.choice(["0", "1"] if np.dtype(v.dtype).kind != "f" else ["-0.0", "np.inf"])
    number = f"np.asarray({fill}, {{0}}.dtype)[()]"
    g.add(f"pad({{0}}, {number}, padding={tuple(sides)})", a)


def gather_of_gather(g: Generator) -> None:
    a, i = g.pick("fib", rank=1), g.pick("i", pred=lambda w: 0 < w.size < 60)
    if a is None or i is None:
        return
    axis = g.r.randrange(g.values[a].ndim)
    n, size = max(g.values[a].shape[axis], 1), g.values[i].size
    inner = f"tnp.take({{1}}, {{1}} % {size})"
    g.add(f"tnp.take({{0}}, {inner} % {n}, axis={axis})", a, i)


RULES: dict[Callable[[Generator], None], float] = {
    **{unary: 8, binary: 10, convert: 4, reduce: 6, spread: 5, padding: 4},
    **{gather_of_gather: 2, random_rules.regroup: 6, random_rules.rearrange: 5},
    **{random_rules.slices: 5, random_rules.join: 3, random_rules.gather: 3},
    **{random_rules.scatter: 2, random_rules.update: 3, random_rules.broadcast: 3},
}


def generate(seed: int) -> Program:
    """The awkward program with a number."""
    g = Awkward(seed)
    for _ in range(g.r.randint(1, 3)):
        g.input(g.shape())
    length = g.r.choice([3, 5, 8, 12])
    for _ in range(200):
        if len(g.steps) >= length:
            break
        g.r.choices(list(RULES), list(RULES.values()))[0](g)
    return g.program()

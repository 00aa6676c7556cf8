"""Products of small integers: they are read as they are, and summed in 32 bits.

That is how programs spell them: operands are converted to integers of 32 bits, and
multiplied. Whatever shorter result is asked for has the last bits of that one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import hint
from treadle.ir.graph import Atom, Equation, Graph, Lit
from treadle.ops.cast import convert
from treadle.ops.dot import dot_general, free_axes
from treadle.passes.dce import drop_dead
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.lowering import Join, View

_WIDE, _NARROW, _LONG = 32, 8, 32
"""Of results that are narrower than a block, sums are worth it from twice as many terms
on; of a few rows or columns, from so many: operands are packed in blocks."""

SUMS = (dtypes.int32, dtypes.uint32)


def is_short(dtype: np.dtype) -> bool:
    """Whether integers of a dtype are summed in one of 32 bits."""
    return dtypes.is_integer(dtype) and dtype.itemsize < SUMS[0].itemsize


class Unconverted(Rewriter):
    """Finds the small integers that operands are made of, by conversions that lose
    nothing, and moves."""

    integers: Collection[np.dtype]

    @cached_property
    def moved(self) -> dict[Atom, Atom]:
        """Small integers, moved as what they are converted to has been."""
        return {}

    @cached_property
    def made(self) -> dict[Atom, Equation]:
        """What makes each value."""
        return {v: eq for eq in self.graph.equations for v in eq.outputs}

    def dtype(self, a: Atom) -> np.dtype | None:
        """Of the small integers; None if there are none."""
        eq = self.made.get(a)
        if eq is None:
            return None
        if eq.op is convert:
            return self._before(eq)
        if not isinstance(eq.op.lowering, View | Join):
            return None
        found = {self.dtype(x) for x in eq.inputs if not _is_zero(x)}
        return found.pop() if len(found) == 1 else None

    def _before(self, eq: Equation) -> np.dtype | None:
        """Before a conversion, and those before it that lose nothing."""
        given, to = eq.inputs[0], eq.outputs[0].type.dtype
        dtype, first = given.type.dtype, self.dtype(given)
        if first is not None and holds(dtype, first):
            dtype = first
        # Integers of 32 bits, in which these are summed, wrap around.
        kept = to in SUMS or holds(to, dtype)
        return dtype if dtype in self.integers and kept else None

    def unconverted(self, a: Atom) -> Atom:
        """The small integers."""
        if a in self.moved:
            return self.moved[a]
        eq, dtype = self.made[a], self.dtype(a)
        if eq.op is convert:
            given = eq.inputs[0]
            is_it = given.type.dtype == dtype
            self.moved[a] = self.read(given) if is_it else self.unconverted(given)
            return self.moved[a]
        zero = Lit(np.zeros((), dtype), ArrayType((), dtype or SUMS[0]))
        inputs = [zero if _is_zero(x) else self.unconverted(x) for x in eq.inputs]
        (self.moved[a],) = self.emit(eq.op, inputs, eq.params, eq.source)
        return self.moved[a]


def holds(dtype: np.dtype, integers: np.dtype) -> bool:
    """Whether a dtype has all values of small integers."""
    if dtypes.is_float(dtype):
        return integers.itemsize == 1 or dtype.itemsize > 2
    return np.can_cast(integers, dtype)


class _Fuse(Unconverted):
    """Of products in 32 bits.

    integers: how many terms sums have at least that are worth it.
    """

    integers: Mapping[np.dtype, int]

    def equation(self, eq: Equation) -> None:
        if eq.op is not dot_general or eq.outputs[0].type.dtype not in SUMS:
            self.keep(eq)
            return
        found = [dtype for a in eq.inputs if (dtype := self.dtype(a)) is not None]
        if len(found) < 2 or not _is_long(eq, max([self.integers[d] for d in found])):
            self.keep(eq)
            return
        inputs = [self.unconverted(a) for a in eq.inputs]
        self.emit(eq.op, inputs, eq.params, eq.source, eq.outputs)


def _is_long(eq: Equation, least: int) -> bool:
    """Whether a sum has enough terms. least: of those with wide results."""
    sides = zip(eq.inputs, eq.params["contract"], eq.params["batch"], strict=True)
    free = [
        [a.type.shape[i] for i in free_axes(a.type.ndim, c, b)] for a, c, b in sides
    ]
    narrowest = min([math.prod(map(hint, sizes)) for sizes in free])
    shape = eq.inputs[0].type.shape
    length = math.prod([hint(shape[a]) for a in eq.params["contract"][0]])
    if narrowest < _NARROW:
        return length >= _LONG
    return length >= (least if narrowest >= _WIDE else 2 * least)


def _is_zero(a: Atom) -> bool:
    if not isinstance(a, Lit) or a.varies or a.size is not None:
        return False
    return not a.type.shape and not a.value


def fuse_integers(graph: Graph, integers: Mapping[np.dtype, int]) -> Graph:
    """Makes conversions of small integers part of the products that read them, if the
    target has kernels for these: those that are `integers`, each with the number of
    terms from which on its sums are faster than in 32 bits."""
    if not integers or not mentions(graph, (dot_general,)):
        return graph
    return applied(_Fuse, graph, integers=integers)


def _converts(graph: Graph, integers: Collection[np.dtype]) -> bool:
    """Whether a graph, or one nested in it, converts some integers to others."""
    for eq in graph.equations:
        if eq.op is convert and eq.inputs[0].type.dtype in integers:
            return True
        if eq.graphs and any([_converts(inner, integers) for inner in eq.graphs]):
            return True
    return False


def applied(
    fuse: type[Unconverted], graph: Graph, integers: Collection[np.dtype], **how: Any
) -> Graph:
    """A graph after a pass that has fields of its own."""
    if not _converts(graph, integers):
        return graph
    # Passes of nested graphs are made by their class alone.
    how["integers"] = integers
    some: type[Unconverted] = type(f"{fuse.__name__}Some", (fuse,), how)
    found = some.apply(graph)
    return graph if found is graph else drop_dead(found)

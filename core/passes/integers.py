"""Products of small integers: they are read as they are, and summed in 32 bits.

That is how programs spell them: operands are converted to integers of 32 bits, and
multiplied. Whatever shorter result is asked for has the last bits of that one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from treadle import dtypes
from treadle.ir.graph import Atom, Equation, Graph
from treadle.ops.cast import convert
from treadle.ops.dot import dot_general
from treadle.passes.dce import drop_dead
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.lowering import View

SUMS = (dtypes.int32, dtypes.uint32)


def is_short(dtype: np.dtype) -> bool:
    """Whether integers of a dtype are summed in one of 32 bits."""
    return dtypes.is_integer(dtype) and dtype.itemsize < SUMS[0].itemsize


class _Fuse(Rewriter):
    whole: tuple[np.dtype, ...]

    @cached_property
    def made(self) -> dict[Atom, Equation]:
        """What makes each value."""
        return {v: eq for eq in self.graph.equations for v in eq.outputs}

    def equation(self, eq: Equation) -> None:
        if eq.op is not dot_general or eq.outputs[0].type.dtype not in SUMS:
            self.keep(eq)
            return
        found = [self._source(a) for a in eq.inputs]
        if None in found:
            self.keep(eq)
            return
        inputs = [self._unconverted(a) for a in eq.inputs]
        self.emit(eq.op, inputs, eq.params, eq.source, eq.outputs)

    def _source(self, a: Atom) -> Atom | None:
        """The small integers that an operand is made of, by conversion and views."""
        eq = self.made.get(a)
        if eq is None or len(eq.inputs) != 1:
            return None
        if eq.op is convert:
            (x,) = eq.inputs
            return x if x.type.dtype in self.whole else None
        return self._source(eq.inputs[0]) if isinstance(eq.op.lowering, View) else None

    def _unconverted(self, a: Atom) -> Atom:
        eq = self.made[a]
        (x,) = eq.inputs
        if eq.op is convert:
            return self.read(x)
        return self.emit(eq.op, [self._unconverted(x)], eq.params, eq.source)[0]


def fuse_integers(graph: Graph, whole: Sequence[np.dtype]) -> Graph:
    """Makes conversions of small integers part of the products that read them, if the
    target has kernels for these: those that are `whole`."""
    if not whole or not mentions(graph, (dot_general,)):
        return graph
    # Passes of nested graphs are made by their class alone.
    fuse: type[_Fuse] = type("_FuseSome", (_Fuse,), {"whole": tuple(whole)})
    found = fuse.apply(graph)
    return graph if found is graph else drop_dead(found)

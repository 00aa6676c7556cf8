"""Conversions beside products of half floats become part of the products.

A kernel that multiplies half floats rounds what it reads and what it writes on the way,
for nothing. So an operand that is an input of the program may stay float32 there, and a
result that is only wanted rounded is not float32 in memory first. A product in which
any type is a half float multiplies that (see `treadle.kernels.contract`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from treadle import dtypes
from treadle.ir.graph import Atom, Equation, Graph
from treadle.ops.cast import convert
from treadle.ops.conv import conv_filter_grad, conv_general
from treadle.ops.dot import dot_general
from treadle.passes.dce import drop_dead
from treadle.passes.rewrite import Rewriter, dtypes_of, mentions

_PRODUCTS = (dot_general, conv_general, conv_filter_grad)


class _Fuse(Rewriter):
    dtype: np.dtype

    @cached_property
    def readers(self) -> dict[Atom, list[Equation | None]]:
        """Who reads each value; None stands for the graph's results."""
        found: dict[Atom, list[Equation | None]] = {}
        for eq in self.graph.equations:
            for a in eq.inputs:
                found.setdefault(a, []).append(eq)
        for a in self.graph.outputs:
            found.setdefault(a, []).append(None)
        return found

    @cached_property
    def wide(self) -> dict[Atom, Atom]:
        """Inputs of the program, by what only products read: the same, rounded."""
        given = set(self.graph.inputs)
        return {
            eq.outputs[0]: eq.inputs[0]
            for eq in self.graph.equations
            if self._narrows(eq)
            and eq.inputs[0] in given
            and all(r and self._rounds(r) for r in self.readers[eq.outputs[0]])
        }

    def equation(self, eq: Equation) -> None:
        if eq.outputs and eq.outputs[0] in self.values:
            return
        if not self._multiplies(eq):
            self.keep(eq)
            return
        out = eq.outputs[0]
        after = self.readers.get(out, [])
        if len(after) == 1 and after[0] is not None and self._narrows(after[0]):
            out = after[0].outputs[0]
            self.values[out] = out
        inputs = [self.read(a) for a in eq.inputs]
        for i, a in enumerate(eq.inputs):
            types = [out.type, *(b.type for j, b in enumerate(inputs) if j != i)]
            if a in self.wide and any(t.dtype == self.dtype for t in types):
                inputs[i] = self.wide[a]
        self.emit(eq.op, inputs, eq.params, eq.source, [out])

    def _narrows(self, eq: Equation) -> bool:
        if eq.op is not convert or eq.inputs[0].type.dtype != dtypes.float32:
            return False
        return eq.outputs[0].type.dtype == self.dtype

    def _multiplies(self, eq: Equation) -> bool:
        if eq.op not in _PRODUCTS:
            return False
        return all(a.type.dtype == self.dtype for a in eq.inputs)

    def _rounds(self, eq: Equation) -> bool:
        """Whether a product rounds what it reads: those of matrices do."""
        return eq.op is dot_general and self._multiplies(eq)


def fuse_conversions(graph: Graph, multiplied: Sequence[np.dtype]) -> Graph:
    """Makes conversions between float32 and half floats part of products of these, if
    the target has a kernel for them: those that are `multiplied`."""
    for dtype in multiplied:
        given = any([v.type.dtype == dtype for v in graph.inputs])
        if (given or dtype in dtypes_of(graph)) and mentions(graph, _PRODUCTS):
            # Passes of nested graphs are made by their class alone.
            fuse: type[_Fuse] = type("_FuseOne", (_Fuse,), {"dtype": dtype})
            graph = drop_dead(fuse.apply(graph))
    return graph

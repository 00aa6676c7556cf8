"""Makes arrays of a few numbers, stacked one by one, by choosing among them."""

from __future__ import annotations

import math

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.ir.graph import Atom, Equation, Graph, Lit
from treadle.ops.compare import eq as equal
from treadle.ops.compare import select
from treadle.ops.movement import broadcast_in_dim
from treadle.ops.shape import concatenate, iota
from treadle.passes.rewrite import Rewriter, mentions

_INDEX = np.dtype(np.int32)
_MOST_PIECES = 8
_MOST_ELEMENTS = 64
"""Each element chooses among all pieces: what that costs is less than a kernel for
each piece only for few of them."""


class _Stacks(Rewriter):
    def equation(self, eq: Equation) -> None:
        if eq.op is not concatenate or not _is_small_stack(eq):
            self.keep(eq)
            return
        shape, axis = eq.outputs[0].type.shape, eq.params["axis"]
        params = {"shape": shape, "axis": axis, "dtype": _INDEX}
        (place,) = self.emit(iota, [], params, eq.source)
        *pieces, last = [self._spread(a, shape, eq) for a in eq.inputs]
        for i, piece in reversed(list(enumerate(pieces))):
            number = Lit(np.asarray(i, _INDEX), ArrayType((), _INDEX))
            here = self._spread(number, shape, eq)
            (chosen,) = self.emit(equal, [place, here], {}, eq.source)
            (last,) = self.emit(select, [chosen, piece, last], {}, eq.source)
        self.values[eq.outputs[0]] = last

    def _spread(self, a: Atom, shape: tuple[int, ...], eq: Equation) -> Atom:
        """A piece, or a number, as long as the whole."""
        a = self.read(a)
        params = {"shape": shape, "dims": tuple(range(a.type.ndim))}
        return self.emit(broadcast_in_dim, [a], params, eq.source)[0]


def _is_small_stack(eq: Equation) -> bool:
    shape, axis = eq.outputs[0].type.shape, eq.params["axis"]
    if any(map(is_dim, shape)) or math.prod(shape) > _MOST_ELEMENTS:
        return False
    # A piece may be empty, and another one longer.
    one_each = all(a.type.shape[axis] == 1 for a in eq.inputs)
    return one_each and 1 < len(eq.inputs) <= _MOST_PIECES


def choose_in_stacks(graph: Graph) -> Graph:
    """An array that is a stack of few numbers is made by one kernel, with what they are
    made of, and not by one for each piece: the state of an equation of motion, say."""
    return _Stacks.apply(graph) if mentions(graph, {concatenate}) else graph

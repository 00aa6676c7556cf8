"""Makes pieces of stacks where they belong, or chooses among few numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ops.compare import eq as equal
from treadle.ops.compare import select
from treadle.ops.movement import broadcast_in_dim
from treadle.ops.shape import concatenate, iota
from treadle.passes.dce import drop_dead
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.lowering import Elementwise, Reshape

_INDEX = np.dtype(np.int32)
_MOST_PIECES = 8
_MOST_ELEMENTS = 64
"""Each element chooses among all pieces: what that costs is less than a kernel for
each piece only for few of them."""


class _Pieces(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.makers = {v: eq for eq in graph.equations for v in eq.outputs}
        read = [a for eq in graph.equations for a in eq.inputs]
        self.reads = Counter([a for a in (*read, *graph.outputs) if isinstance(a, Var)])

    def equation(self, eq: Equation) -> None:
        if eq.op is concatenate:
            for a in eq.inputs:
                self._make_in_shape(a)
        self.keep(eq)

    def _make_in_shape(self, piece: Atom) -> None:
        """Reshapes what a piece is computed from, not what it amounts to: a kernel
        writes where it belongs what is no view."""
        view = self._made_for_one(piece)
        if view is None or not isinstance(view.op.lowering, Reshape):
            return
        maker = self._made_for_one(view.inputs[0])
        if maker is None or not isinstance(maker.op.lowering, Elementwise):
            return
        if not any(a.type.ndim for a in maker.inputs):  # one number, made of others
            return
        inputs = [
            self.emit(view.op, [self.read(a)], view.params, view.source)[0]
            if a.type.ndim
            else self.read(a)
            for a in maker.inputs
        ]
        # Not inferred: of halves, some operands are left in float32.
        made = [Var(piece.type)]
        self.emit(maker.op, inputs, maker.params, maker.source, made)
        self.values[piece] = made[0]

    def _made_for_one(self, a: Atom) -> Equation | None:
        """The equation that makes a value which is read once."""
        if not isinstance(a, Var) or self.reads[a] != 1:
            return None
        return self.makers.get(a)


class _Stacks(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self._places: dict[Hashable, Sequence[Atom]] = {}

    def equation(self, eq: Equation) -> None:
        if eq.op is not concatenate or not _is_small_stack(eq):
            self.keep(eq)
            return
        shape = eq.outputs[0].type.shape
        *pieces, last = [self._spread(a, shape, eq) for a in eq.inputs]
        places = zip(self._each(eq), pieces, strict=True)
        for chosen, piece in reversed(list(places)):
            (last,) = self.emit(select, [chosen, piece, last], {}, eq.source)
        self.values[eq.outputs[0]] = last

    def _each(self, eq: Equation) -> Sequence[Atom]:
        """Where each piece but the last is: once for all stacks that are alike."""
        shape, axis = eq.outputs[0].type.shape, eq.params["axis"]
        key = shape, axis, len(eq.inputs)
        if key not in self._places:
            params = {"shape": shape, "axis": axis, "dtype": _INDEX}
            (place,) = self.emit(iota, [], params, eq.source)
            found: list[Atom] = []
            for i in range(len(eq.inputs) - 1):
                number = Lit(np.asarray(i, _INDEX), ArrayType((), _INDEX))
                here = self._spread(number, shape, eq)
                found += self.emit(equal, [place, here], {}, eq.source)
            self._places[key] = found
        return self._places[key]

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


def shape_pieces(graph: Graph) -> Graph:
    """Pieces of arrays are computed in the shape that they have there, so that they are
    made where they belong."""
    if not mentions(graph, {concatenate}):
        return graph
    return drop_dead(_Pieces.apply(graph))

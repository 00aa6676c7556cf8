"""Sums of a few rows that are spread over many zeros: found where they are read.

The gradient of an embedding is such an array: as large as the table, and zero but for
the rows that a batch has used. An optimizer reads it once. Written down, it is filled
with zeros, added to, and read again. Here only the rows that are used are added up, in
an array of as many rows as there are updates; for each row of the table a number says
which of these is its own, and one that stays zero is that of all others. What reads the
gradient gathers it, within its own kernel.

Rows are added in the same order as before, to zero: all bits stay the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from treadle.arraytype import ArrayType
from treadle.dims import hint, is_dim
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var, is_zero
from treadle.late import SizeOf
from treadle.ops.compare import ge, le, select
from treadle.ops.gather import gather
from treadle.ops.movement import broadcast_in_dim, reshape
from treadle.ops.reduce import reduce_max, reduce_sum
from treadle.ops.scatter import scatter_add, scatter_min
from treadle.ops.shape import iota
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.lowering import Elementwise

_INDEX = np.dtype(np.int32)
_MOST = np.iinfo(_INDEX).max
_SCALARS = np.dtype(np.float32), np.dtype(np.float64)
_ROW_BYTES = 128
"""Rows that are shorter take longer to find than to read."""
_BYTES = 1 << 20
"""What fits the cache is filled, added to and read as quickly."""
_SPARSE = 2
"""How many rows there are for each update, at least."""
_READERS = reduce_sum, reduce_max


class _Sparse(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.makers = {v: eq for eq in graph.equations for v in eq.outputs}
        self.readers: dict[Var, list[Equation]] = {}
        for eq in graph.equations:
            for a in eq.inputs:
                if isinstance(a, Var):
                    self.readers.setdefault(a, []).append(eq)
        self.results = set(graph.outputs)

    def equation(self, eq: Equation) -> None:
        if eq.op is scatter_add and self._is_sparse(eq):
            self.values[eq.outputs[0]] = self._gathered(eq)
        else:
            self.keep(eq)

    def _is_sparse(self, eq: Equation) -> bool:
        """Whether few of many long rows are added to zeros, and read in passing."""
        total, _, *indices = eq.inputs
        params, (v,) = eq.params, eq.outputs
        if params["axes"] != (0,) or params["sizes"] != (None,) or params["batch_dims"]:
            return False
        if v.type.dtype not in _SCALARS or not self._is_zeros(total):
            return False
        rows, *row = map(hint, v.type.shape)
        width = math.prod(row) * v.type.dtype.itemsize
        count = math.prod(map(hint, indices[0].type.shape))
        if width < _ROW_BYTES or rows * width < _BYTES or count * _SPARSE > rows:
            return False
        passing = v not in self.results and self._is_read_in_passing(v)
        return passing and rows + count < _MOST

    def _is_zeros(self, a: Atom) -> bool:
        maker = self.makers.get(a) if isinstance(a, Var) else None
        if maker is not None and maker.op is broadcast_in_dim:
            a = maker.inputs[0]
        return is_zero(a)

    def _is_read_in_passing(self, v: Var) -> bool:
        """Whether all readers can be kernels that compute what they read."""
        readers = self.readers.get(v, [])
        return bool(readers) and all(
            isinstance(eq.op.lowering, Elementwise) or eq.op in _READERS
            for eq in readers
        )

    def _gathered(self, eq: Equation) -> Atom:
        """The same array, gathered from the sums of rows that are used."""
        _, updates, index = [self.read(a) for a in eq.inputs]
        shape, dtype = eq.outputs[0].type.shape, eq.outputs[0].type.dtype
        places = index.type.shape
        count = math.prod(places)
        own = self._spread(_number(count, _INDEX), shape[:1], eq)
        params = {"shape": (count,), "axis": 0, "dtype": _INDEX}
        (numbers,) = self.emit(iota, [], params, eq.source)
        (numbers,) = self.emit(reshape, [numbers], {"shape": places}, eq.source)
        (own,) = self.emit(scatter_min, [own, numbers, index], eq.params, eq.source)
        once = {"axes": (0,), "sizes": (None,), "batch_dims": 0, "mode": "clip"}
        (slots,) = self.emit(gather, [own, index], once, eq.source)
        if eq.params["mode"] != "clip":
            slots = self._dropped(index, slots, shape[0], count, eq)
        sums = self._spread(_number(0, dtype), (count + 1, *shape[1:]), eq)
        how = once | {"mode": "drop"}
        (sums,) = self.emit(scatter_add, [sums, updates, slots], how, eq.source)
        return self.emit(gather, [sums, own], once, eq.source)[0]

    def _dropped(
        self, index: Atom, slots: Atom, rows: int, count: int, eq: Equation
    ) -> Atom:
        """Slots with a place outside for each index that is outside."""
        shape, dtype = index.type.shape, index.type.dtype
        outside = self._spread(_number(count + 1, _INDEX), shape, eq)
        for op, limit in ((ge, 0), (le, rows - 1)):
            edge = self._spread(_number(limit, dtype), shape, eq)
            (inside,) = self.emit(op, [index, edge], {}, eq.source)
            (slots,) = self.emit(select, [inside, slots, outside], {}, eq.source)
        return slots

    def _spread(self, number: Atom, shape: Sequence[int], eq: Equation) -> Atom:
        params = {"shape": tuple(shape), "dims": ()}
        return self.emit(broadcast_in_dim, [number], params, eq.source)[0]


def _number(value: int, dtype: np.dtype) -> Lit:
    t = ArrayType((), dtype)
    if not is_dim(value):
        return Lit(np.asarray(value, dtype), t)
    size = SizeOf(value, dtype)
    return Lit(size.at(hint), t, varies=True, size=size)


def gather_sparse_sums(graph: Graph) -> Graph:
    """Rows that are added to zeros are gathered by what reads them."""
    return _Sparse.apply(graph) if mentions(graph, {scatter_add}) else graph

"""Lengthens what vectors run along where an array is repeated beside a short axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from treadle.dims import hint
from treadle.ir.graph import Equation, Graph
from treadle.ops.movement import broadcast_in_dim
from treadle.passes.rewrite import Rewriter
from treadle.trace.lowering import Reduction

_SHORT = 32
"""Elements that are too few for vectors to run along."""
_RUN = 128
"""Elements that are enough."""
_SMALL = 4
"""How much smaller what is repeated in memory is, at least, than what reads it."""


class _Lengthen(Rewriter):
    """Lengths are those of the trace: what is decided by them changes no result."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.summed = [
            (math.prod(shape), _steps(shape, eq.params["axes"]))
            for eq in graph.equations
            if isinstance(eq.op.lowering, Reduction) and eq.op.lowering.sums
            for shape in [list(map(hint, eq.inputs[0].type.shape))]
        ]

    def equation(self, eq: Equation) -> None:
        stays = self._stays(eq) if eq.op is broadcast_in_dim else None
        if stays is None:
            self.keep(eq)
            return
        shape, source = eq.params["shape"], eq.source
        small = tuple([n if i in stays else 1 for i, n in enumerate(shape)])
        params = {"shape": small, "dims": eq.params["dims"]}
        (made,) = self.emit(eq.op, [self.read(eq.inputs[0])], params, source)
        params = {"shape": shape, "dims": tuple(range(len(shape)))}
        self.emit(eq.op, [made], params, source, eq.outputs)

    def _stays(self, eq: Equation) -> set[int] | None:
        """The axes of the array that a broadcast is better made of; None if there is
        none better than its operand."""
        a, shape = eq.inputs[0], [hint(n) for n in eq.params["shape"]]
        if len(shape) < 2 or not a.type.shape or shape[-1] >= _SHORT:
            return None
        dims = enumerate(eq.params["dims"])
        has = {d for i, d in dims if hint(a.type.shape[i]) == shape[d] != 1}
        row = self._row(has, shape)
        stays = has | row
        size = math.prod([shape[i] for i in stays])
        if not has & row or row <= has or size * _SMALL > math.prod(shape):
            return None
        return stays

    def _row(self, has: set[int], shape: Sequence[int]) -> set[int]:
        """The last axes, so many that vectors have something to run along. Not those
        that are added to an array and summed over: that is a sum in another order."""
        size, row = math.prod(shape), set[int]()
        summed = {step for n, steps in self.summed if n == size for step in steps}
        for i in reversed(range(len(shape))):
            if math.prod([shape[j] for j in row]) >= _RUN:
                break
            if i not in has and _steps(shape, [i]) & summed:
                break
            row.add(i)
        return row


def _steps(shape: Sequence[int], axes: Iterable[int]) -> set[int]:
    """The steps of axes in a row-major array: a reshape leaves most as they are."""
    return {math.prod(shape[i + 1 :]) for i in axes}


def lengthen_runs(graph: Graph) -> Graph:
    """Ensures that what is repeated along some of the last axes, where the last is
    short, is a small array that has them all, repeated along others.

    The small array is made in memory (`treadle.fuse.dataflow`). A mean of each colour
    has three elements: whoever subtracts it from rows of pixels has no vectors to fill.
    """
    return _Lengthen.apply(graph)

"""Batches of systems of few unknowns, as arithmetic of all systems at once."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from treadle.ir.graph import Equation, Graph
from treadle.ops.arithmetic import div, mul, sub
from treadle.ops.compare import eq as equal
from treadle.ops.compare import select
from treadle.ops.lu import lu_solve
from treadle.ops.movement import broadcast_in_dim, reshape
from treadle.ops.shape import concatenate, slice_axis
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.interpreter import at_source
from treadle.trace.stage import stage
from treadle.trace.value import typeof

_MOST_UNKNOWNS = 4
"""For more, the steps of a substitution are many, and a call of LAPACK is worth it."""


class _Small(Rewriter):
    def equation(self, eq: Equation) -> None:
        if eq.op is not lu_solve or not _is_small_batch(eq):
            self.keep(eq)
            return
        inputs = [self.read(a) for a in eq.inputs]
        with at_source(eq.source):
            types = [a.type for a in inputs]
            graph, _ = stage(partial(_solved, **eq.params), types, closed=True)
        self.values[eq.outputs[0]] = self.splice(graph, inputs, eq.source)[0]


def _is_small_batch(eq: Equation) -> bool:
    *lead, rows, _ = eq.inputs[0].type.shape
    if not lead or eq.outputs[0].type.dtype.kind != "f":
        return False
    # Of an open number of unknowns, both are guards: other sizes are another program.
    return bool(rows <= _MOST_UNKNOWNS) and int(rows) > 0


def _solved(a: Any, factors: Any, order: Any, b: Any, *, transposed: bool) -> list[Any]:
    """What `lu_solve` means, by substitution."""
    *lead, rows, columns = typeof(b).shape
    n = int(rows)
    places = [_column(order, i, columns) for i in range(n)]
    axis = typeof(b).ndim - 2
    right = [slice_axis(b, axis, i, i + 1) for i in range(n)]

    def factor(i: int, j: int) -> Any:
        """``L[i, j]`` or ``U[i, j]``, whose transposes are stored."""
        row = slice_axis(factors, axis, j, j + 1)
        return _column(reshape(row, shape=(*lead, rows)), i, columns)

    def less(x: Any, terms: Any) -> Any:
        return reduce(lambda x, term: sub(x, mul(*term)), terms, x)

    first, last = range(n), range(n)[::-1]
    if not transposed:
        moved = [_chosen(place, right) for place in places]
        y: list[Any] = []
        for i in first:
            y.append(less(moved[i], [(factor(i, j), y[j]) for j in range(i)]))
        x: dict[int, Any] = {}
        for i in last:
            known = [(factor(i, j), x[j]) for j in range(i + 1, n)]
            x[i] = div(less(y[i], known), factor(i, i))
        found = [x[i] for i in first]
    else:
        z: list[Any] = []
        for i in first:
            known = [(factor(j, i), z[j]) for j in range(i)]
            z.append(div(less(right[i], known), factor(i, i)))
        w: dict[int, Any] = {}
        for i in last:
            w[i] = less(z[i], [(factor(j, i), w[j]) for j in range(i + 1, n)])
        found = [_placed(row, places, w) for row in first]
    return [concatenate(*found, axis=axis)]


def _column(x: Any, i: int, columns: int) -> Any:
    """Element i of the last axis, as a row of so many columns."""
    *lead, _ = typeof(x).shape
    one = slice_axis(x, len(lead), i, i + 1)
    dims = tuple(range(len(lead) + 1))
    return broadcast_in_dim(one, shape=(*lead, 1, columns), dims=dims)


def _chosen(place: Any, rows: list[Any]) -> Any:
    """The row whose number is `place`."""
    *others, found = rows
    for i, row in enumerate(others):
        found = select(equal(place, _number(i, place)), row, found)
    return found


def _placed(number: int, places: list[Any], rows: dict[int, Any]) -> Any:
    """The row whose place is `number`."""
    found = rows[len(places) - 1]
    for i, place in enumerate(places[:-1]):
        found = select(equal(place, _number(number, place)), rows[i], found)
    return found


def _number(i: int, like: Any) -> Any:
    return typeof(like).dtype.type(i)


def solve_small_systems(graph: Graph) -> Graph:
    """A batch of systems of at most four unknowns, whose matrices are factored, is
    solved in one kernel, where LAPACK would be called for each system."""
    return _Small.apply(graph) if mentions(graph, {lu_solve}) else graph

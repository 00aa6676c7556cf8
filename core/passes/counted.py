"""Makes loops of scans whose number of iterations is known only when they run.

Scanned arrays are constants of the loop, of which each iteration reads its row; stacked
ones are carried, and each iteration writes its row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.control.graphs import sections
from treadle.control.while_linearize import Memory
from treadle.control.while_loop import while_loop
from treadle.ir.graph import Equation, Graph
from treadle.ir.walk import call_graph
from treadle.ops.arithmetic import add, sub
from treadle.ops.compare import lt
from treadle.ops.dynamic import dynamic_slice_axis, dynamic_update_axis
from treadle.ops.movement import reshape, spread, zeros_like
from treadle.passes.rewrite import Rewriter, ops_of
from treadle.trace.interpreter import at_source
from treadle.trace.lowering import Counted
from treadle.trace.stage import stage
from treadle.trace.value import typeof


class _Loops(Rewriter):
    def equation(self, eq: Equation) -> None:
        how = eq.op.lowering
        if not isinstance(how, Counted):
            self.keep(eq)
            return
        loop = _by_count if how.ends == "count" else _by_carry
        types = [a.type for a in eq.inputs]
        with at_source(eq.source):
            graph = stage(lambda *args: loop(args, **eq.params), types, closed=True)[0]
        inputs = list(map(self.read, eq.inputs))
        results = self.splice(_Loops.apply(graph), inputs, eq.source)
        self.values.update(zip(eq.outputs, results, strict=True))


def loop_over_rows(graph: Graph) -> Graph:
    """A graph without counted scans, nested graphs included."""
    counted = any(isinstance(op.lowering, Counted) for op in ops_of(graph))
    return _Loops.apply(graph) if counted else graph


def _by_count(
    args: Sequence[Any],
    *,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    length: int,
    reverse: bool,
) -> list[Any]:
    count, *rest = args
    consts, init, xs = sections(rest, n_consts, n_carry)
    n = len(consts) + len(xs)

    def body(*values: Any) -> list[Any]:
        (count, *consts), xs = values[: n_consts + 1], values[n_consts + 1 : n + 1]
        k, *carry = values[n + 1 :]
        row = sub(sub(count, np.int32(1)), k) if reverse else k
        rows = [_row(x, row) for x in xs]
        outs = call_graph(graph, [*consts, *carry[:n_carry], *rows])
        kept = _written(carry[n_carry:], outs[n_carry:], row)
        return [add(k, np.int32(1)), *outs[:n_carry], *kept]

    buffers = _buffers(graph.out_types[n_carry:], length)
    return _loop(
        lambda count, k, *carry: [lt(k, count)],
        body,
        [count],
        [count, *consts, *xs],
        [np.int32(0), *init, *buffers],
    )[1:]


def _by_carry(
    args: Sequence[Any],
    *,
    graph: Graph,
    n_consts: int,
    n_carry: int,
    length: int,
    reverse: bool,
) -> list[Any]:
    consts, init, _ = sections(args, n_consts, n_carry)

    def body(*values: Any) -> list[Any]:
        carry, buffers = values[n_consts:][:n_carry], values[n_consts + n_carry :]
        outs = call_graph(graph, values[: n_consts + n_carry])
        return [*outs[:n_carry], *_written(buffers, outs[n_carry:], carry[1])]

    buffers = _buffers(graph.out_types[n_carry:], length)
    return _loop(lambda going, *carry: [going], body, [], consts, [*init, *buffers])


def _buffers(types: Sequence[ArrayType], length: int) -> list[Any]:
    return [zeros_like(ArrayType((length, *t.shape), t.dtype)) for t in types]


def _row(x: Any, row: Any) -> Any:
    cut = dynamic_slice_axis(x, row, 1, 0)
    return reshape(cut, shape=typeof(x).shape[1:])


def _written(buffers: Sequence[Any], rows: Sequence[Any], row: Any) -> list[Any]:
    return [
        dynamic_update_axis(buffer, spread(x, 0, 1), row, 0)
        for buffer, x in zip(buffers, rows, strict=True)
    ]


def _loop(
    test: Any,
    body: Any,
    of_test: Sequence[Any],
    of_body: Sequence[Any],
    init: Sequence[Any],
) -> list[Any]:
    of_types, body_types, carry_types = (
        [typeof(x).strong() for x in part] for part in (of_test, of_body, init)
    )
    return while_loop(
        *of_test,
        *of_body,
        *init,
        test=stage(test, [*of_types, *carry_types], closed=True)[0],
        body=stage(body, [*body_types, *carry_types], closed=True)[0],
        n_test_consts=len(of_test),
        n_body_consts=len(of_body),
        memory=Memory(0, False),
    )

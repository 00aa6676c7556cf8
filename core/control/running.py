"""The op `while_running`: the values of examples in a loop that some of them have left.

Arguments: which examples are running, then arrays with the examples along axis 0.
Results: these arrays. For examples that have stopped they mean nothing: whatever a body
makes of them is thrown away.

Forwards it is nothing at all. Backwards, what is thrown away would come back as 0 times
an infinite derivative: where an example stopped, the body may be singular. So a program
that is linearized computes those examples with the values of one that is running, and
no tangent goes in or out.

Params:
  graph: its results from its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle import dtypes
from treadle.control.call import spread_tangents
from treadle.control.graphs import nonzero, pick, select_examples
from treadle.ir.graph import Graph
from treadle.ops.cast import convert
from treadle.ops.dynamic import dynamic_slice_axis
from treadle.ops.movement import broadcast_in_dim, reshape, zeros_like
from treadle.ops.reduce import argmax
from treadle.trace.lowering import Inline
from treadle.trace.op import Op, Zero
from treadle.trace.stage import stage
from treadle.trace.value import typeof
from treadle.transforms.batch import to_axis


def _only(going: Any, values: Sequence[Any]) -> list[Any]:
    if not values:
        return []
    types = [typeof(x).strong() for x in (going, *values)]
    same = stage(lambda going, *xs: xs, types, closed=True)[0]
    return while_running(going, *values, graph=same)


def running_only(
    going: Any, values: Sequence[Any], batched: Sequence[bool]
) -> list[Any]:
    """The values of those examples for which `going` holds: at least one.

    Args:
      batched: which of the values have an axis of examples.
    """
    found = iter(_only(going, pick(values, batched)))
    return [next(found) if b else x for x, b in zip(values, batched, strict=True)]


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, graph: Graph) -> Any:
    flags = nonzero(tangents[1:])
    moved = _only(primals[0], pick(tangents[1:], flags))
    outs = while_running(*primals, graph=graph)
    return outs, spread_tangents(outs, moved, flags)


def _linearize(primals: Sequence[Any], tangents: Sequence[Any], *, graph: Graph) -> Any:
    going, *xs = primals
    spare = argmax(convert(going, dtype=dtypes.int32), axis=0)
    outs = [select_examples(going, x, _repeated(x, spare)) for x in xs]
    return outs, [
        t if isinstance(t, Zero) else select_examples(going, t, zeros_like(typeof(t)))
        for t in tangents[1:]
    ]


def _repeated(x: Any, place: Any) -> Any:
    """The example at a place, for all."""
    shape = typeof(x).shape
    one = reshape(dynamic_slice_axis(x, place, 1, 0), shape=shape[1:])
    return broadcast_in_dim(one, shape=shape, dims=tuple(range(1, len(shape))))


def _batch(
    size: int, args: Sequence[Any], axes: Sequence[int | None], *, graph: Graph
) -> Any:
    """Examples of examples are examples."""
    rows = [to_axis(x, a, 0, size) for x, a in zip(args, axes, strict=True)]
    n = typeof(rows[0]).shape[1]
    flat = [reshape(x, shape=(size * n, *typeof(x).shape[2:])) for x in rows]
    outs = _only(flat[0], flat[1:])
    wide = [reshape(x, shape=(size, n, *typeof(x).shape[1:])) for x in outs]
    return wide, [0] * len(wide)


while_running = Op(
    "while_running",
    lambda going, *types, graph: types,
    lambda going, *arrays, graph: arrays,
    jvp=_jvp,
    linearize=_linearize,
    batch=_batch,
    guard=lambda active, args, graph: while_running(*args, graph=graph),
    lowering=Inline(),
    multiple=True,
)

"""Ops that return what they are given, and mean something to a transform."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.arraytype import ArrayType
from treadle.ops.elementwise import any_dtype, elementwise, linear_in
from treadle.trace.lowering import Elementwise, Same
from treadle.trace.op import Linear, Op, Zero

copy = elementwise(
    "copy",
    lambda x: x.copy(),
    [lambda g, out, x: copy(g)],
    accepts=any_dtype,
    transpose=linear_in(lambda ct, x: ct),
    lowering=Elementwise(lambda w, x: x),
)
"""The same values in memory of their own."""

stop_gradient = elementwise(
    "stop_gradient",
    lambda x: x,
    [None],
    accepts=any_dtype,
    lowering=Elementwise(lambda w, x: x),
)
"""The same values, whose derivative counts as zero."""

checkpoint_name = elementwise(
    "checkpoint_name",
    lambda x, *, name: x,
    [lambda g, out, x, *, name: g],
    accepts=any_dtype,
    transpose=linear_in(lambda ct, x, *, name: ct),
    lowering=Elementwise(lambda w, x, name: x),
)
"""The same values, with a name by which `remat` knows them."""


def _barrier_type(*types: ArrayType) -> Sequence[ArrayType]:
    return types


def _barrier_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    moving = [t for t in tangents if not isinstance(t, Zero)]
    moved = iter(optimization_barrier(*moving))
    return optimization_barrier(*primals), [
        t if isinstance(t, Zero) else next(moved) for t in tangents
    ]


def _barrier_transpose(cts: Sequence[Any], *args: Any) -> list[Any]:
    given = [ct for ct in cts if not isinstance(ct, Zero)]
    back = iter(optimization_barrier(*given))
    found = [ct if isinstance(ct, Zero) else next(back) for ct in cts]
    return [
        ct if isinstance(a, Linear) else None for ct, a in zip(found, args, strict=True)
    ]


optimization_barrier = Op(
    "optimization_barrier",
    _barrier_type,
    lambda *xs: xs,
    lowering=Same(),
    jvp=_barrier_jvp,
    transpose=_barrier_transpose,
    batch=lambda size, args, axes: (optimization_barrier(*args), list(axes)),
    multiple=True,
)
"""The same values, which no pass may recognise as the same: `remat` keeps what it
computes again from being merged with what was computed before."""

"""Ops that combine values of the members of named axes.

Params:
  over: the axes, each a `MappedAxis`; several only where their order says nothing.
  axis: a position in the array of one member.
  perm: pairs of a member that gives and one that takes.

Each stands for what one member does. While an axis is not mapped they are equations
like others: they are differentiated, and batched along other axes. `vmap` of their axis
makes operations on the whole array of them. All are linear maps from the values of all
members to the values of all members (the extremes piecewise), and are transposed as
such: what one member gives to all gets the sum of their cotangents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.arithmetic import div, mul
from treadle.ops.cast import convert
from treadle.ops.compare import eq, select
from treadle.ops.gather import take
from treadle.ops.movement import (
    broadcast_in_dim,
    linear_jvp,
    move_axis,
    spread,
    zeros_like,
)
from treadle.ops.reduce import reduce_max, reduce_min, reduce_sum
from treadle.ops.shape import iota
from treadle.trace.axes import MappedAxis
from treadle.trace.lowering import Collective, Shared
from treadle.trace.op import Op
from treadle.trace.value import typeof

Over = tuple[MappedAxis, ...]

_ALONE = "the members of its axis are mapped by vmap, and run as one program"


def _collective(name: str, what: Shared, type_rule: Any, **rules: Any) -> Op:
    def run(*arrays: Any, over: Over, **params: Any) -> Any:
        names = ", ".join(repr(a.name) for a in over)
        raise TypeError(f"{name} needs the members of {names}, which is not mapped")

    lowering = Collective(_ALONE, what)
    op = Op(name, type_rule, run, lowering=lowering, names_axis=True, **rules)
    if op.differentiable and op.jvp is None:
        op.jvp = op.linearize = linear_jvp(op)
    return op


def _split(axis: MappedAxis, over: Over) -> tuple[bool, Over]:
    """Whether an axis is among those of an op, and the others of these."""
    rest = tuple([a for a in over if a.name != axis.name])
    return len(rest) < len(over), rest


def _times(x: Any, axis: MappedAxis) -> Any:
    """The sum of what is the same for all members."""
    return mul(x, axis.size)


# psum, pmax, pmin ---------------------------------------------------------------------


def _reduction(
    name: str,
    what: Shared,
    over_axis: Callable[..., Any],
    of_equal: Callable[[Any, MappedAxis], Any],
    **rules: Any,
) -> Op:
    """
    Args:
      over_axis: the reduction of the whole array.
      of_equal: what it is of members that have the same value.
    """

    def batch(axis: MappedAxis, args: Any, bdims: Any, *, over: Over) -> Any:
        (x,), (bdim,) = args, bdims
        mine, rest = _split(axis, over)
        if not mine:
            return op(x, over=over), bdim
        x = of_equal(x, axis) if bdim is None else over_axis(x, axes=(bdim,))
        return (op(x, over=rest) if rest else x), None

    op = _collective(
        name,
        what,
        lambda x, *, over: ArrayType(x.shape, x.dtype),
        batch=batch,
        **rules,
    )
    return op


psum = _reduction(
    "psum",
    "sum",
    reduce_sum,
    _times,
    transpose=lambda ct, x, *, over: [psum(ct, over=over)],
)


def _extreme_jvp(op: Op) -> Callable[..., Any]:
    """Members equal to the extreme share its derivative."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, over: Over) -> Any:
        (x,), (dx,) = primals, tangents
        out = op(x, over=over)
        here = convert(eq(x, out), dtype=typeof(x).dtype)
        return out, div(psum(mul(dx, here), over=over), psum(here, over=over))

    return jvp


pmax = _reduction("pmax", "max", reduce_max, lambda x, axis: x)
pmin = _reduction("pmin", "min", reduce_min, lambda x, axis: x)
for _op in (pmax, pmin):
    _op.jvp = _op.linearize = _extreme_jvp(_op)


# all_gather, psum_scatter -------------------------------------------------------------


def _gather_batch(
    mapped: MappedAxis, args: Any, bdims: Any, *, over: Over, axis: int
) -> Any:
    (x,), (bdim,) = args, bdims
    if _split(mapped, over)[0]:
        if bdim is None:
            return spread(x, axis, mapped.size), None
        return move_axis(x, bdim, axis), None
    last = typeof(x).ndim - 1
    return all_gather(move_axis(x, bdim, last), over=over, axis=axis), last + 1


all_gather = _collective(
    "all_gather",
    "collect",
    lambda x, *, over, axis: ArrayType(
        (*x.shape[:axis], over[0].size, *x.shape[axis:]), x.dtype
    ),
    transpose=lambda ct, x, *, over, axis: [psum_scatter(ct, over=over, axis=axis)],
    batch=_gather_batch,
)
"""The values of all members, along a new axis."""


def _check_rows(what: str, x: ArrayType, over: Over, axis: int) -> None:
    if x.shape[axis] != over[0].size:
        raise ValueError(
            f"{what} of {x}: axis {axis} must have a row for each of the "
            f"{over[0].size} members of {over[0].name!r}"
        )


def _scatter_type(x: ArrayType, *, over: Over, axis: int) -> ArrayType:
    _check_rows("the sum of rows", x, over, axis)
    return ArrayType((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)


def _scatter_batch(
    mapped: MappedAxis, args: Any, bdims: Any, *, over: Over, axis: int
) -> Any:
    (x,), (bdim,) = args, bdims
    if _split(mapped, over)[0]:
        if bdim is None:
            return _times(x, mapped), axis
        return reduce_sum(move_axis(x, bdim, 0), axes=(0,)), axis
    last = typeof(x).ndim - 1
    return psum_scatter(move_axis(x, bdim, last), over=over, axis=axis), last - 1


psum_scatter = _collective(
    "psum_scatter",
    "scatter_sum",
    _scatter_type,
    transpose=lambda ct, x, *, over, axis: [all_gather(ct, over=over, axis=axis)],
    batch=_scatter_batch,
)
"""Member k gets the sum over members of their rows k."""


# all_to_all ---------------------------------------------------------------------------


def _exchange_type(x: ArrayType, *, over: Over, axis: int) -> ArrayType:
    _check_rows("the exchange", x, over, axis)
    return ArrayType(x.shape, x.dtype)


def _exchange_batch(
    mapped: MappedAxis, args: Any, bdims: Any, *, over: Over, axis: int
) -> Any:
    (x,), (bdim,) = args, bdims
    if _split(mapped, over)[0]:
        x = spread(x, 0, mapped.size) if bdim is None else move_axis(x, bdim, 0)
        # The members that gave are rows of each that takes.
        return move_axis(move_axis(x, axis + 1, 0), 1, axis + 1), 0
    last = typeof(x).ndim - 1
    return all_to_all(move_axis(x, bdim, last), over=over, axis=axis), last


all_to_all = _collective(
    "all_to_all",
    "exchange",
    _exchange_type,
    transpose=lambda ct, x, *, over, axis: [all_to_all(ct, over=over, axis=axis)],
    batch=_exchange_batch,
)
"""Row k of member i becomes row i of member k."""


# ppermute -----------------------------------------------------------------------------


def _permute_batch(
    axis: MappedAxis, args: Any, bdims: Any, *, over: Over, perm: tuple
) -> Any:
    (x,), (bdim,) = args, bdims
    if not _split(axis, over)[0]:
        return ppermute(x, over=over, perm=perm), bdim
    x = spread(x, 0, axis.size) if bdim is None else move_axis(x, bdim, 0)
    giver = {to: source for source, to in perm}
    n = int(axis.size)
    rows = np.array([giver.get(k, 0) for k in range(n)], np.int32)
    taken = take(x, rows, 0)
    if len(giver) == n:
        return taken, 0
    takes = np.array([k in giver for k in range(n)])
    t = typeof(taken)
    mask = broadcast_in_dim(takes, shape=t.shape, dims=(0,))
    return select(mask, taken, zeros_like(t)), 0


ppermute = _collective(
    "ppermute",
    "permute",
    lambda x, *, over, perm: ArrayType(x.shape, x.dtype),
    transpose=lambda ct, x, *, over, perm: [
        ppermute(ct, over=over, perm=tuple([(b, a) for a, b in perm]))
    ],
    batch=_permute_batch,
)
"""Each pair's second member gets what the first has; the others get zeros."""


# axis_index ---------------------------------------------------------------------------


def _index_batch(axis: MappedAxis, args: Any, bdims: Any, *, over: Over) -> Any:
    return iota(shape=(axis.size,), axis=0, dtype=dtypes.int32), 0


axis_index = _collective(
    "axis_index",
    "index",
    lambda *, over: ArrayType((), dtypes.int32),
    batch=_index_batch,
    differentiable=False,
)
"""Which member it is, counted from 0."""

"""How elementwise ops are declared: one line of meaning, one partial per operand.

Operands have equal shapes, or are scalars (rank 0), which all elements see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.movement import broadcast_in_dim, expand, move_axis
from treadle.trace.lowering import Elementwise, Lowering
from treadle.trace.op import Linear, Op, Zero, registry
from treadle.trace.value import typeof

_MOST_KNOWN = 1 << 12

Accepts = Callable[[np.dtype], bool]

any_dtype: Accepts = lambda d: True  # noqa: E731
number: Accepts = lambda d: d != dtypes.bool_  # noqa: E731
inexact: Accepts = dtypes.is_differentiable
real: Accepts = lambda d: d != dtypes.bool_ and not dtypes.is_complex(d)  # noqa: E731
floating: Accepts = dtypes.is_float
integral: Accepts = lambda d: d == dtypes.bool_ or dtypes.is_integer(d)  # noqa: E731


def elementwise(
    name: str,
    run: Callable[..., Any],
    partials: Sequence[Callable[..., Any] | None] | None = None,
    *,
    accepts: Accepts = number,
    result: Callable[[np.dtype], np.dtype] | None = None,
    transpose: Callable[..., Any] | None = None,
    lowering: Lowering | None = None,
) -> Op:
    """Declares an elementwise op whose operands share one dtype.

    Args:
      run: the NumPy meaning.
      partials: per operand ``(g, out, *operands, **params) -> tangent``: the
        derivative in that operand applied to a tangent g. None, or one that gives
        None, is zero. No partials at all: not differentiable, which only functions
        whose results are integers or bools may be.
      accepts: which dtypes it takes.
      result: the dtype of the result, if not that of the operands.
      transpose: for ops that are linear in some operand.
      lowering: the scalar instructions, if not the one of the op's own name.
    """

    moving = [d for d in dtypes.ALL if accepts(d) and dtypes.is_differentiable(d)]
    if partials is None and any(
        dtypes.is_differentiable(result(d) if result else d) for d in moving
    ):
        raise TypeError(f"{name}: say what its partials are, None where they are zero")

    known: dict[tuple[ArrayType, ...], ArrayType] = {}

    def type_rule(*types: ArrayType, **params: Any) -> ArrayType:
        found = known.get(types)
        if found is None:
            found = inferred(types)
            if found.scope is None and len(known) < _MOST_KNOWN:
                # Types with sizes that are not fixed live as long as their trace.
                known[types] = found
        return found

    def inferred(types: tuple[ArrayType, ...]) -> ArrayType:
        dtype = types[0].dtype
        for t in types:
            if t.dtype != dtype:
                raise TypeError(f"{name} of different dtypes: {_list(types)}")
        if not accepts(dtype):
            takes = ", ".join(d.name for d in dtypes.ALL if accepts(d))
            raise TypeError(
                f"{name} is not defined for dtype {dtype.name}; convert "
                f"(`x.astype(...)`) to one of {takes}"
            )
        out = dtype if result is None else result(dtype)
        weak = len(types) == 1 and types[0].weak
        return ArrayType(
            common_shape(name, types), out, weak or all([t.weak for t in types])
        )

    op = Op(
        name,
        type_rule,
        run,
        transpose=transpose,
        batch=lambda size, args, axes, **p: batch_elementwise(op, size, args, axes, p),
        lowering=lowering or Elementwise(name),
        differentiable=partials is not None,
    )
    if partials is not None:
        op.jvp = op.linearize = jvp_of_partials(op, partials)
    return op


def _list(types: Sequence[ArrayType]) -> str:
    return ", ".join(map(repr, types))


def common_shape(name: str, types: Sequence[ArrayType]) -> tuple[int, ...]:
    """The one shape of the operands that are not scalars."""
    shape: tuple[int, ...] = ()
    for t in types:
        if t.shape and t.shape != shape:
            if shape:
                raise ValueError(f"{name} of different shapes: {_list(types)}")
            shape = t.shape
    return shape


def jvp_of_partials(op: Op, partials: Sequence[Callable[..., Any] | None]) -> Any:
    """The JVP rule: the sum over operands of partial times tangent."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        out = op(*primals, **params)
        shape, total = typeof(out).shape, None
        for t, partial in zip(tangents, partials, strict=True):
            if type(t) is Zero or partial is None:
                continue
            term = partial(t, out, *primals, **params)
            if term is None:
                continue
            total = term if total is None else registry["add"](total, term)
        if total is None:
            return out, Zero(typeof(out).strong())
        return out, expand(total, shape)

    return jvp


def unexpand(ct: Any, t: ArrayType) -> Any:
    """The cotangent of an operand, which may have been a scalar seen by all."""
    ct_type = typeof(ct)
    if ct_type.shape == t.shape:
        return ct
    return registry["reduce_sum"](ct, axes=tuple(range(ct_type.ndim)))


def linear_in(*rules: Callable[..., Any] | None) -> Callable[..., Any]:
    """A transpose rule from one ``(ct, *operands) -> ct`` per linear operand."""

    def transpose(ct: Any, *args: Any, **params: Any) -> list[Any]:
        return [
            unexpand(rule(ct, *args, **params), a.type)
            if isinstance(a, Linear) and rule is not None
            else None
            for rule, a in zip(rules, args, strict=True)
        ]

    return transpose


def batch_elementwise(
    op: Op, size: int, args: Sequence[Any], axes: Sequence[int | None], params: dict
) -> tuple[Any, int]:
    """Lines up the batch axes (at 0, unless all agree already) and applies the op."""
    types = [typeof(a) for a in args]
    batched = [(t.shape, a) for t, a in zip(types, axes, strict=True) if a is not None]
    rest = [t for t, a in zip(types, axes, strict=True) if a is None and t.shape]
    if len(set(batched)) == 1 and not rest:
        return op(*args, **params), batched[0][1]
    rank = max(t.ndim - (a is not None) for t, a in zip(types, axes, strict=True))
    shape: tuple[int, ...] = ()
    for t, a in zip(types, axes, strict=True):
        one = t.shape if a is None else t.shape[:a] + t.shape[a + 1 :]
        shape = one if len(one) == rank else shape
    return op(
        *[_line_up(x, a, (size, *shape)) for x, a in zip(args, axes, strict=True)],
        **params,
    ), 0


def _line_up(x: Any, axis: int | None, shape: tuple[int, ...]) -> Any:
    t = typeof(x)
    if axis is None:
        if not t.shape:
            return x
        dims = tuple(range(1, len(shape)))
        return broadcast_in_dim(x, shape=shape, dims=dims)
    x = move_axis(x, axis, 0)
    if t.ndim == len(shape):
        return x
    return broadcast_in_dim(x, shape=shape, dims=(0,))

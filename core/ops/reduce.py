"""Reductions over axes, and the index of the extreme element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.arithmetic import div, mul
from treadle.ops.cast import convert
from treadle.ops.compare import eq
from treadle.ops.cumulative import cumprod
from treadle.ops.movement import restore_axes
from treadle.ops.shape import pad
from treadle.ops.window import highest, lowest
from treadle.trace.lowering import Reduction
from treadle.trace.op import Linear, Op
from treadle.trace.value import typeof


def _check_axes(name: str, x: ArrayType, axes: tuple[int, ...]) -> tuple[int, ...]:
    if any(not 0 <= a < x.ndim for a in axes) or len(set(axes)) != len(axes):
        raise ValueError(f"{name} of {x} over axes {axes}")
    return tuple([n for i, n in enumerate(x.shape) if i not in axes])


def _reduction(
    name: str,
    run: Callable[..., Any],
    accepts: Callable[[np.dtype], bool],
    **rules: Any,
) -> Op:
    def type_rule(x: ArrayType, *, axes: tuple[int, ...]) -> ArrayType:
        if not accepts(x.dtype):
            raise TypeError(f"{name} is not defined for dtype {x.dtype.name}")
        return ArrayType(_check_axes(name, x, axes), x.dtype)

    op = Op(
        name,
        type_rule,
        run,
        batch=lambda size, args, bdims, *, axes: _reduce_batch(op, args, bdims, axes),
        **rules,
    )
    return op


def _reduce_batch(op: Op, args: Any, bdims: Any, axes: tuple[int, ...]) -> Any:
    axis = bdims[0]
    shifted = tuple(a + (a >= axis) for a in axes)
    return op(args[0], axes=shifted), axis - sum(a < axis for a in shifted)


def _arithmetic(dtype: np.dtype) -> bool:
    return dtype != dtypes.bool_


def _integral(dtype: np.dtype) -> bool:
    return dtype == dtypes.bool_ or dtypes.is_integer(dtype)


def _run_sum(x: Any, *, axes: tuple[int, ...]) -> Any:
    if not dtypes.is_differentiable(x.dtype):
        return np.sum(x, axis=axes, dtype=x.dtype)
    wide = np.float32 if x.dtype.itemsize == 2 else x.dtype
    # NumPy adds pairwise along the last axis alone, and one after the other elsewhere.
    kept = tuple([i for i in range(x.ndim) if i not in axes])
    rows = np.ascontiguousarray(np.transpose(x, kept + axes), wide)
    shape = tuple([x.shape[i] for i in kept])
    n = math.prod([x.shape[i] for i in axes])
    return np.sum(rows.reshape(*shape, n), axis=-1).astype(x.dtype)


def _sum_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, axes: tuple[int, ...]
) -> Any:
    return reduce_sum(primals[0], axes=axes), reduce_sum(tangents[0], axes=axes)


def _sum_transpose(ct: Any, x: Linear, *, axes: tuple[int, ...]) -> list[Any]:
    return [restore_axes(ct, x.shape, axes)]


reduce_sum = _reduction(
    "reduce_sum",
    _run_sum,
    _arithmetic,
    lowering=Reduction("sum"),
    jvp=_sum_jvp,
    transpose=_sum_transpose,
)


def _extreme_jvp(op: Op) -> Callable[..., Any]:
    """Elements equal to the extreme share its derivative."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Any) -> Any:
        (x,), (dx,) = primals, tangents
        out = op(x, axes=axes)
        t = typeof(x)
        here = convert(eq(x, restore_axes(out, t.shape, axes)), dtype=t.dtype)
        share = div(reduce_sum(mul(dx, here), axes=axes), reduce_sum(here, axes=axes))
        return out, share

    return jvp


def _any_dtype(dtype: np.dtype) -> bool:
    return True


def _find(find: Callable[..., Any], beaten: Callable[[np.dtype], Any]) -> Any:
    """The extreme elements; of none, what every number beats, as in compiled code."""

    def run(x: Any, *, axes: tuple[int, ...]) -> Any:
        if x.size:
            return find(x, axis=axes)
        part = beaten(dtypes.to_real(x.dtype))
        initial = complex(part, part) if dtypes.is_complex(x.dtype) else part
        return find(x, axis=axes, initial=initial)

    return run


# Complex numbers are ordered by their real parts, then by the imaginary ones.
reduce_max = _reduction(
    "reduce_max",
    _find(np.max, lowest),
    _any_dtype,
    lowering=Reduction("max"),
)
reduce_min = _reduction(
    "reduce_min",
    _find(np.min, highest),
    _any_dtype,
    lowering=Reduction("min"),
)
for _op in (reduce_max, reduce_min):
    _op.jvp = _op.linearize = _extreme_jvp(_op)


def _prod_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axes: Any) -> Any:
    """The partial in an element is the product of those before it and those behind it,
    which is right at zeros too."""
    (x,), (dx,) = primals, tangents
    for axis in sorted(axes, reverse=True):
        one = typeof(x).dtype.type(1)
        before, behind = [(0, 0, 0)] * typeof(x).ndim, [(0, 0, 0)] * typeof(x).ndim
        before[axis], behind[axis] = (1, -1, 0), (-1, 1, 0)
        left = cumprod(pad(x, one, padding=tuple(before)), axis=axis, reverse=False)
        right = cumprod(pad(x, one, padding=tuple(behind)), axis=axis, reverse=True)
        dx = reduce_sum(mul(dx, mul(left, right)), axes=(axis,))
        x = reduce_prod(x, axes=(axis,))
    return x, dx


reduce_prod = _reduction(
    "reduce_prod",
    lambda x, *, axes: np.prod(x, axis=axes, dtype=x.dtype),
    _arithmetic,
    lowering=Reduction("prod"),
    jvp=_prod_jvp,
)
reduce_and = _reduction(
    "reduce_and",
    lambda x, *, axes: np.bitwise_and.reduce(x, axis=axes),
    _integral,
    lowering=Reduction("and"),
    differentiable=False,
)
reduce_or = _reduction(
    "reduce_or",
    lambda x, *, axes: np.bitwise_or.reduce(x, axis=axes),
    _integral,
    lowering=Reduction("or"),
    differentiable=False,
)


# argmax, argmin -----------------------------------------------------------------------


def _arg_extreme(name: Literal["argmax", "argmin"], find: Callable[..., Any]) -> Op:
    def type_rule(x: ArrayType, *, axis: int) -> ArrayType:
        shape = _check_axes(name, x, (axis,))
        if x.shape[axis] == 0:
            raise ValueError(f"{name} of {x} over axis {axis}, which is empty")
        return ArrayType(shape, dtypes.of_index(x.shape[axis]))

    def run(x: Any, *, axis: int) -> Any:
        return find(x, axis).astype(dtypes.of_index(x.shape[axis]))

    def batch(size: int, args: Any, bdims: Any, *, axis: int) -> Any:
        shifted = axis + (axis >= bdims[0])
        return op(args[0], axis=shifted), bdims[0] - (shifted < bdims[0])

    op = Op(
        name,
        type_rule,
        run,
        lowering=Reduction(name),
        batch=batch,
        differentiable=False,
    )
    return op


argmax = _arg_extreme("argmax", np.argmax)
argmin = _arg_extreme("argmin", np.argmin)

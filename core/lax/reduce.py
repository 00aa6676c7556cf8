"""Reductions, whole and running, and sorting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

from treadle import dtypes, tree
from treadle.api.boundary import boundary
from treadle.errors import at, user_source
from treadle.lax.fold import Monoid, begun, folded, seeds
from treadle.lax.operands import all_alike, array, place, places
from treadle.np.made import named
from treadle.np.operands import ArrayLike, cast, static_integer
from treadle.ops import binary, cumulative
from treadle.ops import reduce as reductions
from treadle.ops import sort as sorts
from treadle.ops.arithmetic import add, mul
from treadle.ops.compare import bitwise_and, bitwise_or, bitwise_xor
from treadle.ops.movement import move_axis, reshape
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.value import Value

_NATIVE = {
    add: reductions.reduce_sum,
    mul: reductions.reduce_prod,
    binary.maximum: reductions.reduce_max,
    binary.minimum: reductions.reduce_min,
    bitwise_and: reductions.reduce_and,
    bitwise_or: reductions.reduce_or,
}


_Tree = TypeVar("_Tree")


@overload
def reduce(
    operands: Value,
    init_values: ArrayLike,
    computation: Callable[[Array, Array], ArrayLike],
    dimensions: Sequence[int],
) -> Array: ...
@overload
def reduce(
    operands: _Tree,
    init_values: Any,
    computation: Callable[[_Tree, _Tree], Any],
    dimensions: Sequence[int],
) -> _Tree: ...
@boundary
def reduce(
    operands: Any,
    init_values: Any,
    computation: Callable[[Any, Any], Any],
    dimensions: Sequence[int],
) -> Any:
    """Combines all elements along some axes by a function of two.

    Args:
      operands: an array, or a pytree of arrays of one shape.
      init_values: the like of scalars, which change nothing when combined.
      computation: takes two pytrees like `init_values`, of scalars, and gives one. It
        is associative and commutative: the order is not defined.

    Raises:
      ValueError: for arrays of different shapes.
      TypeError: if the function gives something else.

    >>> import treadle as td, treadle.numpy as tnp
    >>> def larger(a, b):  # a value and its place
    ...     (x, i), (y, j) = a, b
    ...     return tnp.where(x >= y, x, y), tnp.where(x >= y, i, j)
    >>> x = tnp.array([3.0, 9.0, 4.0])
    >>> td.lax.reduce((x, tnp.arange(3)), (-tnp.inf, -1), larger, (0,))
    (Array(9., dtype=float32), Array(1, dtype=int32))
    """
    leaves, form = tree.flatten(operands)
    xs = [array("reduce", x) for x in leaves]
    all_alike("reduce", xs)
    axes = tuple(sorted(places("reduce", dimensions, xs[0].ndim)))
    inits = seeds("reduce", form, init_values, xs)
    monoid = Monoid("reduce", computation, form, inits)
    if monoid.op in _NATIVE and axes:
        out = begun(monoid.op, inits[0], _NATIVE[monoid.op](xs[0], axes=axes))
        return form.unflatten([out])
    outs = []
    n = math.prod([xs[0].shape[a] for a in axes])
    for x in xs:
        for i, a in enumerate(axes):
            x = move_axis(x, a, i)
        outs.append(reshape(x, shape=(n, *x.shape[len(axes) :])))
    return form.unflatten(folded(monoid, outs))


def _reduction(op: Op, name: str, doc: str) -> Callable[..., Array]:
    def function(operand: ArrayLike, axes: Sequence[int]) -> Array:
        x = array(name, operand)
        found = places(name, axes, x.ndim)
        return op(x, axes=tuple(sorted(found))) if found else x

    return named(function, name, doc)


reduce_sum = _reduction(reductions.reduce_sum, "reduce_sum", "Sums over some axes.")
reduce_prod = _reduction(
    reductions.reduce_prod, "reduce_prod", "Products over some axes."
)
reduce_max = _reduction(
    reductions.reduce_max, "reduce_max", "The largest elements over some axes."
)
reduce_min = _reduction(
    reductions.reduce_min, "reduce_min", "The smallest elements over some axes."
)
reduce_and = _reduction(
    reductions.reduce_and, "reduce_and", "Bitwise and over some axes."
)
reduce_or = _reduction(reductions.reduce_or, "reduce_or", "Bitwise or over some axes.")


def reduce_xor(operand: ArrayLike, axes: Sequence[int]) -> Array:
    """Bitwise exclusive or over some axes."""
    x = array("reduce_xor", operand)
    return reduce(x, x.dtype.type(0), bitwise_xor, axes)


def _position(op: Op, name: str, doc: str) -> Callable[..., Array]:
    def function(operand: ArrayLike, axis: int, index_dtype: Any) -> Array:
        x = array(name, operand)
        dtype = dtypes.canonical(index_dtype)
        if not dtypes.is_integer(dtype):
            raise TypeError(
                f"{name}: index_dtype is an integer dtype, got {dtype.name}"
                f"{at(user_source())}"
            )
        x = cast(x, dtypes.uint8) if x.dtype == dtypes.bool_ else x
        return cast(op(x, axis=place(name, axis, x.ndim)), dtype)

    return named(function, name, doc)


argmax = _position(
    reductions.argmax,
    "argmax",
    "Where the largest element along an axis is: the first.",
)
argmin = _position(
    reductions.argmin,
    "argmin",
    "Where the smallest element along an axis is: the first.",
)


def _running(op: Op, name: str, doc: str) -> Callable[..., Array]:
    def function(operand: ArrayLike, axis: int = 0, reverse: bool = False) -> Array:
        x = array(name, operand)
        return op(x, axis=place(name, axis, x.ndim), reverse=bool(reverse))

    return named(function, name, f"{doc} along an axis; from its end, if `reverse`.")


cumsum = _running(cumulative.cumsum, "cumsum", "Running sums")
cumprod = _running(cumulative.cumprod, "cumprod", "Running products")
cummax = _running(
    cumulative.cummax,
    "cummax",
    "The largest elements so far (of equal ones the first gets the derivative)",
)
cummin = _running(
    cumulative.cummin,
    "cummin",
    "The smallest elements so far (of equal ones the first gets the derivative)",
)
cumlogsumexp = _running(
    cumulative.cumlogsumexp,
    "cumlogsumexp",
    "Running logarithms of sums of exponentials",
)


@overload
def sort(
    operand: ArrayLike, dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Array: ...
@overload
def sort(
    operand: Sequence[ArrayLike],
    dimension: int = -1,
    is_stable: bool = True,
    num_keys: int = 1,
) -> tuple[Array, ...]: ...
def sort(
    operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1
) -> Any:
    """Sorts along an axis, ascending; not-a-number comes last.

    Args:
      operand: an array, or a sequence of arrays of one shape, which are all brought
        into the order of the first `num_keys` of them; the result is then a tuple.
      is_stable: equal elements keep their order, in any case.

    >>> import treadle as td, treadle.numpy as tnp
    >>> keys, values = tnp.array([2, 1, 2]), tnp.array([5, 6, 4])
    >>> td.lax.sort((keys, values), num_keys=2)
    (Array([1, 2, 2], dtype=int32), Array([6, 4, 5], dtype=int32))
    """
    several = isinstance(operand, list | tuple)
    xs = [array("sort", x) for x in (operand if several else [operand])]
    all_alike("sort", xs)
    axis = place("sort", dimension, xs[0].ndim)
    outs = sorts.sort(*xs, axis=axis, num_keys=num_keys)
    return tuple(outs) if several else outs[0]


def sort_key_val(
    keys: ArrayLike, values: ArrayLike, dimension: int = -1, is_stable: bool = True
) -> tuple[Array, Array]:
    """Sorted keys, and values in the order of their keys."""
    first, second = sort((keys, values), dimension)
    return first, second


def top_k(operand: ArrayLike, k: int, *, axis: int = -1) -> tuple[Array, Array]:
    """The k largest elements along an axis, in descending order, and their indices."""
    x, k = array("top_k", operand), static_integer("top_k", "k", k)
    number = place("top_k", axis, x.ndim)
    last = x.ndim - 1
    values, indices = sorts.top_k(move_axis(x, number, last), k=k)
    return move_axis(values, last, number), move_axis(indices, last, number)

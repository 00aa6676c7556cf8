"""fixed_point: where a function gives back what it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, NamedTuple, TypeVar

import numpy as np
from ml_dtypes import finfo

from treadle import dtypes, tree
from treadle.api.args import as_results, check_function, name_of
from treadle.api.boundary import boundary
from treadle.api.implicit import Vectors, custom_linear_solve, custom_root
from treadle.api.while_loops import while_loop
from treadle.ops.arithmetic import add, mul, sub
from treadle.ops.binary import maximum
from treadle.ops.cast import convert
from treadle.ops.compare import bitwise_and, gt, is_finite, le, lt, select
from treadle.ops.movement import zeros_like
from treadle.ops.reduce import reduce_max
from treadle.ops.unary import abs_
from treadle.trace.value import typeof

Step = Callable[[list[Any]], list[Any]]


T = TypeVar("T")


@boundary
def fixed_point(
    function: Callable[[T], T],
    init: T,
    *,
    tolerance: float | None = None,
    max_steps: int = 1000,
) -> T:
    """x with ``function(x) = x``, found by calling `function` again and again.

    The derivative is that of the equation (by the implicit function theorem), not of
    the iterations: what `function` closes over may be differentiated, in forward and
    reverse mode, of any order, in the memory of one call. It takes an iteration of its
    own, which comes to an end where this one does.

    Args:
      function: from a pytree of arrays to one like it; a contraction near x.
      init: where to start: a pytree of floating or complex arrays.
      tolerance: by how much, beside 1 + the largest number in x, the last step changed
        it at most. None: what the dtypes allow.
      max_steps: of each iteration. What has not come to rest by then is NaN.

    Raises:
      StructureError, TypeError: if `function` gives something that is not like `init`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> def root(a):
    ...     return td.fixed_point(lambda x: 0.5 * (x + a / x), 1.0)
    >>> td.value_and_grad(root)(4.0)
    (Array(2., dtype=float32), Array(0.25, dtype=float32))
    """
    check_function("fixed_point", function)
    name = name_of(function)
    vectors = Vectors("fixed_point", "init", init, function)
    form, types = vectors.form, vectors.types
    if tolerance is None:
        tolerance = max([float(finfo(t.dtype).eps) ** 0.75 for t in types], default=0.0)

    def iterate(step: Step, start: list[Any], least: float) -> Any:
        limits = _Limits(tolerance, least, max_steps)
        return form.unflatten(as_results(_iterated(step, start, limits)))

    def call(x: list[Any]) -> list[Any]:
        return vectors.flat(function(form.unflatten(x)), name)

    def residual(x: Any) -> Any:
        old = tree.leaves(x)
        return form.unflatten(map(sub, call(old), old))

    def solve(g: Callable[[Any], Any], y: Any) -> Any:
        # g is J - 1, or its transpose: g(d) = y where d = J d - y.
        right = tree.leaves(y)

        def step(d: list[Any]) -> list[Any]:
            moved = map(add, tree.leaves(g(form.unflatten(d))), d)
            return list(map(sub, moved, right))

        return iterate(step, [zeros_like(t) for t in types], 0.0)

    return custom_root(
        residual,
        form.unflatten(vectors.leaves),
        lambda _, x: iterate(call, tree.leaves(x), 1.0),
        lambda g, y: custom_linear_solve(g, y, solve, transpose_solve=solve),
    )


class _Limits(NamedTuple):
    """When an iteration ends: when a step changes numbers by at most `tolerance` times
    the largest of them and `least`, or after `max_steps`."""

    tolerance: float
    least: float
    max_steps: int


def _iterated(step: Step, start: list[Any], limits: _Limits) -> list[Any]:
    """What comes to rest under steps; NaN if nothing does."""

    def going(carry: Any) -> Any:
        count, _, moves, _ = carry
        return bitwise_and(lt(count, limits.max_steps), moves)

    def body(carry: Any) -> Any:
        count, old, _, _ = carry
        new = step(old)
        change, largest = _largest(map(sub, new, old)), _largest(new)
        allowed = mul(add(largest, limits.least), limits.tolerance)
        rests = bitwise_and(le(change, allowed), is_finite(change))
        # (Both are False of NaN: there it ends.)
        return add(count, 1), new, gt(change, allowed), rests

    _, found, _, rests = while_loop(going, body, (0, start, True, False))
    return [x + select(rests, *_numbers(x)) for x in found]


def _numbers(x: Any) -> tuple[Any, Any]:
    dtype = typeof(x).dtype
    return dtype.type(0), dtype.type(np.nan)


def _largest(values: Iterable[Any]) -> Any:
    """The largest absolute value in arrays."""
    found = [abs_(x) for x in values]
    found = [reduce_max(x, axes=tuple(range(typeof(x).ndim))) for x in found]
    dtype = dtypes.promote(*[(typeof(x).dtype, False) for x in found])[0]
    return reduce(maximum, [convert(x, dtype=dtype) for x in found])

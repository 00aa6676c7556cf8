"""Contractions: sums of products over paired axes."""

from __future__ import annotations

from typing import Any

from treadle.control.spelled import product
from treadle.errors import at, user_source
from treadle.lax.operands import Ints, array, places
from treadle.np.contract import factors, of_dtype, preference
from treadle.np.operands import ArrayLike
from treadle.run.array import Array
from treadle.trace.value import typeof


def dot_general(
    lhs: ArrayLike,
    rhs: ArrayLike,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """Products of two arrays, summed over paired axes.

    Shapes: the result's axes are the batch axes, what is left of lhs, what is left of
    rhs.

    Args:
      dimension_numbers: ``((lhs_contracting, rhs_contracting), (lhs_batch,
        rhs_batch))``; paired axes have equal lengths.
      precision: is accepted, and changes nothing: products have all digits.
      preferred_element_type: the dtype of the result, in which products are summed if
        it has more digits than the operands' dtype.

    Raises:
      ValueError: if the axes do not fit each other.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x, y = tnp.ones((5, 2, 3)), tnp.ones((5, 3, 4))
    >>> td.lax.dot_general(x, y, (((2,), (1,)), ((0,), (0,)))).shape
    (5, 2, 4)
    """
    name = "dot_general"
    wide = preference(preferred_element_type, lhs, rhs)
    x, y = factors(name, lhs, rhs, precision=precision, preferred=wide)
    contract, batch = numbers_of(name, dimension_numbers, typeof(x), typeof(y))
    out = product(x, y, contract=contract, batch=batch)
    return of_dtype(out, wide)


def numbers_of(name: str, given: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Axes that are summed, and those of the batch, of both operands."""
    try:
        (x_sum, y_sum), (x_batch, y_batch) = given
    except (TypeError, ValueError):
        raise ValueError(
            f"{name}: dimension_numbers are ((lhs_contracting, rhs_contracting), "
            f"(lhs_batch, rhs_batch)), got {given!r}{at(user_source())}"
        ) from None
    of_x: Ints = places(name, (*x_sum, *x_batch), x.ndim)
    of_y: Ints = places(name, (*y_sum, *y_batch), y.ndim)
    if len(tuple(x_sum)) != len(tuple(y_sum)) or len(of_x) != len(of_y):
        raise ValueError(
            f"{name} of {x} and {y}: each axis of one has a partner in the other, got "
            f"{given!r}{at(user_source())}"
        )
    n = len(tuple(x_sum))
    return (of_x[:n], of_y[:n]), (of_x[n:], of_y[n:])


def dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    dimension_numbers: Any = None,
) -> Array:
    """The product of vectors and matrices; with `dimension_numbers`, `dot_general`.

    Raises:
      ValueError: for arrays of other ranks.
    """
    x, y = array("dot", lhs), array("dot", rhs)
    if dimension_numbers is None:
        if x.ndim not in (1, 2) or y.ndim not in (1, 2):
            raise ValueError(
                f"dot of {x.type} and {y.type}: vectors and matrices, or say "
                f"`dimension_numbers`{at(user_source())}"
            )
        dimension_numbers = (((x.ndim - 1,), (0,)), ((), ()))
    return dot_general(x, y, dimension_numbers, precision, preferred_element_type)


def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: Any = None) -> Array:
    """Matrix products for equal leading axes."""
    x, y = array("batch_matmul", lhs), array("batch_matmul", rhs)
    n = x.ndim
    if n < 2 or n != y.ndim:
        raise ValueError(
            f"batch_matmul of {x.type} and {y.type}: matrices with the same leading "
            f"axes expected{at(user_source())}"
        )
    lead = tuple(range(n - 2))
    numbers = (((n - 1,), (n - 2,)), (lead, lead))
    return dot_general(x, y, numbers, precision)

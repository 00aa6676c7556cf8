"""What the functions of `treadle.scipy` do with their arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from treadle import dtypes
from treadle.errors import at, user_source
from treadle.np.operands import (
    ArrayLike,
    as_array,
    as_inexact,
    broadcast,
    cast,
    promoted,
)
from treadle.trace.value import typeof


def floats(name: str, *args: ArrayLike) -> list[Any]:
    """The operands as arrays of one floating dtype and one shape (or scalars).

    Raises:
      TypeError: if one is complex.
    """
    return broadcast(name, reals(name, *args))


def numbers(name: str, *args: ArrayLike) -> list[Any]:
    """The operands as arrays of one floating or complex dtype and one shape."""
    return broadcast(name, promoted(name, *[as_inexact(name, x) for x in args]))


def reals(name: str, *args: ArrayLike) -> list[Any]:
    """The operands as arrays of one floating dtype; shapes stay as they are.

    Raises:
      TypeError: if one is complex.
    """
    found = promoted(name, *[as_inexact(name, x) for x in args])
    for x in found:
        if dtypes.is_complex(typeof(x).dtype):
            raise TypeError(
                f"{name} is defined for real numbers, got {typeof(x)}"
                f"{at(user_source())}"
            )
    return [as_array(x) for x in found]


def single_at_least(xs: list[Any]) -> tuple[list[Any], Any]:
    """The operands with a dtype in which loops may stop by their digits, and the dtype
    of the result: half floats are computed in float32."""
    dtype = typeof(xs[0]).dtype
    if dtype.itemsize == 2:
        return [cast(x, dtypes.float32) for x in xs], dtype
    return xs, dtype


def in_single(function: Callable[..., Any], name: str, *args: ArrayLike) -> Any:
    """A function of floats, computed in float32 where the operands are half floats."""
    wide, dtype = single_at_least(floats(name, *args))
    return cast(function(*wide), dtype)


def whole(name: str, what: str, n: Any, low: int) -> int:
    """A Python int that is known while tracing.

    Raises:
      TypeError, ValueError: if it is none, or less than `low`.
    """
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(
            f"{name}: {what} is a Python int, got {n!r:.60}{at(user_source())}"
        )
    if n < low:
        raise ValueError(
            f"{name}: {what} is at least {low}, got {n}{at(user_source())}"
        )
    return n

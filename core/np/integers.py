"""Functions of whole numbers: divisors, and the bits that they are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.api.while_loops import while_loop
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, as_array, cast, matched, one_axis, operand
from treadle.np.padding import pad
from treadle.np.reductions import any as any_of
from treadle.np.shapes import ravel, reshape
from treadle.ops import compare
from treadle.ops.arithmetic import div, mul
from treadle.ops.binary import rem
from treadle.ops.movement import broadcast_in_dim, reverse
from treadle.ops.reduce import reduce_or
from treadle.ops.shape import iota
from treadle.ops.unary import abs_
from treadle.run.array import Array
from treadle.trace.value import typeof


def _whole(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two arrays of natural numbers of one shape and dtype."""
    a, b = matched(name, x, y)
    dtype = typeof(a).dtype
    if not dtypes.is_integer(dtype):
        raise TypeError(
            f"{name} is defined for integers, got {typeof(x)} and {typeof(y)}"
            f"{at(user_source())}"
        )
    shape = typeof(a).shape or typeof(b).shape
    a, b = (
        v if typeof(v).shape else broadcast_in_dim(v, shape=shape, dims=())
        for v in (as_array(a), as_array(b))
    )
    return (a, b) if dtypes.is_unsigned(dtype) else (abs_(a), abs_(b))


def gcd(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The greatest common divisor of two integers; gcd(0, y) is the size of y."""
    return _gcd(*_whole("gcd", x, y))


def _gcd(a: Any, b: Any) -> Any:
    def step(pair: Any) -> Any:
        a, b = pair
        done = compare.eq(b, 0)
        rest = rem(a, compare.select(done, typeof(b).dtype.type(1), b))
        return compare.select(done, a, b), compare.select(done, b, rest)

    found = while_loop(lambda pair: any_of(compare.ne(pair[1], 0)), step, (a, b))[0]
    # The least integer is its own size, and negative: so may be a rest.
    return found if dtypes.is_unsigned(typeof(found).dtype) else abs_(found)


def lcm(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The least common multiple of two integers; 0 if one of them is."""
    a, b = _whole("lcm", x, y)
    common = _gcd(a, b)
    one = typeof(common).dtype.type(1)
    return mul(div(a, compare.select(compare.eq(common, 0), one, common)), b)


# Bits ---------------------------------------------------------------------------------


def bitwise_count(x: ArrayLike, /) -> Array:
    """How many bits of the absolute value of an integer are set, as uint8."""
    x = operand("bitwise_count", x)
    dtype = typeof(x).dtype
    if dtype == dtypes.bool_:
        return cast(as_array(x), dtypes.uint8)
    if not dtypes.is_integer(dtype):
        raise TypeError(
            f"bitwise_count is defined for integers, got {typeof(x)}{at(user_source())}"
        )
    size = x if dtypes.is_unsigned(dtype) else abs_(x)
    return cast(compare.population_count(as_array(size)), dtypes.uint8)


_ORDERS = ("big", "little")


def _check_order(name: str, order: str) -> None:
    if order not in _ORDERS:
        raise ValueError(
            f"{name}: bitorder is 'big' or 'little', got {order!r}{at(user_source())}"
        )


def _places(shape: tuple[int, ...], axis: int, order: str) -> Any:
    """By how many bits each of eight is shifted, which are along this axis."""
    place = iota(shape=shape, axis=axis, dtype=dtypes.uint8)
    return reverse(place, axes=(axis,)) if order == "big" else place


def _bits_of(order: str) -> Any:
    """A byte for each bit of one, that has this bit alone."""
    found = np.uint8(1) << np.arange(8, dtype=np.uint8)
    return as_array(found[::-1] if order == "big" else found)


def packbits(x: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight truth values (or integers, which are true if not 0) along an axis become
    one uint8; None flattens. What is missing to eight at the end counts as false.

    Args:
      bitorder: whether the first of eight is the highest bit ("big") or the lowest.
    """
    x = operand("packbits", x)
    _check_order("packbits", bitorder)
    if dtypes.is_differentiable(typeof(x).dtype):
        raise TypeError(
            f"packbits takes booleans or integers, got {typeof(x)}{at(user_source())}"
        )
    if axis is None:
        x, axis = ravel(x), 0
    number = one_axis("packbits", axis, typeof(x).ndim)
    bits = cast(cast(x, dtypes.bool_), dtypes.uint8)
    shape = typeof(bits).shape
    before, n, behind = shape[:number], shape[number], shape[number + 1 :]
    bytes_ = (n + 7) // 8
    missing = 8 * bytes_ - n
    if is_dim(missing) or missing:
        bits = pad(bits, _at_end(missing, number, len(shape)))
    eights = (*before, bytes_, 8, *behind)
    places = _places(eights, number + 1, bitorder)
    bits = compare.shift_left(reshape(bits, eights), places)
    return reduce_or(bits, axes=(number + 1,))


def _at_end(count: Any, axis: int, ndim: int) -> list[tuple[Any, Any]]:
    """The widths of padding behind an axis."""
    return [(0, count if i == axis else 0) for i in range(ndim)]


def unpackbits(
    x: ArrayLike,
    axis: int | None = None,
    count: int | None = None,
    bitorder: str = "big",
) -> Array:
    """Each uint8 becomes its eight bits, along an axis; None flattens.

    Args:
      count: how many bits to keep; if there are fewer, zeros follow. If negative, how
        many to leave out at the end.
      bitorder: whether the highest bit comes first ("big") or the lowest.
    """
    x = operand("unpackbits", x)
    if typeof(x).dtype != dtypes.uint8:
        raise TypeError(
            f"unpackbits takes an array of uint8, got {typeof(x)}{at(user_source())}"
        )
    _check_order("unpackbits", bitorder)
    if axis is None:
        x, axis = ravel(x), 0
    number = one_axis("unpackbits", axis, typeof(x).ndim)
    shape = typeof(x).shape
    before, n, behind = shape[:number], shape[number], shape[number + 1 :]
    wide, masks = (*before, n, 8, *behind), _bits_of(bitorder)
    kept = tuple(i for i in range(len(wide)) if i != number + 1)
    bits = compare.bitwise_and(
        broadcast_in_dim(as_array(x), shape=wide, dims=kept),
        broadcast_in_dim(masks, shape=wide, dims=(number + 1,)),
    )
    bits = cast(compare.ne(bits, np.uint8(0)), dtypes.uint8)
    flat = reshape(bits, (*before, 8 * n, *behind))
    if count is not None:
        beyond = count - 8 * n if count >= 0 else 0
        if not is_dim(beyond) and beyond > 0:
            flat = pad(flat, _at_end(beyond, number, len(shape)))
        flat = flat[(slice(None),) * number + (slice(count),)]
    return flat

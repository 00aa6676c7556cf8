"""Polynomials as vectors of coefficients, that of the highest power first.

NumPy drops leading zeros from its results. Here their lengths depend on the lengths of
the operands alone, so that they are known while tracing.
"""

from __future__ import annotations

from typing import Any

from treadle import dtypes
from treadle.dims import settled
from treadle.errors import at, user_source
from treadle.np.binary import multiply
from treadle.np.convolution import convolve
from treadle.np.creation import arange, array, full
from treadle.np.edits import trim_zeros
from treadle.np.join import concatenate
from treadle.np.operands import (
    ArrayLike,
    agreed,
    as_array,
    as_inexact,
    broadcast_to_shape,
    cast,
    operand,
    promoted,
)
from treadle.np.places import known
from treadle.np.shapes import atleast_1d, reshape
from treadle.run.array import Array
from treadle.trace.value import typeof


def coefficients(name: str, p: Any) -> Any:
    if isinstance(p, list | tuple):
        p = array(p)
    p = atleast_1d(operand(name, p))
    if typeof(p).ndim != 1:
        raise ValueError(
            f"{name}: coefficients are a vector, got {typeof(p)}{at(user_source())}"
        )
    return p


def _two(name: str, p: Any, q: Any) -> tuple[Any, Any]:
    """The coefficients of two polynomials, of one dtype."""
    p, q = (array(v) if isinstance(v, list | tuple) else v for v in (p, q))
    p, q = agreed(name, p, q)
    return coefficients(name, p), coefficients(name, q)


def written_out(n: int) -> int:
    """How many steps are written one by one. Where a size is open there is a program
    for each number of them: a loop would round halves at each step."""
    return settled(int, (n,))


def polyval(p: ArrayLike, x: ArrayLike) -> Array:
    """The values of a polynomial, or of several: ``p`` may have further axes behind its
    first, which are broadcast with x.

    >>> import treadle.numpy as tnp
    >>> tnp.polyval(tnp.array([1.0, 0.0, 2.0]), 3.0)  # x² + 2
    Array(11., dtype=float32)
    """
    if isinstance(p, list | tuple):
        p = array(p)
    c, a = promoted("polyval", atleast_1d(p), x)
    out: Any = as_array(a) * 0
    for k in range(written_out(typeof(c).shape[0])):
        out = multiply(out, a) + c[k]
    return out


def polyadd(p: ArrayLike, q: ArrayLike) -> Array:
    """The sum of two polynomials, as long as the longer."""
    c, d = _two("polyadd", p, q)
    n = max(c.shape[0], d.shape[0])
    c, d = (_lengthened(v, n) for v in (c, d))
    return c + d


def polysub(p: ArrayLike, q: ArrayLike) -> Array:
    """The difference of two polynomials, as long as the longer."""
    c, d = _two("polysub", p, q)
    n = max(c.shape[0], d.shape[0])
    c, d = (_lengthened(v, n) for v in (c, d))
    return c - d


def _lengthened(p: Any, n: int) -> Any:
    missing = n - p.shape[0]
    return concatenate([full(missing, 0, p.dtype), p]) if missing else p


def polymul(p: ArrayLike, q: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials.

    Args:
      trim_leading_zeros: drop the operands' leading zeros first, as NumPy does; their
        values must be known then.
    """
    p, q = _two("polymul", p, q)
    if trim_leading_zeros:
        p, q = _trimmed(p), _trimmed(q)
    return convolve(p, q)


def _trimmed(p: Any) -> Any:
    known("trim_zeros", p, "trim_leading_zeros")
    out = trim_zeros(p, "f")
    return out if out.shape[0] else p[-1:]


def polydiv(
    u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False
) -> tuple[Array, Array]:
    """The quotient and the remainder of two polynomials.

    Args:
      trim_leading_zeros: drop leading zeros of the remainder, as NumPy does; the
        values must be known then.
    """
    a, b = (as_inexact("polydiv", w) for w in _two("polydiv", u, v))
    m, n = a.shape[0], b.shape[0]
    if m < n:
        quotient, rest = full((1,), 0, a.dtype), a
    else:
        steps, rest = [], a
        for k in range(written_out(m - n + 1)):
            factor = rest[k] / b[0]
            steps.append(factor)
            rest = rest.at[k : k + n].add(-factor * b)
        quotient = concatenate([reshape(s, (1,)) for s in steps])
        rest = rest.at[: m - n + 1].set(0)
        rest = rest[max(m - n + 1, 0) :] if n > 1 else rest[-1:]
    return quotient, _trimmed(rest) if trim_leading_zeros else rest


def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The m-th derivative of a polynomial."""
    c = coefficients("polyder", p)
    _check_order("polyder", m)
    if m and c.dtype == dtypes.bool_:
        c = as_array(cast(c, dtypes.int32))
    for _ in range(m):
        n = c.shape[0]
        powers = cast(arange(n - 1, 0, -1), c.dtype)
        c = c[:-1] * powers if n else c
    return as_array(c)


def polyint(p: ArrayLike, m: int = 1, k: Any = None) -> Array:
    """The m-th integral of a polynomial.

    Args:
      k: the constants of integration, in the order of the integrals; one number is
        that of all. 0 by default.
    """
    c = as_array(as_inexact("polyint", coefficients("polyint", p)))
    _check_order("polyint", m)
    constants = coefficients("polyint", 0.0 if k is None else k)
    constants = cast(constants, c.dtype)
    if constants.shape[0] == 1:
        constants = broadcast_to_shape(constants, (m,))
    if constants.shape != (m,):
        raise ValueError(
            f"polyint: {constants.shape[0]} constants for {m} integrals"
            f"{at(user_source())}"
        )
    for i in range(m):
        powers = cast(arange(c.shape[0], 0, -1), c.dtype)
        c = concatenate([c / powers, constants[i : i + 1]])
    return c


def _check_order(name: str, m: int) -> None:
    if m < 0:
        raise ValueError(f"{name}: the order {m} is negative{at(user_source())}")

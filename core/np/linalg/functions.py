"""Functions of matrices."""

from __future__ import annotations

import math
from typing import Any

from treadle import dtypes
from treadle.api.branch import cond
from treadle.api.jacobian import stop_gradient
from treadle.api.while_loops import fori_loop
from treadle.np import reductions
from treadle.np.binary import maximum
from treadle.np.contract import matmul
from treadle.np.elementwise import abs, exp2, floor, log2
from treadle.np.linalg.operands import empty, identity_of, matrices, narrowed
from treadle.np.linalg.solving import solve
from treadle.np.operands import ArrayLike, cast
from treadle.np.places import where
from treadle.run.array import Array
from treadle.trace.value import typeof

# Numerators of Padé approximants of the exponential function (Higham 2005, table 2.3),
# and the norms up to which they are as exact as the dtype.
_SINGLE = (17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1), 3.925724783138660
_DOUBLE = (
    (
        *(64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800),
        *(129060195264000, 10559470521600, 670442572800, 33522128640, 1323241920),
        *(40840800, 960960, 16380, 182, 1),
    ),
    5.371920351148152,
)
_MOST_SQUARINGS = 32


def expm(a: ArrayLike) -> Array:
    """The exponential functions of square matrices: ``I + A + A²/2 + …``.

    By scaling and squaring (Higham 2005). A norm beyond 1e10 gives not-a-number.

    Raises:
      ValueError: if the matrices are not square.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.expm(tnp.array([[0.0, 1.0], [0.0, 0.0]]))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    a, dtype = matrices("expm", a, square=True)
    t = typeof(a)
    if empty(t.shape):
        return narrowed(a, dtype)
    real = dtypes.to_real(t.dtype)
    coefficients, largest = _SINGLE if real == dtypes.float32 else _DOUBLE
    size = abs(stop_gradient(a))
    norm = reductions.max(reductions.sum(size, -2), -1)[..., None, None]
    count = maximum(floor(log2(norm / largest)) + 1, 0)
    numerator, denominator = _pade(a * cast(exp2(-count), t.dtype), coefficients)
    result = solve(denominator, numerator)

    def square(i: Any, x: Any) -> Any:
        more = i < count
        return cond(
            reductions.any(more), lambda x: where(more, matmul(x, x), x), lambda x: x, x
        )

    result = fori_loop(0, _MOST_SQUARINGS, square, result)
    nan = t.dtype.type(math.nan)
    return narrowed(where(count <= _MOST_SQUARINGS, result, nan), dtype)


def _pade(a: Any, coefficients: tuple[int, ...]) -> tuple[Any, Any]:
    """Numerator and denominator: polynomials that differ in the sign of odd powers."""
    t = typeof(a)
    one = identity_of(t.shape, t.dtype)
    squares = matmul(a, a)
    # Horner's rule, in powers of the square.
    *rest, first, second = (t.dtype.type(float(c)) for c in coefficients)
    even, odd = one * first, one * second
    for k in range(len(rest) - 2, -1, -2):
        even = matmul(squares, even) + one * rest[k]
        odd = matmul(squares, odd) + one * rest[k + 1]
    odd = matmul(a, odd)
    return even + odd, even - odd

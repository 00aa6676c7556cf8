"""Products and powers of matrices, and what is said of their diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

from treadle.dims import hint, is_dim, settled
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np import contract
from treadle.np import matrices as np_matrices
from treadle.np.contract import matmul
from treadle.np.linalg.operands import check_matrices, identity_of
from treadle.np.linalg.solving import inv
from treadle.np.operands import ArrayLike, as_array, promoted, static_integer
from treadle.np.reductions import sum as sum_of
from treadle.np.shapes import expand_dims
from treadle.run.array import Array
from treadle.trace.value import typeof


def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices in the last two axes."""
    return np_matrices.diagonal(x, offset, -2, -1)


def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """The sums of the diagonals of matrices in the last two axes."""
    return sum_of(diagonal(x, offset=offset), -1, dtype)


def outer(x: ArrayLike, y: ArrayLike, /) -> Array:
    """All products of an element of x and one of y: ``(m), (n) -> (m, n)``.

    Raises:
      ValueError: if one is no vector; `treadle.numpy.outer` flattens it.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.outer(tnp.array([1, 2]), tnp.array([3, 4, 5]))
    Array([[ 3,  4,  5],
           [ 6,  8, 10]], dtype=int32)
    """
    types = [typeof(v) for v in promoted("outer", x, y)]
    if any(t.ndim != 1 for t in types):
        raise ValueError(
            f"linalg.outer takes vectors, got {types[0]} and {types[1]}; "
            f"`treadle.numpy.outer` flattens them{at(user_source())}"
        )
    return contract.outer(x, y)


def matrix_power(a: ArrayLike, n: int) -> Array:
    """Square matrices times themselves, n factors in all, by repeated squaring.

    A negative n is a power of the inverse.

    Raises:
      TypeError: if n is no integer.
      ValueError: if the matrices are not square.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.matrix_power(tnp.array([[1.0, 1.0], [0.0, 1.0]]), 5)
    Array([[1., 5.],
           [0., 1.]], dtype=float32)
    """
    (a,) = promoted("matrix_power", a)
    t = typeof(a)
    check_matrices("matrix_power", t.shape, square=True)
    count = static_integer("matrix_power", "the exponent", n)
    if count < 0:
        a, count = inv(a), -count
    result: Any = None
    while count:
        if count & 1:
            result = a if result is None else matmul(result, a)
        count >>= 1
        a = matmul(a, a) if count else a
    return as_array(identity_of(t.shape, t.dtype) if result is None else result)


def multi_dot(arrays: Sequence[ArrayLike], *, precision: Any = None) -> Array:
    """The product of several matrices, in the order of products that is cheapest. The
    first may be a vector, and is a row; the last one a column.

    Args:
      precision: is accepted, and changes nothing: products have all digits.

    Raises:
      ValueError: for fewer than two arrays, or shapes that don't fit.

    >>> import treadle.numpy as tnp
    >>> tnp.linalg.multi_dot([tnp.ones((2, 50)), tnp.ones((50, 3)), tnp.ones(3)])
    Array([150., 150.], dtype=float32)
    """
    if len(arrays) < 2:
        raise ValueError(
            f"multi_dot takes two arrays or more, got {len(arrays)}{at(user_source())}"
        )
    contract.check_precision("multi_dot", precision)
    xs = promoted("multi_dot", *arrays)
    ranks = [typeof(x).ndim for x in xs]
    row, column = ranks[0] == 1, ranks[-1] == 1
    if row:
        xs[0] = expand_dims(xs[0], 0)
    if column:
        xs[-1] = expand_dims(xs[-1], 1)
    shapes = [typeof(x).shape for x in xs]
    fit = pairwise(shapes)
    if any([len(s) != 2 for s in shapes]) or any([a[1] != b[0] for a, b in fit]):
        given = ", ".join([str(typeof(x).shape) for x in arrays])
        raise ValueError(f"multi_dot: shapes {given} don't fit{at(user_source())}")
    lengths = [shapes[0][0], *[s[1] for s in shapes]]
    order = _cheapest(*map(hint, lengths))
    if any(map(is_dim, lengths)):
        # The order of the sums depends on it: two sizes of one program must agree.
        settled(_is_cheapest, (order, *lengths))

    def product(part: Any) -> Any:
        return xs[part] if type(part) is int else matmul(*map(product, part))

    out = product(order)
    out = out[0] if row else out
    return out[..., 0] if column else out


def _cheapest(*lengths: int) -> Any:
    """In which order a chain of matrices, n by m, m by k…, is multiplied with the
    fewest products of numbers: a pair of what is multiplied last, down to places."""

    @cache
    def best(first: int, last: int) -> tuple[int, Any]:
        if first == last:
            return 0, first
        found = []
        for k in range(first, last):
            (a, left), (b, right) = best(first, k), best(k + 1, last)
            own = lengths[first] * lengths[k + 1] * lengths[last + 1]
            found.append((a + b + own, (left, right)))
        return min(found, key=lambda f: f[0])

    return best(0, len(lengths) - 2)[1]


def _is_cheapest(order: Any, *lengths: int) -> int:
    return int(_cheapest(*lengths) == order)

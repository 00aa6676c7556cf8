"""Products that sum: dot, matmul, tensordot and their kin.

All are one `dot_general` on the operands as they are: no transposition or broadcast is
recorded unless the result needs one.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from treadle import dtypes
from treadle.dims import one, same_shape
from treadle.errors import at, user_source
from treadle.np.binary import multiply
from treadle.np.complex_parts import conj
from treadle.np.index import counted
from treadle.np.join import stack
from treadle.np.operands import ArrayLike, cast, common_shape, one_axis, promoted
from treadle.np.shapes import (
    expand_dims,
    flip,
    moveaxis,
    ravel,
    reshape,
    squeeze,
)
from treadle.ops.dot import dot_general
from treadle.ops.movement import move_axis, transpose
from treadle.ops.shape import pad
from treadle.run.array import Array
from treadle.trace.value import typeof

_NONE: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def factors(name: str, *args: Any) -> list[Any]:
    """The operands with their common dtype, in which products can be summed."""
    xs = promoted(name, *args)
    if typeof(xs[0]).dtype == dtypes.bool_:
        return [cast(x, dtypes.int32) for x in xs]
    return xs


def matmul(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The matrix product over the last two axes; other axes are broadcast.

    Shapes: ``(..., m, k) @ (..., k, n) -> (..., m, n)``; a vector on the left is a
    row, on the right a column, and its axis is dropped from the result.

    Raises:
      ValueError: if the inner lengths differ, naming both shapes.
    """
    x, y = factors("matmul", x, y)
    a, b = typeof(x).shape, typeof(y).shape
    if not a or not b:
        raise ValueError(
            f"matmul: shapes {a} and {b}: a scalar is no matrix; use `*`"
            f"{at(user_source())}"
        )
    inner = max(len(b) - 2, 0)
    if a[-1] != b[inner]:
        raise ValueError(
            f"matmul: shapes {a} and {b}: the last axis of the first has length "
            f"{a[-1]}, axis {inner - len(b)} of the second has length {b[inner]}"
            f"{at(user_source())}"
        )
    contract = ((len(a) - 1,), (inner,))
    if len(b) <= 2 or len(a) == 1:
        return dot_general(x, y, contract=contract, batch=_NONE)
    if len(a) == 2:
        return move_axis(
            dot_general(x, y, contract=contract, batch=_NONE), 0, len(b) - 2
        )
    if same_shape(a[:-2], b[:-2]):
        rows = tuple(range(len(a) - 2))
        return dot_general(x, y, contract=contract, batch=(rows, rows))
    return _broadcast_matmul(x, y)


def _broadcast_matmul(x: Any, y: Any) -> Any:
    """Leading axes that differ: one that only one operand has (with a length other
    than 1) is a free axis of that operand."""
    a, b = typeof(x).shape, typeof(y).shape
    rank = max(len(a), len(b)) - 2
    lead_a = (1,) * (rank + 2 - len(a)) + a[:-2]
    lead_b = (1,) * (rank + 2 - len(b)) + b[:-2]
    both, only_a, only_b = [], [], []
    for i, (m, n) in enumerate(zip(lead_a, lead_b, strict=True)):
        if one(m) and one(n):
            continue
        if one(n):
            only_a.append(i)
        elif one(m):
            only_b.append(i)
        elif m == n:
            both.append(i)
        else:
            raise ValueError(
                f"matmul: the leading axes of shapes {a} and {b} don't broadcast"
                f"{at(user_source())}"
            )
    axes_a = [i for i in range(rank) if i in both or i in only_a]
    axes_b = [i for i in range(rank) if i in both or i in only_b]
    x = reshape(x, (*[lead_a[i] for i in axes_a], *a[-2:]))
    y = reshape(y, (*[lead_b[i] for i in axes_b], *b[-2:]))
    product = dot_general(
        x,
        y,
        contract=((len(axes_a) + 1,), (len(axes_b),)),
        batch=(
            tuple([axes_a.index(i) for i in both]),
            tuple([axes_b.index(i) for i in both]),
        ),
    )
    found = [*both, *only_a, rank, *only_b, rank + 1]
    order = tuple(sorted(range(len(found)), key=found.__getitem__))
    if order != tuple(range(len(order))):
        product = transpose(product, permutation=order)
    return reshape(product, (*common_shape("matmul", (lead_a, lead_b)), a[-2], b[-1]))


def dot(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The product over the last axis of x and the last but one of y (NumPy's `dot`);
    a scalar multiplies."""
    x, y = factors("dot", x, y)
    a, b = typeof(x).shape, typeof(y).shape
    if not a or not b:
        return multiply(x, y)
    inner = max(len(b) - 2, 0)
    if a[-1] != b[inner]:
        raise ValueError(
            f"dot: shapes {a} and {b}: the last axis of the first has length {a[-1]}, "
            f"axis {inner - len(b)} of the second has length {b[inner]}"
            f"{at(user_source())}"
        )
    return dot_general(x, y, contract=((len(a) - 1,), (inner,)), batch=_NONE)


def vdot(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The product of two arrays seen as vectors (the first conjugated)."""
    x, y = factors("vdot", x, y)
    if dtypes.is_complex(typeof(x).dtype):
        raise TypeError(f"vdot is not defined for complex arrays{at(user_source())}")
    return dot(ravel(x), ravel(y))


def inner(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The product over the last axes of both."""
    x, y = factors("inner", x, y)
    a, b = typeof(x).shape, typeof(y).shape
    if not a or not b:
        return multiply(x, y)
    if a[-1] != b[-1]:
        raise ValueError(
            f"inner: the last axes of shapes {a} and {b} differ{at(user_source())}"
        )
    return dot_general(x, y, contract=((len(a) - 1,), (len(b) - 1,)), batch=_NONE)


def outer(x: ArrayLike, y: ArrayLike, /) -> Array:
    """All products of an element of x and one of y (both flattened)."""
    x, y = promoted("outer", x, y)
    return multiply(reshape(x, (-1, 1)), reshape(y, (1, -1)))


def tensordot(x: ArrayLike, y: ArrayLike, axes: Any = 2) -> Array:
    """The product over several axes.

    Args:
      axes: how many (the last of x with the first of y), or a pair of lists: the axes
        of x and those of y.
    """
    x, y = factors("tensordot", x, y)
    a, b = typeof(x).shape, typeof(y).shape
    if isinstance(axes, Sequence):
        first, second = (
            tuple([one_axis("tensordot", i, len(s)) for i in _listed(given)])
            for given, s in zip(axes, (a, b), strict=True)
        )
    else:
        n = index(axes)
        if n > min(len(a), len(b)):
            raise ValueError(
                f"tensordot over {n} axes of shapes {a} and {b}{at(user_source())}"
            )
        first, second = tuple(range(len(a) - n, len(a))), tuple(range(n))
    if len(first) != len(second) or any(
        a[i] != b[j] for i, j in zip(first, second, strict=False)
    ):
        raise ValueError(
            f"tensordot: axes {first} of shape {a} and {second} of shape {b} have "
            f"different lengths{at(user_source())}"
        )
    return dot_general(x, y, contract=(first, second), batch=_NONE)


def _listed(axes: Any) -> Sequence[int]:
    return axes if isinstance(axes, Sequence) else (axes,)


def kron(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The Kronecker product."""
    x, y = promoted("kron", x, y)
    a, b = typeof(x).shape, typeof(y).shape
    rank = max(len(a), len(b))
    a = (1,) * (rank - len(a)) + a
    b = (1,) * (rank - len(b)) + b
    product = multiply(
        reshape(x, tuple(v for n in a for v in (n, 1))),
        reshape(y, tuple(v for n in b for v in (1, n))),
    )
    return reshape(product, tuple(m * n for m, n in zip(a, b, strict=True)))


def vecdot(x: ArrayLike, y: ArrayLike, /, *, axis: int = -1) -> Array:
    """The inner products of vectors along an axis; other axes are broadcast, and x is
    conjugated."""
    x, y = factors("vecdot", x, y)
    x, y = (moveaxis(v, one_axis("vecdot", axis, typeof(v).ndim), -1) for v in (x, y))
    product = matmul(expand_dims(conj(x), -2), expand_dims(y, -1))
    return squeeze(product, (-2, -1))


def matvec(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Matrices times vectors: ``(..., m, n), (..., n) -> (..., m)``."""
    return squeeze(matmul(x, expand_dims(y, -1)), -1)


def vecmat(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Vectors, conjugated, times matrices: ``(..., m), (..., m, n) -> (..., n)``."""
    return squeeze(matmul(expand_dims(conj(x), -2), y), -2)


def cross(x: ArrayLike, y: ArrayLike, *, axis: int = -1) -> Array:
    """The vector products of vectors of three elements along an axis."""
    x, y = promoted("cross", x, y)
    lengths = [typeof(v).shape[one_axis("cross", axis, typeof(v).ndim)] for v in (x, y)]
    if lengths != [3, 3]:
        raise ValueError(
            f"cross takes vectors of three elements along axis {axis}, got shapes "
            f"{typeof(x).shape} and {typeof(y).shape}{at(user_source())}"
        )
    a, b, c = (moveaxis(x, axis, 0)[i] for i in range(3))
    p, q, r = (moveaxis(y, axis, 0)[i] for i in range(3))
    return stack([b * r - c * q, c * p - a * r, a * q - b * p], axis)


def convolve(x: ArrayLike, y: ArrayLike, mode: str = "full") -> Array:
    """The convolution of two vectors.

    Args:
      mode: "full", where they overlap at all; "same", the middle of that, as long as
        the longer vector; "valid", where they overlap wholly.
    """
    x, y = promoted("convolve", x, y)
    return _slid("convolve", x, flip(y), mode)


def correlate(x: ArrayLike, y: ArrayLike, mode: str = "valid") -> Array:
    """The correlation of two vectors: x convolved with y reversed and conjugated. The
    modes are those of `convolve`."""
    x, y = promoted("correlate", x, y)
    return _slid("correlate", x, conj(y), mode)


def _slid(name: str, x: Any, y: Any, mode: str) -> Any:
    """The products of a vector with another one at every place."""
    n, k = typeof(x).size, typeof(y).size
    if typeof(x).ndim != 1 or typeof(y).ndim != 1 or not n or not k:
        raise ValueError(
            f"{name} takes two vectors with elements, got shapes {typeof(x).shape} and "
            f"{typeof(y).shape}{at(user_source())}"
        )
    if mode not in ("full", "same", "valid"):
        raise ValueError(
            f"{name}: mode is 'full', 'same' or 'valid', got {mode!r}"
            f"{at(user_source())}"
        )
    zero = typeof(x).dtype.type(0)
    beyond = k - min(n, k) if mode == "valid" else k - 1
    x = pad(x, zero, padding=((beyond, beyond, 0),))
    places = counted(typeof(x).size - k + 1)[:, None] + counted(k)
    out = matmul(x[places], y)
    if mode != "same":
        return out
    short, longest = min(n, k), max(n, k)
    start = (short - 1) // 2
    if name == "correlate" and k > n:
        start = short // 2
    return out[start : start + longest]

"""Products that sum: dot, matmul, tensordot and their kin.

All are one `dot_general` on the operands as they are: no transposition or broadcast is
recorded unless the result needs one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle import dtypes
from treadle.control.spelled import product
from treadle.dims import one, same_shape
from treadle.errors import at, user_source
from treadle.np.binary import multiply
from treadle.np.complex_parts import conj
from treadle.np.join import stack
from treadle.np.operands import (
    ArrayLike,
    agreed,
    cast,
    common_shape,
    one_axis,
    promoted,
    static_integer,
)
from treadle.np.shapes import (
    expand_dims,
    moveaxis,
    ravel,
    reshape,
    squeeze,
)
from treadle.ops.movement import move_axis, transpose
from treadle.run.array import Array
from treadle.trace.value import typeof

_NONE: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())


def factors(
    name: str, *args: Any, precision: Any = None, preferred: Any = None
) -> list[Any]:
    """The operands with the dtype in which products are summed: their common one, or a
    preferred one that has more digits."""
    if precision is not None:
        check_precision(name, precision)
    xs = promoted(name, *args)
    dtype = wide = typeof(xs[0]).dtype
    if preferred is not None:
        wide = dtypes.promote((dtype, False), (dtypes.canonical(preferred), False))[0]
    wide = dtypes.int32 if wide == dtypes.bool_ else wide
    return xs if wide == dtype else [cast(x, wide) for x in xs]


def preference(preferred: Any, *args: Any) -> Any:
    """The dtype of a sum of products, if it is not that in which it is added up: the
    preferred one; else booleans make booleans, true where some product is."""
    booleans = bool, dtypes.bool_
    if preferred is None and all(
        getattr(x, "dtype", type(x)) in booleans for x in args
    ):
        return dtypes.bool_
    return preferred


def of_dtype(x: Any, preferred: Any) -> Any:
    """A sum of products, with the dtype that was preferred."""
    return x if preferred is None else cast(x, dtypes.canonical(preferred))


_PRECISIONS = (
    *("default", "fastest", "high", "highest"),
    *("bfloat16", "bfloat16_3x", "tensorfloat32", "float32"),
)


def check_precision(name: str, precision: Any) -> None:
    """
    Raises:
      ValueError: if there is no such precision. Those that there are do not differ:
        products have all digits of their dtype, and half floats are summed as float32.
    """
    asked = precision if isinstance(precision, tuple) else (precision,)
    for one_of in asked:
        if str(getattr(one_of, "name", one_of)).lower() not in (*_PRECISIONS, "none"):
            raise ValueError(
                f"{name}: precision {one_of!r} is none of "
                f"{', '.join(map(repr, _PRECISIONS))}{at(user_source())}"
            )


def is_exact(precision: Any) -> bool:
    """Whether all products are asked for: any of the two operands' precisions says so.
    One that is checked."""
    asked = precision if isinstance(precision, tuple) else (precision,)
    names = {str(getattr(one_of, "name", one_of)).lower() for one_of in asked}
    return not names.isdisjoint(("highest", "float32"))


def matmul(
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The matrix product over the last two axes; other axes are broadcast.

    Shapes: ``(..., m, k) @ (..., k, n) -> (..., m, n)``; a vector on the left is a
    row, on the right a column, and its axis is dropped from the result.

    Args:
      precision: is accepted, and changes nothing: products have all digits.
      preferred_element_type: the dtype of the result, in which products are summed if
        it has more digits than the operands' dtype.

    Raises:
      ValueError: if the inner lengths differ, naming both shapes.
    """
    wide = preference(preferred_element_type, x, y)
    xs = factors("matmul", x, y, precision=precision, preferred=wide)
    return of_dtype(_matmul(*xs), wide)


def _matmul(x: Any, y: Any) -> Any:
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
        return product(x, y, contract=contract, batch=_NONE)
    if len(a) == 2:
        return move_axis(product(x, y, contract=contract, batch=_NONE), 0, len(b) - 2)
    if same_shape(a[:-2], b[:-2]):
        rows = tuple(range(len(a) - 2))
        return product(x, y, contract=contract, batch=(rows, rows))
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
    out = product(
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
        out = transpose(out, permutation=order)
    return reshape(out, (*common_shape("matmul", (lead_a, lead_b)), a[-2], b[-1]))


def dot(
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The product over the last axis of x and the last but one of y (NumPy's `dot`);
    a scalar multiplies. The options are those of `matmul`."""
    wide = preference(preferred_element_type, x, y)
    xs = factors("dot", x, y, precision=precision, preferred=wide)
    return of_dtype(_dot(*xs), wide)


def _dot(x: Any, y: Any) -> Any:
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
    return product(x, y, contract=((len(a) - 1,), (inner,)), batch=_NONE)


def vdot(
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The product of two arrays seen as vectors (the first conjugated). The options are
    those of `matmul`."""
    wide = preference(preferred_element_type, x, y)
    x, y = factors("vdot", x, y, precision=precision, preferred=wide)
    a, b = typeof(x), typeof(y)
    if a.ndim < 2 or not same_shape(a.shape, b.shape):
        return of_dtype(_dot(ravel(conj(x)), ravel(y)), wide)
    every = tuple(range(a.ndim))
    return of_dtype(product(conj(x), y, contract=(every, every), batch=_NONE), wide)


def inner(
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The product over the last axes of both. The options are those of `matmul`."""
    wide = preference(preferred_element_type, x, y)
    xs = factors("inner", x, y, precision=precision, preferred=wide)
    return of_dtype(_inner(*xs), wide)


def _inner(x: Any, y: Any) -> Any:
    a, b = typeof(x).shape, typeof(y).shape
    if not a or not b:
        return multiply(x, y)
    if a[-1] != b[-1]:
        raise ValueError(
            f"inner: the last axes of shapes {a} and {b} differ{at(user_source())}"
        )
    return product(x, y, contract=((len(a) - 1,), (len(b) - 1,)), batch=_NONE)


def outer(x: ArrayLike, y: ArrayLike, /) -> Array:
    """All products of an element of x and one of y (both flattened)."""
    x, y = agreed("outer", x, y)
    return multiply(reshape(x, (-1, 1)), reshape(y, (1, -1)))


def tensordot(
    x: ArrayLike,
    y: ArrayLike,
    axes: Any = 2,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The product over several axes.

    Args:
      axes: how many (the last of x with the first of y), or a pair of lists: the axes
        of x and those of y.
      precision, preferred_element_type: as in `matmul`.
    """
    wide = preference(preferred_element_type, x, y)
    x, y = factors("tensordot", x, y, precision=precision, preferred=wide)
    a, b = typeof(x).shape, typeof(y).shape
    if isinstance(axes, Sequence):
        first, second = (
            tuple([one_axis("tensordot", i, len(s)) for i in _listed(given)])
            for given, s in zip(axes, (a, b), strict=True)
        )
    else:
        n = static_integer("tensordot", "`axes`", axes)
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
    out = product(x, y, contract=(first, second), batch=_NONE)
    return of_dtype(out, wide)


def _listed(axes: Any) -> Sequence[int]:
    return axes if isinstance(axes, Sequence) else (axes,)


def kron(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The Kronecker product."""
    x, y = agreed("kron", x, y)
    a, b = typeof(x).shape, typeof(y).shape
    rank = max(len(a), len(b))
    a = (1,) * (rank - len(a)) + a
    b = (1,) * (rank - len(b)) + b
    product = multiply(
        reshape(x, tuple(v for n in a for v in (n, 1))),
        reshape(y, tuple(v for n in b for v in (1, n))),
    )
    return reshape(product, tuple(m * n for m, n in zip(a, b, strict=True)))


def vecdot(
    x: ArrayLike,
    y: ArrayLike,
    /,
    *,
    axis: int = -1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """The inner products of vectors along an axis; other axes are broadcast, and x is
    conjugated. The options are those of `matmul`.

    Raises:
      ValueError: if the lengths along the axis differ, naming both shapes.
    """
    wide = preference(preferred_element_type, x, y)
    x, y = factors("vecdot", x, y, precision=precision, preferred=wide)
    _check_lengths("vecdot", x, y, axis, axis)
    x, y = (moveaxis(v, one_axis("vecdot", axis, typeof(v).ndim), -1) for v in (x, y))
    product = matmul(expand_dims(conj(x), -2), expand_dims(y, -1))
    return of_dtype(squeeze(product, (-2, -1)), wide)


def _check_lengths(name: str, x: Any, y: Any, of_x: int, of_y: int) -> None:
    """Raises ValueError unless axes of the two have equal lengths."""
    a, b = typeof(x).shape, typeof(y).shape
    lengths = a[one_axis(name, of_x, len(a))], b[one_axis(name, of_y, len(b))]
    if lengths[0] != lengths[1]:
        raise ValueError(
            f"{name}: shapes {a} and {b}: axis {of_x} of the first has length "
            f"{lengths[0]}, axis {of_y} of the second has length {lengths[1]}"
            f"{at(user_source())}"
        )


def matvec(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Matrices times vectors: ``(..., m, n), (..., n) -> (..., m)``.

    Raises:
      ValueError: if the lengths differ, naming both shapes.
    """
    x, y = promoted("matvec", x, y)
    one_axis("matvec", -2, typeof(x).ndim)
    _check_lengths("matvec", x, y, -1, -1)
    return squeeze(matmul(x, expand_dims(y, -1)), -1)


def vecmat(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Vectors, conjugated, times matrices: ``(..., m), (..., m, n) -> (..., n)``.

    Raises:
      ValueError: if the lengths differ, naming both shapes.
    """
    x, y = promoted("vecmat", x, y)
    _check_lengths("vecmat", x, y, -1, -2)
    return squeeze(matmul(expand_dims(conj(x), -2), y), -2)


def cross(
    x: ArrayLike,
    y: ArrayLike,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Array:
    """The vector products of vectors of three elements (or of two, in a plane) along an
    axis.

    Args:
      axisa, axisb, axisc: the axis of the vectors of x, of y, and of the results.
      axis: all three.
    """
    x, y = promoted("cross", x, y)
    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = (
        moveaxis(v, one_axis("cross", a, typeof(v).ndim), -1)
        for v, a in ((x, axisa), (y, axisb))
    )
    m, n = typeof(x).shape[-1], typeof(y).shape[-1]
    if not {m, n} <= {2, 3}:
        raise ValueError(
            f"cross takes vectors of two or three elements, got axes of lengths {m} "
            f"and {n}{at(user_source())}"
        )
    a, b = x[..., 0], x[..., 1]
    p, q = y[..., 0], y[..., 1]
    last = a * q - b * p
    if m == n == 2:
        return last
    c: Any = x[..., 2] if m == 3 else None
    r: Any = y[..., 2] if n == 3 else None
    if c is None:
        parts = [b * r, -(a * r), last]
    elif r is None:
        parts = [-(c * q), c * p, last]
    else:
        parts = [b * r - c * q, c * p - a * r, last]
    return moveaxis(stack(parts, -1), -1, axisc)

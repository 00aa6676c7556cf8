"""What every function does with its arguments: one dtype, one shape, checked axes.

The ops below take equal dtypes and equal shapes (or scalars); NumPy's promotion and
broadcasting end here. When nothing has to change, nothing is recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import is_dim, is_symbolic, one, same_shape
from treadle.errors import FOREIGN, TracerError, at, foreign, user_source
from treadle.np.strictness import check_dtypes, check_ranks, strictness
from treadle.ops.cast import convert
from treadle.ops.compare import ne
from treadle.ops.movement import broadcast_in_dim
from treadle.run.array import Array
from treadle.run.array import ArrayLike as ArrayLike
from treadle.structure import is_container
from treadle.trace.op import as_size
from treadle.trace.value import Value, typeof

Shape = tuple[int, ...]
Axis = int | Sequence[int] | None

PYTHON_SCALARS = frozenset((bool, int, float, complex))
_WEAK_OF = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


def operand(name: str, x: Any) -> Any:
    """The argument itself if it is an array or a scalar.

    Raises:
      TypeError: naming the function, the value and the remedy.
    """
    if isinstance(x, Value | np.ndarray):
        return x
    kind = type(x)
    if kind in PYTHON_SCALARS or is_symbolic(x):
        return x
    if kind in dtypes.PYTHON_OF:
        return dtypes.PYTHON_OF[kind](x)
    if isinstance(x, np.generic):
        return x
    plain: Any
    for plain in (bool, int, float, complex):
        if isinstance(x, plain):
            return plain(x)
    remedy = "Pass an array or a number."
    if kind is ArrayType:
        remedy = "It has a shape and a dtype, but no values: pass an array."
    elif isinstance(x, list | tuple):
        remedy = "Make an array of it: `tnp.array(...)`."
    elif x is not None and is_container(kind):
        to = f"`tnp.{name}`" if name.isidentifier() else "it"
        remedy = f"It is a pytree: `td.tree.map` gives {to} its arrays."
    elif foreign(x):
        remedy = FOREIGN
    shown = repr(x)
    shown = shown if len(shown) <= 60 else shown[:57] + "..."
    called = "ShapeDtype" if kind is ArrayType else kind.__name__
    raise TypeError(
        f"{name} takes arrays, got a {called}: {shown}{at(user_source())}\n{remedy}"
    )


def type_of(name: str, x: Any) -> ArrayType:
    """The type of an operand of a function that reads no values. `td.ShapeDtype` is one
    itself.

    Raises:
      TypeError: if `x` is neither an array, nor a number, nor a type of arrays.
    """
    return x if type(x) is ArrayType else typeof(operand(name, x))


def as_array(x: Any) -> Any:
    """An operand as a value of ours."""
    if isinstance(x, Value):
        return x
    t = typeof(x)
    return Array(np.array(x, t.dtype), t)


def cast(x: Any, dtype: np.dtype, weak: bool = False) -> Any:
    """The operand with a dtype. Python scalars become NumPy scalars, or stay Python's
    own if the result is to be weak."""
    if type(x) in PYTHON_SCALARS:
        if weak:
            x = _WEAK_OF[dtype.kind](x)
            if dtypes.of_scalar(x) == dtype:
                if type(x) is int:
                    dtypes.number(dtype, x)  # raises, if it is beyond all integers
                return x
        return dtypes.number(dtype, x)
    if is_symbolic(x):
        return as_size(x, dtype, weak)
    t = typeof(x)
    if t.dtype == dtype:
        return x
    if dtype == dtypes.bool_:
        return ne(x, t.dtype.type(0))
    check_cast(t, dtype)
    return convert(x, dtype=dtype)


def check_cast(t: ArrayType, dtype: np.dtype) -> None:
    """Raises TypeError where a conversion would lose imaginary parts."""
    if dtypes.is_complex(t.dtype) and not (
        dtypes.is_complex(dtype) or dtype == dtypes.bool_
    ):
        raise TypeError(
            f"can't convert {t} to {dtype.name}: take `tnp.real(x)` or `tnp.abs(x)` "
            f"first{at(user_source())}"
        )


def _common(types: Sequence[ArrayType]) -> tuple[np.dtype, bool]:
    return dtypes.promote(*[(t.dtype, t.weak) for t in types])


def result_type(*args: Any) -> np.dtype:
    """The dtype to which arrays, Python numbers (weak), `td.ShapeDtype`s and dtypes
    promote.

    >>> import treadle.numpy as tnp
    >>> tnp.result_type(tnp.ones(2, tnp.bfloat16), 2.0), tnp.result_type("int8", "bool")
    (dtype(bfloat16), dtype('int8'))
    """
    if not args:
        raise ValueError(f"result_type takes one argument or more{at(user_source())}")
    kinds = (str, type, np.dtype)
    types = []
    for x in args:
        if isinstance(x, kinds):
            types.append((dtypes.canonical(x), False))
        else:
            t = type_of("result_type", x)
            types.append((t.dtype, t.weak))
    return dtypes.promote(*types)[0]


def promote_types(a: Any, b: Any, /) -> np.dtype:
    """The dtype to which two dtypes promote.

    >>> promote_types("int32", "bfloat16")
    dtype(bfloat16)
    """
    return result_type(dtypes.canonical(a), dtypes.canonical(b))


def promoted(name: str, *args: Any) -> list[Any]:
    """The operands with their common dtype; shapes stay as they are."""
    xs = [operand(name, x) for x in args]
    types = [typeof(x) for x in xs]
    if strictness.dtypes == "strict":
        check_dtypes(name, types)
    dtype, weak = _common(types)
    return [
        x
        if t.dtype == dtype and type(x) not in PYTHON_SCALARS
        else cast(x, dtype, weak)
        for x, t in zip(xs, types, strict=True)
    ]


def agreed(name: str, *args: Any) -> list[Any]:
    """The operands with their common dtype, for other functions: Python numbers are
    arrays of it, unless all are Python numbers."""
    found = promoted(name, *args)
    return [x if type(x) in PYTHON_SCALARS else as_array(x) for x in found]


def as_inexact(name: str, x: Any) -> Any:
    """The operand, integers as the default float."""
    x = operand(name, x)
    t = typeof(x)
    if dtypes.is_differentiable(t.dtype):
        return x
    return cast(x, dtypes.float32, t.weak)


def broadcast(name: str, xs: Sequence[Any]) -> list[Any]:
    """The operands with their common shape; scalars stay scalars.

    Raises:
      ValueError: naming the function, the shapes and the user's line.
    """
    types = [typeof(x) for x in xs]
    shape: Shape = ()
    same = True
    for t in types:
        if t.shape and not same_shape(t.shape, shape):
            same = same and not shape
            shape = t.shape
    if same:
        return list(xs)
    shape = common_shape(name, [t.shape for t in types])
    return [
        x if not t.shape else broadcast_to_shape(x, shape)
        for x, t in zip(xs, types, strict=True)
    ]


def common_shape(name: str, shapes: Sequence[Shape]) -> Shape:
    """The shape to which NumPy broadcasts the shapes."""
    if strictness.ranks != "allow":
        check_ranks(name, shapes)
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for i, n in enumerate(shape, rank - len(shape)):
            if one(n):
                continue
            if one(result[i]):
                result[i] = n
            elif n != result[i]:
                raise ValueError(_no_broadcast(name, shapes, i - rank))
    return tuple(result)


def _no_broadcast(name: str, shapes: Sequence[Shape], axis: int) -> str:
    lengths = [s[axis] for s in shapes if len(s) >= -axis and s[axis] != 1]
    different = " and ".join(map(str, dict.fromkeys(lengths)))
    return (
        f"{name}: shapes {' and '.join(map(str, shapes))} don't broadcast: axis "
        f"{axis} has lengths {different}{at(user_source())}\n"
        "Axes are lined up from the last; lengths must be equal or 1."
    )


def broadcasts(have: Shape, shape: Shape) -> bool:
    """Whether an array of one shape broadcasts to the other."""
    lined = zip(reversed(have), reversed(shape), strict=False)
    return len(have) <= len(shape) and all([one(m) or m == n for m, n in lined])


def broadcast_to_shape(x: Any, shape: Shape) -> Any:
    """The array with a shape that it broadcasts to."""
    have = typeof(x).shape
    if same_shape(have, shape):
        return x
    dims = tuple(range(len(shape) - len(have), len(shape)))
    return broadcast_in_dim(x, shape=shape, dims=dims)


def matched(name: str, *args: Any) -> list[Any]:
    """Promoted and broadcast: what elementwise ops take."""
    return broadcast(name, promoted(name, *args))


def pair(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """`matched` for two operands; the common cases need little work."""
    if isinstance(x, Value):
        tx = x.type
        if isinstance(y, Value):
            ty = y.type
            if tx.dtype == ty.dtype:
                if same_shape(tx.shape, ty.shape) or not tx.shape or not ty.shape:
                    return x, y
                shape = common_shape(name, (tx.shape, ty.shape))
                return broadcast_to_shape(x, shape), broadcast_to_shape(y, shape)
        elif type(y) in _REAL and not tx.weak and _takes(tx.dtype, y):
            return x, dtypes.number(tx.dtype, y)
    elif isinstance(y, Value) and type(x) in _REAL:
        ty = y.type
        if not ty.weak and _takes(ty.dtype, x):
            return dtypes.number(ty.dtype, x), y
    a, b = matched(name, x, y)
    return a, b


def inexact_pair(name: str, x: Any, y: Any) -> tuple[Any, Any]:
    """The operands of a function whose result is inexact: integers become float32."""
    # Python's own beyond the reach of the other's dtype, too.
    x, y = (dtypes.as_float(v) if type(v) is int else v for v in (x, y))
    x, y = pair(name, x, y)
    if not dtypes.is_differentiable(typeof(x).dtype):
        x, y = as_inexact(name, x), as_inexact(name, y)
    return x, y


_REAL = (float, int)


def _takes(dtype: np.dtype, number: float | int) -> bool:
    """Whether arrays of a dtype keep it when they meet a Python number."""
    if type(number) is int:
        return dtype != dtypes.bool_
    return dtypes.is_differentiable(dtype)


# Axes ---------------------------------------------------------------------------------


def none(n: int) -> bool:
    """Whether a length is known to be 0: of one that is not fixed, nobody asks."""
    return not is_dim(n) and n == 0


def static_integer(name: str, what: str, x: Any) -> int:
    """An integer that decides what is computed, and so is known while tracing.

    Raises:
      TracerError: if it is traced.
      TypeError: if it is not an integer.
    """
    if type(x) is int or is_dim(x):
        return x
    try:
        return index(x)
    except TracerError:
        raise TracerError(
            f"{name}: {what} must be known while the function is traced, got "
            f"{typeof(x)}{at(user_source())}\n"
            "What is computed depends on it: pass it as a static argument, "
            "`td.jit(static=...)`."
        ) from None
    except TypeError:
        raise TypeError(
            f"{name}: {what} must be an integer, got {x!r}{at(user_source())}"
        ) from None


def one_axis(name: str, axis: Any, ndim: int) -> int:
    """An axis as a number from 0.

    Raises:
      AxisError: if there is no such axis (NumPy's: a ValueError and an IndexError).
      TypeError: if it is not an integer.
    """
    number = static_integer(name, "axis", axis)
    if not -ndim <= number < ndim:
        raise np.exceptions.AxisError(
            f"{name}: axis {number} is out of range for an array with {ndim} "
            f"{'axis' if ndim == 1 else 'axes'}{at(user_source())}"
        )
    return number + ndim if number < 0 else number


def all_axes(name: str, axis: Axis, ndim: int) -> tuple[int, ...]:
    """The axes that `axis` selects, in increasing order; None selects all."""
    if axis is None:
        return tuple(range(ndim))
    if isinstance(axis, Sequence):
        axes = tuple([one_axis(name, a, ndim) for a in axis])
        if len(set(axes)) != len(axes):
            raise ValueError(
                f"{name}: an axis appears twice in {axis}{at(user_source())}"
            )
        return tuple(sorted(axes))
    return (one_axis(name, axis, ndim),)


def several(x: Any) -> bool:
    """Whether an argument is a list of numbers, be it an array, and not a number."""
    if isinstance(x, Value | np.ndarray):
        return x.ndim > 0
    return isinstance(x, Sequence)


def _of_floats(lengths: Any) -> str:
    numbers = (int, float, np.integer, np.floating)
    whole = all(isinstance(n, numbers) for n in lengths)
    return "\nSizes are integers: `n // 2` rather than `n / 2`, or `int(n)`." * whole


def as_shape(name: str, shape: Any) -> Shape:
    """A shape given as an integer or a sequence of them.

    Raises:
      TypeError: if a length is not an integer known while tracing.
      ValueError: if a length is negative.
    """
    if type(shape) is tuple:
        for n in shape:
            if type(n) is not int or n < 0:
                break
        else:
            return shape
    lengths = shape if several(shape) else (shape,)
    try:
        result = tuple([n if is_dim(n) else index(n) for n in lengths])
    except TracerError:
        raise
    except TypeError:
        raise TypeError(
            f"{name}: a shape is a tuple of integers, got {shape!r}{at(user_source())}"
            f"{_of_floats(lengths)}"
        ) from None
    if any(n < 0 for n in result):
        raise ValueError(
            f"{name}: negative length in shape {result}{at(user_source())}"
        )
    return result

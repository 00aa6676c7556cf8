"""Arrays from nothing, from numbers, and from other arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim, is_symbolic
from treadle.dtypes import DTypeLike
from treadle.errors import TracerError, at, user_source
from treadle.np.join import stack
from treadle.np.operands import (
    PYTHON_SCALARS,
    ArrayLike,
    Shape,
    as_array,
    as_shape,
    broadcast_to_shape,
    cast,
    check_cast,
    operand,
    type_of,
)
from treadle.ops.arithmetic import add, mul
from treadle.ops.cast import convert
from treadle.ops.movement import broadcast_in_dim, reshape
from treadle.ops.movement import full as full_of
from treadle.ops.shape import iota
from treadle.run.array import Array, Placed
from treadle.run.device import current, default, named
from treadle.trace.value import Tracer, Value, typeof


def array(
    object: Any,
    dtype: DTypeLike | None = None,
    *,
    copy: bool | None = True,
    device: Any = None,
    ndmin: int = 0,
) -> Array:
    """An array of a number, a (nested) list, a NumPy array or an array.

    Values given as Python numbers are float32, int32, bool or complex64; NumPy arrays
    keep their dtype.

    Args:
      copy: whether an array of Treadle's is copied, so that it stays when the result is
        donated; arrays don't change, so that the two share memory until then. None
        does so only if it must. False demands that nothing is copied: the object is an
        array of Treadle's.
      device: where to place it (see `treadle.device_put`).
      ndmin: how many axes it has at least: axes of length 1 come before the others.

    >>> array([[1, 2], [3, 4]])
    Array([[1, 2],
           [3, 4]], dtype=int32)
    """
    out = asarray(object, dtype, copy=copy, device=device)
    if ndmin > out.ndim:
        out = reshape(out, shape=(*(1,) * (ndmin - out.ndim), *out.shape))
    return out


def asarray(
    object: Any,
    dtype: DTypeLike | None = None,
    *,
    copy: bool | None = None,
    device: Any = None,
) -> Array:
    """An array of a number, a (nested) list, a NumPy array or an array: as `array`, but
    an array of Treadle's that has the dtype already is the result itself.

    >>> x = asarray([1, 2])
    >>> asarray(x) is x, array(x) is x
    (True, False)
    """
    if copy is False and not isinstance(object, Value):
        raise ValueError(
            f"array of a {type(object).__name__} needs a copy, and copy=False forbids "
            f"it{at(user_source())}"
        )
    return _copied(placed(_array(object, dtype), device), object, copy)


def _copied(out: Any, given: Any, copy: bool | None) -> Any:
    """An array that was made of a given one; it is not that itself if a copy is
    asked for."""
    return out.twin() if copy and out is given and isinstance(out, Array) else out


def placed(x: Any, device: Any) -> Any:
    """An array on a device; on the default one it may be moved on."""
    if device is None:
        return x
    place = named(device)
    if place == default() == current() and not isinstance(x, Placed):
        return x
    is_there = isinstance(x, Placed) and x.device == place
    if isinstance(x, Tracer):
        raise TracerError(
            f"an array of type {typeof(x)} can't be placed on {place} while it is "
            f"being traced{at(user_source())}\nPlace the arguments, before the call."
        )
    return x if is_there else Placed.on(place, x)


def _array(object: Any, dtype: DTypeLike | None = None) -> Array:
    want = None if dtype is None else dtypes.canonical(dtype)
    if isinstance(object, Value) or is_symbolic(object):
        return cast(object, typeof(object).dtype if want is None else want)
    if isinstance(object, list | tuple):
        if _holds_tracers(object):
            out = stack([array(item) for item in object])
            return out if want is None else cast(out, want)
        return Array(_of_list(object, want))
    if hasattr(object, "__array__") and not isinstance(object, np.ndarray | np.generic):
        object = object.__array__()
    t = typeof(operand("array", object))
    if type(object) not in PYTHON_SCALARS:
        return Array(_converted(np.array(object), want or t.dtype))
    check_cast(t, want or t.dtype)
    return Array(_known(object, want or t.dtype))


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """An array over the memory of another library's array, by DLPack; no copy, unless
    `copy` asks for one.

    The memory must be the CPU's, and must not change while the array is in use: arrays
    are immutable. The way back is the other library's own `from_dlpack`.

    Raises:
      TypeError: if `x` is no such array, or of a dtype that NumPy can't take over.

    >>> import numpy as np
    >>> from_dlpack(np.arange(3.0))
    Array([0., 1., 2.], dtype=float64)
    """
    if isinstance(x, Array):
        return placed(x, device)
    try:
        data = np.from_dlpack(x)
    except (AttributeError, BufferError, RuntimeError, TypeError) as error:
        raise TypeError(
            f"from_dlpack takes an array on the CPU that speaks DLPack, got "
            f"{type(x).__name__}: {error}{at(user_source())}"
        ) from None
    operand("from_dlpack", data)
    return placed(Array(data.copy() if copy else data), device)


def _holds_tracers(items: Sequence[Any]) -> bool:
    for item in items:
        if isinstance(item, list | tuple):
            if _holds_tracers(item):
                return True
        elif (isinstance(item, Value) and not isinstance(item, Array)) or is_symbolic(
            item
        ):
            return True
    return False


def _of_list(items: Sequence[Any], want: np.dtype | None) -> np.ndarray:
    try:
        data = np.array(items)
    except ValueError as error:
        raise ValueError(
            f"array: {error}{at(user_source())}\n"
            "Rows of one array have one length: fill up the short ones (`tnp.pad`), or "
            "keep a list of arrays."
        ) from None
    if not dtypes.is_supported(data.dtype):
        raise TypeError(
            f"array of {items!r:.60}: NumPy makes it an array of dtype {data.dtype}"
            f"{at(user_source())}\nUse numbers, booleans and arrays."
        )
    found, weak = _dtype_of_list(items)
    if want is not None and weak and data.dtype.kind == "i" and want.kind in "iu":
        return _known(items, want)
    return _converted(data, want or found)


def _known(object: Any, dtype: np.dtype) -> np.ndarray:
    """Python's numbers: what a dtype can't hold is an error."""
    try:
        if type(object) is int and not dtypes.is_integer(dtype):
            return np.array(dtypes.number(dtype, object))
        return np.array(object, dtype)
    except (OverflowError, ValueError) as error:
        if type(object) is int and not -(2**63) <= object < 2**64:
            dtypes.number(dtype, object)
        remedy = ""
        if isinstance(error, OverflowError):
            remedy = f"\nGive a wider dtype, or wrap around: `.astype({dtype.name!r})`."
        raise type(error)(f"array: {error}{at(user_source())}{remedy}") from None


def _converted(data: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Numbers that are known, converted as compiled code does it."""
    if data.dtype == dtype:
        return data
    check_cast(typeof(data), dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        return convert.run(data, dtype=dtype)


def _dtype_of_list(items: Any) -> tuple[np.dtype, bool]:
    """The common dtype of the numbers in nested lists, and whether it is weak."""
    found: dict[Any, Any] = {}

    def visit(item: Any) -> None:
        if isinstance(item, list | tuple):
            for inner in item:
                visit(inner)
        else:
            t = typeof(operand("array", item))
            found[t.dtype, t.weak] = None

    visit(items)
    return dtypes.promote(*found) if found else (dtypes.float32, True)


# One value everywhere -----------------------------------------------------------------


def full(
    shape: int | Shape,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
) -> Array:
    """An array with one value everywhere (broadcast, if it is an array)."""
    shape = as_shape("full", shape)
    value = operand("full", fill_value)
    t = typeof(value)
    value = cast(value, t.dtype if dtype is None else dtypes.canonical(dtype))
    if t.shape:
        return placed(as_array(broadcast_to_shape(value, shape)), device)
    return placed(broadcast_in_dim(value, shape=shape, dims=()), device)


def _given(dtype: DTypeLike | None, default: np.dtype) -> np.dtype:
    return default if dtype is None else dtypes.canonical(dtype)


def zeros(
    shape: int | Shape, dtype: DTypeLike | None = None, *, device: Any = None
) -> Array:
    """Zeros, as float32 by default."""
    shape = as_shape("zeros", shape)
    return placed(full_of(shape, 0, _given(dtype, dtypes.float32)), device)


def ones(
    shape: int | Shape, dtype: DTypeLike | None = None, *, device: Any = None
) -> Array:
    """Ones, as float32 by default."""
    shape = as_shape("ones", shape)
    return placed(full_of(shape, 1, _given(dtype, dtypes.float32)), device)


def empty(
    shape: int | Shape, dtype: DTypeLike | None = None, *, device: Any = None
) -> Array:
    """Zeros: an array is never uninitialised."""
    return zeros(shape, dtype, device=device)


def full_like(
    x: ArrayLike,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: Any = None,
) -> Array:
    """An array of the shape and dtype of x, an array or a `td.ShapeDtype`, with one
    value everywhere."""
    return _like("full_like", x, fill_value, dtype, shape, device)


def _like(name: str, x: Any, value: Any, dtype: Any, shape: Any, device: Any) -> Array:
    t = type_of(name, x)
    lengths = t.shape if shape is None else shape
    return full(lengths, value, _given(dtype, t.dtype), device=device)


def zeros_like(
    x: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: Any = None,
) -> Array:
    """Zeros of the shape and dtype of x, an array or a `td.ShapeDtype`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.tree.map(tnp.zeros_like, td.eval_shape(lambda x: x + 1j, tnp.ones(2)))
    Array([0.+0.j, 0.+0.j], dtype=complex64)
    """
    return _like("zeros_like", x, 0, dtype, shape, device)


def ones_like(
    x: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: Any = None,
) -> Array:
    """Ones of the shape and dtype of x, an array or a `td.ShapeDtype`."""
    return _like("ones_like", x, 1, dtype, shape, device)


def empty_like(
    x: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Any = None,
    *,
    device: Any = None,
) -> Array:
    """Zeros of the shape and dtype of x: an array is never uninitialised."""
    return _like("empty_like", x, 0, dtype, shape, device)


# Ranges -------------------------------------------------------------------------------

_RANGE = (
    "{0}: {1} must be a number that is known while tracing, got {2}{3}\n"
    "The length of an array can't depend on traced values."
)


def _number(name: str, which: str, x: Any) -> Any:
    """A Python number; its being traced is an error that names the argument."""
    try:
        value = x.item() if isinstance(x, Array | Tracer | np.generic) else x
    except TracerError:
        where = at(user_source())
        raise TracerError(_RANGE.format(name, which, x.type, where)) from None
    if not isinstance(value, int | float):
        raise TypeError(_RANGE.format(name, which, repr(value), at(user_source())))
    return value


def arange(
    start: Any,
    stop: Any = None,
    step: Any = None,
    dtype: DTypeLike | None = None,
    *,
    device: Any = None,
) -> Array:
    """Numbers from `start` (0, if one number is given) up to but not with `stop`.

    >>> arange(2, 10, 3)
    Array([2, 5, 8], dtype=int32)
    """
    types = [typeof(operand("arange", v)) for v in (start, stop, step) if v is not None]
    found = dtypes.promote(*[(t.dtype, t.weak) for t in types])[0]
    want = found if dtype is None else dtypes.canonical(dtype)
    first = _number("arange", "start", start)
    if stop is None:
        first, last = 0, first
    else:
        last = _number("arange", "stop", stop)
    by = 1 if step is None else _number("arange", "step", step)
    if by == 0:
        raise ValueError(f"arange: step is 0{at(user_source())}")
    whole = all(isinstance(v, int) for v in (first, last, by))
    # The quotient of long integers as a float may be rounded down.
    n = max(-((first - last) // by) if whole else math.ceil((last - first) / by), 0)
    if want == dtypes.bool_ or dtypes.is_complex(want):
        return array(np.arange(first, last, by), want, device=device)
    working = working_dtype(want)
    out = iota(shape=(n,), axis=0, dtype=working)
    if is_dim(by) or by != 1:
        out = mul(out, cast(by, working))
    if is_dim(first) or first:
        out = add(out, cast(first, working))
    return placed(cast(out, want), device)


def working_dtype(dtype: np.dtype) -> np.dtype:
    """What ranges of a dtype are computed in: halves hold few whole numbers."""
    return dtypes.float32 if dtypes.is_float(dtype) and dtype.itemsize == 2 else dtype


def copy(x: ArrayLike) -> Array:
    """The array in memory of its own, which stays when the other one is donated.

    >>> import treadle as td
    >>> x = array([1.0, 2.0])
    >>> kept = copy(x)
    >>> double = td.jit(lambda x: 2 * x, donate="x")(x)
    >>> kept
    Array([1., 2.], dtype=float32)
    """
    if isinstance(x, Array) and not isinstance(x, Tracer):
        return x.__copy__()
    return array(x)


def astype(
    x: ArrayLike, dtype: DTypeLike, /, *, copy: bool = True, device: Any = None
) -> Array:
    """The array with another dtype. If it has that already, `copy` is that of `array`:
    donating the result leaves `x` as it is, unless it is False."""
    x = operand("astype", x)
    return _copied(placed(as_array(cast(x, dtypes.canonical(dtype))), device), x, copy)

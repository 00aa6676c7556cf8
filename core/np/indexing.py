"""Reading with an index expression, `take` and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import hint, is_dim, same_shape, settled
from treadle.errors import at, user_source
from treadle.np.index import (
    GROUP,
    KNOWN,
    Selection,
    Span,
    inside,
    parse,
    position,
    together,
    within,
)
from treadle.np.operands import (
    ArrayLike,
    as_array,
    broadcast_to_shape,
    cast,
    common_shape,
    none,
    one_axis,
    operand,
)
from treadle.np.shapes import ravel
from treadle.ops import dynamic as slices
from treadle.ops import gather as gathers
from treadle.ops.compare import select
from treadle.ops.movement import broadcast_in_dim, reshape, reverse, transpose
from treadle.ops.shape import slice_
from treadle.run.array import Array
from treadle.trace.value import Value, typeof

_ZERO = np.int32(0)


def getitem(x: Any, expression: Any, fill: Any = None, wrap: bool = False) -> Any:
    """``x[expression]``. Index values that are out of range read the nearest element,
    or `fill`: a scalar of x's dtype; or they are counted on from the other end."""
    x, expression = without_truths(x, expression)
    shape = typeof(x).shape
    selection = parse(shape, expression, "wrap" if wrap else "")
    wanted = selection.shape()
    if any([shape[i] == 0 for i in selection.dynamic]):
        return _read_nothing(typeof(x), selection, fill)
    inside = None if fill is None else selection.inside(shape)
    if not selection.dynamic:
        x = read_spans(x, selection.axes)
    elif GROUP in selection.order:
        x = _read_group(x, selection)
    else:
        x = _read_scalars(x, selection)
    same = same_shape(typeof(x).shape, wanted)
    x = as_array(x) if same else reshape(x, shape=wanted)
    if inside is None:
        return x
    rank = typeof(inside).ndim
    if rank:
        first = selection.order.index(GROUP)
        dims = tuple(range(first, first + rank))
        inside = broadcast_in_dim(inside, shape=wanted, dims=dims)
    return select(inside, x, fill)


def without_truths(x: Any, expression: Any) -> tuple[Any, Any]:
    """The same selection without single truth values: each is a mask without axes, so
    ``x[True]`` is ``x[None][[0]]`` and ``x[False]`` is ``x[None][[]]``."""
    items = list(expression) if isinstance(expression, tuple) else [expression]
    if not any(map(_is_truth, items)):
        return x, expression
    axis = 0
    for k, item in enumerate(items):
        shape = typeof(x).shape
        if item is Ellipsis:
            axis = len(shape) - sum(map(_axes_taken, items[k + 1 :]))
        elif _is_truth(item):
            x = reshape(x, shape=(*shape[:axis], 1, *shape[axis:]))
            items[k] = np.zeros(int(bool(item)), np.int32)
            axis += 1
        else:
            axis += _axes_taken(item)
    return x, tuple(items)


def _is_truth(item: Any) -> bool:
    if isinstance(item, bool):
        return True
    known = isinstance(item, Array | np.ndarray | np.generic)
    return known and not item.shape and item.dtype == dtypes.bool_


def _axes_taken(item: Any) -> int:
    """How many axes an item of an index expression is for, apart from an ellipsis."""
    if item is None or item is Ellipsis or _is_truth(item):
        return 0
    item = np.asarray(item) if isinstance(item, list) else item
    is_mask = getattr(item, "dtype", None) == dtypes.bool_
    return len(item.shape) if is_mask else 1


def _read_nothing(t: ArrayType, selection: Selection, fill: Any) -> Any:
    """Reads from an axis of length 0: every index value is out of range."""
    wanted = selection.shape()
    if fill is None:
        if 0 not in wanted:
            axis = next(i for i in selection.dynamic if not t.shape[i])
            raise IndexError(
                f"an index for axis {axis}, which is empty, of an array of shape "
                f"{t.shape}: no element is nearest{at(user_source())}\n"
                'Read with `x.at[index].get(mode="fill")`.'
            )
        fill = t.dtype.type(0)
    return broadcast_in_dim(fill, shape=wanted, dims=())


def missing(dtype: np.dtype) -> Any:
    """What is read where there is nothing: not-a-number, the lowest signed integer, the
    highest unsigned one, or True (as in JAX)."""
    if dtypes.is_differentiable(dtype):
        return dtype.type(np.nan)
    if dtype == dtypes.bool_:
        return np.True_
    info = np.iinfo(dtype)
    return dtype.type(info.max if dtypes.is_unsigned(dtype) else info.min)


def read_spans(x: Any, axes: tuple[Any, ...]) -> Any:
    """Reads slices, and integers as slices of length 1; other axes whole."""
    shape = typeof(x).shape
    starts, limits, steps, flipped = [], [], [], []
    for i, (a, n) in enumerate(zip(axes, shape, strict=True)):
        if type(a) in KNOWN:
            start, step, length = a, 1, 1
        elif type(a) is Span:
            start, step, length = a
        else:
            start, step, length = 0, 1, n
        empty = _is_empty(length, abs(step))
        if step < 0:
            flipped.append(i)
            start, step = start + (length - 1) * step, -step
        starts.append(0 if empty else start)
        limits.append(0 if empty else _limit(start, step, length, n))
        steps.append(step if not empty and (is_dim(length) or length > 1) else 1)
    part: list[tuple[Any, ...]] = [tuple(starts), tuple(limits), tuple(steps)]
    whole = (0,) * len(shape), shape, (1,) * len(shape)
    if not all(map(same_shape, part, whole)):
        x = slice_(x, starts=part[0], limits=part[1], steps=part[2])
    return reverse(x, axes=tuple(flipped)) if flipped else x


def _is_empty(length: int, step: int) -> bool:
    """Whether nothing is read: of a length that is open, where its elements lie apart.
    Their last one has no place then."""
    if is_dim(length):
        return step > 1 and not hint(length) and bool(settled(_is_zero, (length,)))
    return length == 0


def _is_zero(n: int) -> int:
    return int(n == 0)


def _limit(start: int, step: int, length: int, n: int) -> int:
    """Where a slice of so many elements ends: with the axis, if it may."""
    if is_dim(length) and same_shape((-(-(n - start) // step),), (length,)):
        return n
    return start + (length - 1) * step + 1


def _read_scalars(x: Any, selection: Selection) -> Any:
    """Scalars and slices: what is left of the indexed axes has length 1."""
    dynamic = selection.dynamic
    x = read_spans(x, selection.axes)
    shape = typeof(x).shape
    starts = [selection.axes[i] if i in dynamic else _ZERO for i in range(len(shape))]
    sizes = tuple([1 if i in dynamic else n for i, n in enumerate(shape)])
    return slices.dynamic_slice(x, *starts, sizes=sizes)


def _read_group(x: Any, selection: Selection) -> Any:
    """Index arrays, with integers and slices beside them."""
    grouped = tuple(i for i, a in enumerate(selection.axes) if type(a) is not Span)
    x = read_spans(x, tuple([a if type(a) is Span else None for a in selection.axes]))
    indices = together([selection.axes[i] for i in grouped])
    out = gathers.gather(
        x,
        *indices,
        axes=grouped,
        sizes=(None,) * len(grouped),
        batch_dims=0,
        mode="clip",
    )
    return place_group(out, typeof(indices[0]).ndim, selection.order)


def place_group(x: Any, rank: int, order: tuple[Any, ...], back: bool = False) -> Any:
    """Moves the axes of the index arrays from the front to their place (or back)."""
    axes = [o for o in order if o is not None]
    before = axes.index(GROUP)
    if not before or not rank:
        return x
    n = rank + len(axes) - 1
    permutation = (
        *range(rank, rank + before),
        *range(rank),
        *range(rank + before, n),
    )
    if back:
        permutation = tuple(np.argsort(permutation).tolist())
    return transpose(x, permutation=permutation)


# Functions ----------------------------------------------------------------------------


MODES = ("fill", "drop", "clip", "wrap", "promise_in_bounds")


def read_mode(
    name: str, mode: str | None, dtype: np.dtype, value: Any
) -> dict[str, Any]:
    """How `getitem` reads what is out of range; None is "fill".

    Raises:
      ValueError: if there is no such mode, or the value that fills is no scalar.
    """
    mode = "fill" if mode is None else mode
    if mode not in MODES:
        raise ValueError(
            f"{name}: mode {mode!r} is none of {', '.join(map(repr, MODES))}"
            f"{at(user_source())}"
        )
    if mode not in ("fill", "drop"):
        return {"wrap": mode == "wrap"}
    if value is None:
        return {"fill": missing(dtype)}
    fill = cast(operand(name, value), dtype)
    if shape := typeof(fill).shape:
        raise ValueError(
            f"{name}: fill_value must be a scalar, got shape {shape}{at(user_source())}"
        )
    return {"fill": fill}


def take(
    x: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    *,
    mode: str | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The elements (or slices along an axis) at the indices.

    Negative indices count from the end. Where the indices are an array of Treadle's
    (traced, or not), those that are out of range read not-a-number, the lowest signed
    integer, the highest unsigned one, or True; `x[indices]` reads the nearest element.

    Args:
      mode, fill_value: what else is read there, as in ``x.at[indices].get``. "clip" and
        "wrap" hold for any indices, and "clip" makes negative ones 0, as in NumPy.

    Raises:
      IndexError: if one of NumPy's indices, or of a list's, is out of range (but for
        "clip" and "wrap").

    >>> import treadle.numpy as tnp
    >>> tnp.take(tnp.array([1.0, 2.0]), tnp.array([0, -1, 2]))
    Array([ 1.,  2., nan], dtype=float32)
    """
    array = as_array(operand("take", x))
    if isinstance(indices, list | tuple):
        indices = np.asarray(indices)
    if axis is None:
        array, axis = ravel(array), 0
    number = one_axis("take", axis, typeof(array).ndim)
    reading = read_mode("take", mode, array.dtype, fill_value)
    places = operand("take", indices)
    n, dtype = array.shape[number], typeof(places).dtype
    if dtype == dtypes.bool_:
        # Numbers here, not a mask.
        places = cast(places, dtypes.int32)
    elif mode in ("clip", "wrap") and dtypes.is_integer(dtype) and not none(n):
        places, reading = moved_inside(places, n, mode), {}
    return getitem(array, (*(slice(None),) * number, places), **reading)


def moved_inside(places: Any, n: int, mode: str) -> Any:
    """Indices of which none is out of range; what is known stays known."""
    if not isinstance(places, Value) and not is_dim(n):
        known = np.asarray(places)
        if known.dtype != np.uint64:
            known = known.astype(np.int64)
        size = known.dtype.type(n)
        known = np.clip(known, 0, size - 1) if mode == "clip" else known % size
        return known.astype(np.int64)
    dtype, small = typeof(places).dtype, dtypes.of_index(n)
    if dtype == np.uint64:  # which no other dtype holds
        return as_array(cast(inside(places, n, mode), small))
    short = dtype.itemsize < 4 or dtype == dtypes.int32
    wide = cast(places, small if short else dtypes.int64)
    return as_array(inside(wide, n, mode))


def take_along_axis(
    x: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    *,
    mode: str | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """One index per element of the result along an axis, as `argsort` gives them (None:
    of the flat array).

    What is out of range is as in `take`.
    """
    x, indices = operand("take_along_axis", x), operand("take_along_axis", indices)
    if axis is None:
        x, axis = ravel(x), 0
    t, i = typeof(x), typeof(indices)
    number = one_axis("take_along_axis", axis, t.ndim)
    if i.ndim != t.ndim:
        raise ValueError(
            f"take_along_axis: indices of shape {i.shape} for an array of shape "
            f"{t.shape}: they must have as many axes{at(user_source())}\n"
            "Give them a new one: `indices[..., None]`."
        )
    n = t.shape[number]
    reading = read_mode("take_along_axis", mode, t.dtype, fill_value)
    wrap = "wrap" if reading.get("wrap") else ""
    places = position(indices, number, t.shape, wrap)
    rest = [(*s[:number], 1, *s[number + 1 :]) for s in (t.shape, i.shape)]
    shape = common_shape("take_along_axis", rest)
    x, places = (
        broadcast_to_shape(v, (*shape[:number], length, *shape[number + 1 :]))
        for v, length in ((x, n), (places, i.shape[number]))
    )
    fill = reading.get("fill")
    if not n:
        fill = t.dtype.type(0) if fill is None else fill
        return broadcast_in_dim(fill, shape=typeof(places).shape, dims=())
    if wrap:
        places = inside(places, n, wrap)
    out = gathers.take_along_axis(x, places, number)
    if not isinstance(indices, Value) or fill is None:
        return out
    return select(within(places, n), out, fill)

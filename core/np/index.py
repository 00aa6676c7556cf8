"""What an index expression means: `x[...]` taken apart, before anything is read.

`parse` turns the expression into a `Selection`: for each axis of x a `Span` (a slice),
an integer, or an index array; and the order in which the axes of the result come.

Indices that are known while tracing (Python's and NumPy's numbers, lists and arrays)
must be in range. Treadle's arrays, traced or not, are only counted from the end here:
what is out of range is for the reader to clamp or to fill, for the writer to drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_index
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.dims import Dim, is_dim, span
from treadle.errors import TracerError, at, user_source
from treadle.np.operands import Shape, broadcast_to_shape, cast, common_shape
from treadle.ops.arithmetic import add
from treadle.ops.binary import maximum, minimum, rem
from treadle.ops.compare import bitwise_and, ge, lt, select
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.value import Value, typeof


class Span(NamedTuple):
    """`length` elements from `start` on, `step` apart (which may be negative)."""

    start: int
    step: int
    length: int


class Selection(NamedTuple):
    """An index expression for an array of a known shape.

    axes: per axis of x a Span, an int, or an integer array (a value or NumPy's).
    order: what the axes of the result are, from left to right: a number stands for
      that axis of x (a Span), None for a new axis, and GROUP for the axes of the index
      arrays, which are broadcast together.
    """

    axes: tuple[Any, ...]
    order: tuple[Any, ...]

    @property
    def dynamic(self) -> tuple[int, ...]:
        """The axes whose index is a scalar that may be traced, or an array."""
        known = (Span, *KNOWN)
        return tuple([i for i, a in enumerate(self.axes) if type(a) not in known])

    @property
    def lead(self) -> Shape:
        """The shape of the index arrays, broadcast together."""
        return common_shape(
            "indexing", [typeof(self.axes[i]).shape for i in self.dynamic]
        )

    def shape(self, new: bool = True) -> Shape:
        """The shape of x[...]; without its new axes, if not `new`."""
        result: list[int] = []
        for o in self.order:
            if o is GROUP:
                result += self.lead
            elif o is not None:
                result.append(self.axes[o].length)
            elif new:
                result.append(1)
        return tuple(result)

    def inside(self, shape: Shape) -> Any:
        """Which places of the index arrays are in range, for an array of a shape: a
        condition of the shape `lead`. None if all are known to be."""
        result = None
        for i in self.dynamic:
            if isinstance(self.axes[i], Value):
                test = broadcast_to_shape(within(self.axes[i], shape[i]), self.lead)
                result = test if result is None else bitwise_and(result, test)
        return result

    def moved(self, mode: str, shape: Shape) -> Selection:
        """With the places of index values that are out of range moved inside: to the
        nearest element ("clip"), or counted on from the other end ("wrap")."""
        axes = list(self.axes)
        for i in self.dynamic:
            n = shape[i]
            if is_dim(n) or n:
                axes[i] = inside(axes[i], n, mode)
        return self._replace(axes=tuple(axes))


class _MaskAxis(NamedTuple):
    """The places of a mask along one of its axes, and that axis' length."""

    places: np.ndarray
    length: int


GROUP = "group"
KNOWN = (int, Dim)
"""What an integer index that is known while tracing is."""


def parse(shape: Shape, expression: Any, mode: str = "") -> Selection:
    """Takes an index expression apart.

    mode: where the places of index values that are out of range are moved, as
      `Selection.moved` says; they stay if it is none of its.

    Raises:
      IndexError: if it has too many indices, or one that is known is out of range.
      TypeError: for what is no index (a float, a mask whose values are not known).
    """
    items = _expanded(shape, expression)
    axes: list[Any] = []
    order: list[Any] = []
    grouped: list[int] = []
    for item in items:
        if item is None:
            order.append(None)
            continue
        n = shape[len(axes)]
        if isinstance(item, slice):
            order.append(len(axes))
            axes.append(_span(item, n))
            continue
        if isinstance(item, _MaskAxis):
            if item.length != n:
                raise IndexError(
                    f"a mask has length {item.length} along axis {len(axes)} of an "
                    f"array of shape {shape}{at(user_source())}"
                )
            item = item.places
        order.append(GROUP)
        grouped.append(len(order) - 1)
        axes.append(position(item, len(axes), shape, mode))
    if len(grouped) == 1:
        axis = len([o for o in order[: grouped[0]] if o is not None])
        if (span := _evenly_apart(axes[axis])) is not None:
            axes[axis], order[grouped[0]] = span, axis
    found = Selection(tuple(axes), _ordered(order, grouped, axes))
    return found.moved(mode, shape) if mode in ("clip", "wrap") else found


def _evenly_apart(places: Any) -> Span | None:
    """The slice that selects these places, if they are known and evenly apart."""
    if type(places) is not np.ndarray or places.ndim != 1 or not places.size:
        return None
    steps = np.diff(places)
    step = int(steps[0]) if steps.size else 1
    if not step or np.any(steps != step):
        return None
    return Span(int(places[0]), step, places.size)


def _ordered(order: list[Any], grouped: list[int], axes: list[Any]) -> tuple[Any, ...]:
    """Puts the axes of the index arrays where NumPy has them: in the place of the
    indices if these are neighbours, otherwise first."""
    if not any(_rank(a) for a in axes):
        return tuple([o for o in order if o is not GROUP])
    together = grouped[-1] - grouped[0] == len(grouped) - 1
    rest = [o for o in order if o is not GROUP]
    place = grouped[0] if together else 0
    return (*rest[:place], GROUP, *rest[place:])


def _rank(position: Any) -> int:
    return 0 if type(position) in (Span, *KNOWN) else len(position.shape)


def _expanded(shape: Shape, expression: Any) -> list[Any]:
    """The items, with masks as index arrays and the ellipsis written out."""
    items: list[Any] = []
    for item in expression if isinstance(expression, tuple) else (expression,):
        if isinstance(item, list):
            item = _of_list(item)
        items += _mask(item) if _is_mask(item) else [item]
    used = sum(i is not None and i is not Ellipsis for i in items)
    if used > len(shape):
        raise IndexError(
            f"{used} indices for an array with {len(shape)} "
            f"{'axis' if len(shape) == 1 else 'axes'}, of shape {shape}"
            f"{at(user_source())}"
        )
    fill = [slice(None)] * (len(shape) - used)
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1:
        raise IndexError(f"an index has one `...` at most{at(user_source())}")
    if dots:
        return [*items[: dots[0]], *fill, *items[dots[0] + 1 :]]
    return items + fill


def _of_list(item: list) -> Any:
    found = np.asarray(item)
    return found if found.size else found.astype(np.int32)


def _is_mask(item: Any) -> bool:
    return isinstance(item, bool) or getattr(item, "dtype", None) == dtypes.bool_


def _mask(item: Any) -> list[_MaskAxis]:
    """The places where a boolean mask is true, as one index array per axis."""
    if isinstance(item, Value) and not isinstance(item, Array):
        raise TracerError(
            f"a boolean mask as index ({typeof(item)}) must be known while tracing: "
            f"the length of the result depends on it{at(user_source())}\n"
            "Use `tnp.where(mask, x, other)`, or `where=` of a reduction; both keep "
            "the shape. Updates, such as\n`x.at[mask].set(0)`, do, too; and "
            "`tnp.extract(mask, x, size=n)` reads n elements at most."
        )
    mask = np.asarray(item)
    places = np.nonzero(mask)
    return [_MaskAxis(i, n) for i, n in zip(places, mask.shape, strict=True)]


def _span(item: slice, n: int) -> Span:
    if is_dim(n) or is_dim(item.start) or is_dim(item.stop):
        return Span(*span(item, n))
    try:
        start, stop, step = item.indices(n)
    except TracerError as error:
        raise TracerError(
            f"{error}\nThe length of a slice is known while tracing, its start need "
            "not be: `x[i : i + 3]` is\n`td.lax.dynamic_slice_in_dim(x, i, 3, axis)`; "
            "along several axes: `td.lax.dynamic_slice`."
        ) from None
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}: {item}{at(user_source())}") from None
    return Span(start, step, len(range(start, stop, step)))


def position(item: Any, axis: int, shape: Shape, mode: str = "") -> Any:
    """An index along an axis of an array of a shape, without negative elements: an int
    or an array of NumPy's, which are in range, or a value that may not be.

    mode: "wrap" if what is out of range will be counted on from the other end.

    Raises:
      IndexError: if a known index is out of range.
      TypeError: for what is no integer.
    """
    n = shape[axis]
    if isinstance(item, Value | np.ndarray | np.generic):
        t = typeof(item)
        if not dtypes.is_integer(t.dtype):
            raise TypeError(
                f"an index must be an integer, a slice, or an integer or boolean "
                f"array, got an array of type {t}{at(user_source())}\n"
                "Convert it: `index.astype(int)`."
            )
        if isinstance(item, Value):
            return from_start(item, n, mode)
        if item.ndim:
            return _checked(np.asarray(item), n, axis, shape)
    try:
        i = item if is_dim(item) else as_index(item)
    except TypeError:
        raise TypeError(
            f"an index must be an integer, a slice, or an array, got "
            f"{type(item).__name__} {item!r:.60}{at(user_source())}"
        ) from None
    if not -n <= i < n:
        raise IndexError(_outside(i, n, axis, shape))
    return i + n if i < 0 else i


def _checked(i: np.ndarray, n: int, axis: int, shape: Shape) -> np.ndarray:
    # As Python's own integers: NumPy's would make numbers of sizes that are not fixed.
    low, high = (int(i.min()), int(i.max())) if i.size else (0, -1)
    if not (-n <= low and high < n):
        worst = low if low < -n else high
        raise IndexError(_outside(worst, n, axis, shape))
    # Small integers can't count to the length of a long axis.
    i = i.astype(np.int64)
    if is_dim(n) and low < 0:
        return from_start(Array(i.astype(dtypes.of_index(n))), n)
    return (np.where(i < 0, i + n, i) if not is_dim(n) else i).astype(
        dtypes.of_index(n)
    )


def counted(n: int) -> Any:
    """The places of an axis of length n, known if n is."""
    if is_dim(n):
        return iota(shape=(n,), axis=0, dtype=dtypes.of_index(n))
    return np.arange(n)


def _outside(i: Any, n: int, axis: int, shape: Shape) -> str:
    return (
        f"index {i} is out of range for axis {axis} of length {n} "
        f"(an array of shape {shape}){at(user_source())}"
    )


def from_start(i: Any, n: int, mode: str = "") -> Any:
    """An index value with negative elements counted from the end, of a dtype that can
    hold every place. What is out of range stays so; but for "wrap" it may be moved
    already, as the dtype may not hold by how much it is out."""
    dtype, wanted = typeof(i).dtype, dtypes.of_index(n)
    if dtypes.is_unsigned(dtype):
        if dtype.itemsize >= wanted.itemsize:
            wraps = mode == "wrap" and (is_dim(n) or n)
            i = inside(i, n, mode) if wraps else minimum(i, n)
        return cast(i, wanted)
    if dtype.itemsize < wanted.itemsize:
        i = cast(i, wanted)
    return select(lt(i, 0), add(i, n), i)


def inside(i: Any, n: int, mode: str) -> Any:
    dtype = typeof(i).dtype
    zero, last, length = (cast(v, dtype) for v in (0, n - 1, n))
    if mode == "clip":
        return maximum(minimum(i, last), zero)
    rest = rem(i, length)
    return select(lt(rest, zero), add(rest, length), rest)


def within(i: Any, n: int) -> Any:
    """Whether places along an axis of length n are in range."""
    return bitwise_and(ge(i, 0), lt(i, n))


def together(positions: Sequence[Any]) -> list[Any]:
    """Index arrays and integers, broadcast to one shape and of one dtype."""
    dtype = dtypes.int32
    for p in positions:
        if (
            dtypes.of_index(p) if type(p) in KNOWN else typeof(p).dtype
        ) == dtypes.int64:
            dtype = dtypes.int64
    arrays = [cast(p, dtype) for p in positions]
    if len(arrays) == 1:
        return arrays
    shape = common_shape("indexing", [typeof(a).shape for a in arrays])
    return [broadcast_to_shape(a, shape) for a in arrays]

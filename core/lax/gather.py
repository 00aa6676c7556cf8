"""Reads and writes at places that index vectors name, by numbered axes.

An array of index vectors has them along its last axis. A vector says where a window
begins: its element i is the index along axis ``start_index_map[i]`` of the operand (for
scatters ``scatter_dims_to_operand_dims[i]``); along other axes the window begins at 0.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.api.boundary import boundary
from treadle.errors import at, user_source
from treadle.lax.operands import Ints, array, ints, scalar_of
from treadle.np.index import together
from treadle.np.indexing import missing
from treadle.np.operands import ArrayLike
from treadle.ops import scatter as scatters
from treadle.ops.arithmetic import neg
from treadle.ops.compare import bitwise_and, ge, le, select
from treadle.ops.gather import gather as read
from treadle.ops.movement import broadcast_in_dim, full, reshape, transpose
from treadle.ops.shape import slice_axis
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.value import typeof


class GatherDimensionNumbers(NamedTuple):
    """What the axes of a gather are.

    offset_dims: the axes of the result that run along windows.
    collapsed_slice_dims: the operand's axes along which windows have length 1, and
      which the result lacks.
    start_index_map: for each element of an index vector, the operand's axis.
    operand_batching_dims, start_indices_batching_dims: axes that correspond: each
      index vector reads the part of the operand with its own number.
    """

    offset_dims: Ints
    collapsed_slice_dims: Ints
    start_index_map: Ints
    operand_batching_dims: Ints = ()
    start_indices_batching_dims: Ints = ()


class ScatterDimensionNumbers(NamedTuple):
    """What the axes of a scatter are.

    update_window_dims: the axes of the updates that run along windows.
    inserted_window_dims: the operand's axes along which windows have length 1, and
      which the updates lack.
    scatter_dims_to_operand_dims: for each element of an index vector, the operand's
      axis.
    operand_batching_dims, scatter_indices_batching_dims: axes that correspond.
    """

    update_window_dims: Ints
    inserted_window_dims: Ints
    scatter_dims_to_operand_dims: Ints
    operand_batching_dims: Ints = ()
    scatter_indices_batching_dims: Ints = ()


class GatherScatterMode(enum.Enum):
    """What happens to windows that are not inside: they are moved inside (CLIP), read
    as a fill value and not written (FILL_OR_DROP, what scatters do by default), or do
    not occur (PROMISE_IN_BOUNDS, what gathers take for granted by default: they are
    moved inside, too)."""

    CLIP = "clip"
    FILL_OR_DROP = "fill"
    PROMISE_IN_BOUNDS = "promise_in_bounds"

    @staticmethod
    def from_any(mode: str | GatherScatterMode | None) -> GatherScatterMode:
        """The mode of a name; None is that of scatters.

        Raises:
          ValueError: if there is none.
        """
        if mode is None or mode == "drop":
            return GatherScatterMode.FILL_OR_DROP
        try:
            return GatherScatterMode(mode)
        except ValueError:
            raise ValueError(
                f'mode {mode!r} is none of "clip", "fill", "drop", '
                f'"promise_in_bounds"{at(user_source())}'
            ) from None


class _Numbers(NamedTuple):
    """The numbers that gathers and scatters share."""

    name: str
    windows: Ints
    gone: Ints
    starts: Ints
    batch: Ints
    index_batch: Ints

    def check(self, x: Any, indices: Any) -> None:
        """
        Raises:
          TypeError: if the indices are no integers.
          ValueError: if some number is no axis, or they do not fit each other.
        """
        if not dtypes.is_integer(indices.dtype) or not indices.ndim:
            raise TypeError(
                f"{self.name}: indices are integers, index vectors along the last "
                f"axis; got {indices.type}{at(user_source())}"
            )
        own = (*self.gone, *self.batch)
        good = (
            len(set(own)) == len(own)
            and all(0 <= a < x.ndim for a in (*own, *self.starts))
            and len(set(self.starts)) == len(self.starts) == indices.shape[-1]
            and not set(self.starts) & set(self.batch)
            and len(self.batch) == len(self.index_batch)
            and all(0 <= a < indices.ndim - 1 for a in self.index_batch)
            and len(self.windows) == x.ndim - len(own)
        )
        if not good:
            raise ValueError(
                f"{self.name} of {x.type} with indices {indices.type}: the dimension "
                f"numbers do not fit: {self}{at(user_source())}"
            )


class _Places(NamedTuple):
    """Places as the op wants them: the operand's axes in another order, in which those
    that correspond to axes of the indices come first, and with one more behind."""

    order: Ints
    indices: list[Any]
    params: dict[str, Any]
    moved: Ints
    inside: Any

    def operand(self, x: Any) -> Any:
        return transpose(reshape(x, shape=(*x.shape, 1)), permutation=self.order)

    def back(self, x: Any) -> Any:
        """The inverse of `operand`."""
        x = transpose(x, permutation=_inverse(self.order))
        return reshape(x, shape=typeof(x).shape[:-1])


def _inverse(order: Ints) -> Ints:
    return tuple(int(i) for i in np.argsort(order))


def _places(x: Any, indices: Any, sizes: Ints, n: _Numbers, mode: str) -> _Places:
    """Places in x for windows of some size along each of its axes.

    An axis that is not indexed and not read whole is indexed by zeros. One more axis,
    of length 1, always is: so there are index arrays, whose axes the result has.
    """
    n.check(x, indices)
    lead = indices.shape[:-1]
    order = (*n.batch, *(a for a in range(x.ndim + 1) if a not in n.batch))
    # The axes of the indices, those with partners first.
    index_order = (
        *n.index_batch,
        *(a for a in range(len(lead)) if a not in n.index_batch),
    )
    dtype = typeof(together([indices])[0]).dtype
    zero = full(lead, 0, dtype)
    found: list[tuple[int, int | None, Any]] = []
    inside: Any = None
    for a, (length, size) in enumerate(zip(x.shape, sizes, strict=True)):
        window = None if a in n.gone else size
        if a in n.starts:
            i = _component(indices, n.starts.index(a))
            inside = _both(inside, i, length - size)
            found.append((a, window, i))
        elif a not in n.batch and (window is None or size != length):
            found.append((a, window, zero))
    found.append((x.ndim, None, zero))
    arrays = [i for _, _, i in found]
    if index_order != tuple(range(len(lead))):
        arrays = [transpose(i, permutation=index_order) for i in arrays]
    # In the op's result: the axes of the indices, then those of the windows.
    rank = len(lead) + len(n.windows)
    rest = iter(_inverse(index_order))
    along = iter(range(len(lead), rank))
    moved = tuple([next(along if a in n.windows else rest) for a in range(rank)])
    params = {
        "axes": tuple([order.index(a) for a, _, _ in found]),
        "sizes": tuple([w for _, w, _ in found]),
        "batch_dims": len(n.batch),
        "mode": mode,
    }
    return _Places(order, together(arrays), params, moved, inside)


def _component(indices: Any, k: int) -> Any:
    axis = indices.ndim - 1
    return reshape(slice_axis(indices, axis, k, k + 1), shape=indices.shape[:-1])


def _both(inside: Any, i: Any, last: int) -> Any:
    """Whether, besides what is known, an index is from 0 to a last one."""
    if dtypes.is_unsigned(i.dtype) or i.dtype.itemsize < 4:
        (i,) = together([i])
    test = bitwise_and(ge(i, 0), le(i, last))
    return test if inside is None else bitwise_and(inside, test)


def gather(
    operand: ArrayLike,
    start_indices: ArrayLike,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: str | GatherScatterMode | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """Reads a window of the operand at the place of each index vector.

    Args:
      slice_sizes: the length of a window along each axis of the operand.
      unique_indices, indices_are_sorted: are accepted, and change nothing.
      mode: see `GatherScatterMode`.
      fill_value: what is read outside, by mode "fill": by default not-a-number, the
        lowest signed integer, the highest unsigned one, or True.

    Raises:
      ValueError: if the dimension numbers do not fit the shapes.

    >>> import treadle as td, treadle.numpy as tnp
    >>> rows = td.lax.GatherDimensionNumbers((1,), (0,), (0,))
    >>> x = tnp.arange(6).reshape(3, 2)
    >>> td.lax.gather(x, tnp.array([[2], [0]]), rows, (1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    x, indices = array("gather", operand), array("gather", start_indices)
    sizes = ints("gather", "slice_sizes", slice_sizes, x.ndim)
    numbers = _Numbers("gather", *map(tuple, dimension_numbers))
    short = (*numbers.gone, *numbers.batch)
    if any(not 0 <= s <= n for s, n in zip(sizes, x.shape, strict=True)) or any(
        sizes[a] != 1 for a in short
    ):
        raise ValueError(
            f"gather of {x.type}: slice_sizes {sizes} must fit in it, and be 1 along "
            f"the axes {short}{at(user_source())}"
        )
    kind = GatherScatterMode.from_any(mode or GatherScatterMode.PROMISE_IN_BOUNDS)
    fill = None
    if kind is GatherScatterMode.FILL_OR_DROP:
        default = missing(x.dtype) if fill_value is None else fill_value
        fill = scalar_of("gather", default, x.dtype)
    places = _places(x, indices, sizes, numbers, "clip")
    out = read(places.operand(x), *places.indices, **places.params)
    out = transpose(out, permutation=places.moved)
    if fill is None or places.inside is None:
        return out
    rows = tuple([a for a in range(out.ndim) if a not in numbers.windows])
    inside = broadcast_in_dim(places.inside, shape=out.shape, dims=rows)
    return select(inside, out, fill)


def _scatter(op: Op, name: str, doc: str) -> Callable[..., Array]:
    def function(
        operand: ArrayLike,
        scatter_indices: ArrayLike,
        updates: ArrayLike,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Array:
        x, new = array(name, operand), array(name, updates)
        indices = array(name, scatter_indices)
        places = _written(name, x, indices, new.shape, dimension_numbers, mode)
        new = transpose(new, permutation=_inverse(places.moved))
        out = op(places.operand(x), new, *places.indices, **places.params)
        return places.back(out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{doc}

    `updates` has the operand's dtype, and a window for each index vector.

    Args:
      indices_are_sorted, unique_indices: are accepted, and change nothing.
      mode: see `GatherScatterMode`.

    Raises:
      ValueError: if the dimension numbers do not fit the shapes.
    """
    return function


def _written(
    name: str, x: Any, indices: Any, shape: Ints, numbers: Any, mode: Any
) -> _Places:
    """The places of updates of a shape."""
    n = _Numbers(name, *map(tuple, numbers))
    lead = [m for a, m in enumerate(shape) if a not in n.windows]
    if len(lead) + len(n.windows) != len(shape) or lead != [*indices.shape[:-1]]:
        raise ValueError(
            f"{name} into {x.type}: updates of shape {shape} have windows along axes "
            f"{n.windows}, and besides them not the axes of the indices "
            f"{indices.type}{at(user_source())}"
        )
    short = (*n.gone, *n.batch)
    windows = iter([shape[a] for a in n.windows])
    sizes = [1 if a in short else next(windows, 1) for a in range(x.ndim)]
    drops = GatherScatterMode.from_any(mode) is GatherScatterMode.FILL_OR_DROP
    return _places(x, indices, tuple(sizes), n, "drop" if drops else "clip")


scatter = _scatter(
    scatters.scatter_set,
    "scatter",
    "The operand with updates written over it; of those at one place the last stays.",
)
scatter_add = _scatter(
    scatters.scatter_add, "scatter_add", "The operand with updates added to it."
)
scatter_mul = _scatter(
    scatters.scatter_mul, "scatter_mul", "The operand multiplied by updates."
)
scatter_min = _scatter(
    scatters.scatter_min, "scatter_min", "The smaller of the operand and its updates."
)
scatter_max = _scatter(
    scatters.scatter_max, "scatter_max", "The larger of the operand and its updates."
)


def scatter_sub(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    updates: ArrayLike,
    dimension_numbers: ScatterDimensionNumbers,
    **options: Any,
) -> Array:
    """The operand with updates subtracted from it (see `scatter_add`)."""
    new = neg(array("scatter_sub", updates))
    return scatter_add(operand, scatter_indices, new, dimension_numbers, **options)


@boundary
def scatter_apply(
    operand: ArrayLike,
    scatter_indices: ArrayLike,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Array:
    """The operand with an elementwise function applied at some places, at each of them
    once, however often it is named.

    update_shape: that which updates of a scatter to these places would have.
    """
    name = "scatter_apply"
    x, indices = array(name, operand), array(name, scatter_indices)
    places = _written(name, x, indices, tuple(update_shape), dimension_numbers, mode)
    inner = places.operand(x)
    old = read(inner, *places.indices, **places.params | {"mode": "clip"})
    new = array(name, func(old))
    return places.back(
        scatters.scatter_set(inner, new, *places.indices, **places.params)
    )

"""Reductions over segments: rows with one number are summed, multiplied, or the largest
or smallest of them is taken."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.errors import TracerError, at, user_source
from treadle.np.binary import select_where
from treadle.np.index import inside
from treadle.np.indexing import MODES
from treadle.np.kinds import iinfo
from treadle.np.operands import ArrayLike, as_array, as_shape, cast, none, operand
from treadle.np.reductions import max as max_of
from treadle.np.reductions import min as min_of
from treadle.np.reductions import prod as prod_of
from treadle.np.reductions import sum as sum_of
from treadle.ops.arithmetic import div
from treadle.ops.compare import lt
from treadle.ops.movement import full
from treadle.ops.scatter import scatter_add, scatter_max, scatter_min, scatter_mul
from treadle.ops.shape import iota
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.stage import known_value

_UNKNOWN = """\
{}: how many segments there are depends on the values of segment_ids ({}), which are \
not known while tracing{}
Say how many there are: `td.{}(..., num_segments=n)`."""


class _How(NamedTuple):
    """A reduction over segments, and over the results of buckets.

    neutral: the value of a segment without rows, of a dtype.
    of_bools: as what bools are reduced.
    """

    name: str
    scatter: Op
    reduce: Callable[..., Any]
    neutral: Callable[[np.dtype], Any]
    of_bools: np.dtype = dtypes.int32

    def __call__(
        self,
        data: Any,
        segment_ids: Any,
        num_segments: Any,
        bucket_size: Any,
        mode: str | None,
    ) -> Any:
        data, ids = self._checked(data, segment_ids, mode)
        if data.dtype != dtypes.bool_:
            return self._reduced(data, ids, num_segments, bucket_size, mode)
        numbers = cast(data, self.of_bools)
        out = self._reduced(numbers, ids, num_segments, bucket_size, mode)
        return cast(out, dtypes.bool_) if self.of_bools == dtypes.uint8 else out

    def _reduced(
        self, data: Any, ids: Any, num_segments: Any, bucket_size: Any, mode: str | None
    ) -> Any:
        if num_segments is None:
            num_segments = self._counted(ids)
        (count,) = as_shape(self.name, num_segments)
        rest, rows = data.shape[1:], ids.shape[0]
        nothing = self.neutral(data.dtype)
        if none(rows) or none(count):
            return full((count, *rest), nothing, data.dtype)
        ids = segments(ids, count, mode)
        if bucket_size is None:
            out = full((count, *rest), nothing, data.dtype)
            return self.scatter(out, data, ids, **_places(1))
        (size,) = as_shape(self.name, bucket_size)
        if size < 1:
            raise ValueError(
                f"{self.name}: bucket_size={bucket_size!r}: a bucket has one row or "
                f"more{at(user_source())}"
            )
        buckets = -(-rows // size)
        out = full((buckets, count, *rest), nothing, data.dtype)
        bucket = div(
            iota(shape=(rows,), axis=0, dtype=ids.dtype), cast(size, ids.dtype)
        )
        return self.reduce(self.scatter(out, data, bucket, ids, **_places(2)), axis=0)

    def _checked(self, data: Any, ids: Any, mode: Any) -> tuple[Any, Any]:
        data, ids = (as_array(operand(self.name, x)) for x in (data, ids))
        where = at(user_source())
        if not dtypes.is_integer(ids.dtype):
            raise TypeError(
                f"{self.name}: segment_ids are integers, got {ids.type}{where}"
            )
        if self.of_bools == dtypes.uint8 and dtypes.is_complex(data.dtype):
            raise TypeError(
                f"{self.name}: complex numbers are not ordered, got data {data.type}; "
                f"reduce their `.real`, `.imag` or `abs`{where}"
            )
        if ids.ndim != 1 or data.ndim < 1 or data.shape[0] != ids.shape[0]:
            raise ValueError(
                f"{self.name}: segment_ids must be a vector with a number for each row "
                f"of data, got {ids.type} for {data.type}{where}"
            )
        if mode is not None and mode not in MODES:
            raise ValueError(
                f"{self.name}: mode {mode!r} is none of "
                f"{', '.join(map(repr, MODES))}{where}"
            )
        return data, ids

    def _counted(self, ids: Any) -> int:
        found = known_value(ids)
        if found is None:
            raise TracerError(
                _UNKNOWN.format(self.name, ids.type, at(user_source()), self.name)
            )
        return int(np.asarray(found).max(initial=-1)) + 1


def _places(axes: int) -> dict[str, Any]:
    return {
        "axes": tuple(range(axes)),
        "sizes": (None,) * axes,
        "batch_dims": 0,
        "mode": "drop",
    }


def segments(ids: Any, count: int, mode: str | None = None) -> Any:
    """Ids that can be compared with the count, those out of range as `mode` says."""
    wide = dtypes.of_index(count)
    if ids.dtype.itemsize < wide.itemsize:
        ids = cast(ids, wide)
    if mode in ("clip", "wrap"):
        ids = inside(ids, count, mode)
    elif ids.dtype.itemsize > wide.itemsize or dtypes.is_unsigned(ids.dtype):
        # What is cut off must not come out as another segment.
        end = cast(count, ids.dtype)
        ids = select_where(lt(ids, end), ids, end)
        if not dtypes.is_unsigned(ids.dtype):
            least = cast(-1, ids.dtype)
            ids = select_where(lt(ids, least), least, ids)
    return cast(ids, wide)


def _lowest(dtype: np.dtype) -> Any:
    return -np.inf if dtypes.is_differentiable(dtype) else iinfo(dtype).min


def _highest(dtype: np.dtype) -> Any:
    return np.inf if dtypes.is_differentiable(dtype) else iinfo(dtype).max


_SUM = _How("segment_sum", scatter_add, sum_of, lambda dtype: 0)
_PROD = _How("segment_prod", scatter_mul, prod_of, lambda dtype: 1)
_MAX = _How("segment_max", scatter_max, max_of, _lowest, dtypes.uint8)
_MIN = _How("segment_min", scatter_min, min_of, _highest, dtypes.uint8)


def segment_sum(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """The sums of rows that belong together: row i goes to segment ``segment_ids[i]``.

    Args:
      data: an array; its first axis is that of `segment_ids`. Bools are counted.
      segment_ids: a vector of integers, in any order.
      num_segments: how many rows the result has; if it is not given, the largest id
        and 1. Needed where the ids are traced.
      indices_are_sorted, unique_indices: may be promised, and change nothing.
      bucket_size: so many rows of `data` are reduced by themselves, and then the
        results: long sums get smaller rounding errors.
      mode: what becomes of ids that are negative or too large: they are left out
        ("drop", "fill", "promise_in_bounds", None), mean the nearest segment ("clip"),
        or are counted on from the other end ("wrap").

    Raises:
      TracerError: if `num_segments` is needed.
      TypeError, ValueError: if ids are no integers, or no vector as long as `data`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.segment_sum(tnp.array([1.0, 2.0, 3.0]), tnp.array([0, 2, 0]), 3)
    Array([4., 0., 2.], dtype=float32)
    """
    return _SUM(data, segment_ids, num_segments, bucket_size, mode)


def segment_prod(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """The products of rows that belong together; 1 for a segment without rows.

    Arguments and errors are those of `segment_sum`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.segment_prod(tnp.array([2.0, 3.0, 4.0]), tnp.array([0, 2, 0]))
    Array([8., 1., 3.], dtype=float32)
    """
    return _PROD(data, segment_ids, num_segments, bucket_size, mode)


def segment_max(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """The largest of rows that belong together, for each column.

    A segment without rows is minus infinity, the lowest integer, or False: bools stay
    bools. Rows that are equally large share the derivative. Arguments and errors are
    those of `segment_sum`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.segment_max(tnp.array([2.0, 3.0, 4.0]), tnp.array([0, 1, 0]))
    Array([4., 3.], dtype=float32)
    """
    return _MAX(data, segment_ids, num_segments, bucket_size, mode)


def segment_min(
    data: ArrayLike,
    segment_ids: ArrayLike,
    num_segments: int | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    bucket_size: int | None = None,
    mode: str | None = None,
) -> Array:
    """The smallest of rows that belong together, for each column.

    A segment without rows is infinity, the highest integer, or True: bools stay bools.
    Rows that are equally small share the derivative. Arguments and errors are those of
    `segment_sum`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.segment_min(tnp.array([2.0, 3.0, 4.0]), tnp.array([0, 1, 0]))
    Array([2., 3.], dtype=float32)
    """
    return _MIN(data, segment_ids, num_segments, bucket_size, mode)

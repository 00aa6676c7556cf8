"""Pooling over spatial axes. Channels are last."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.nn import check

Ints = int | Sequence[int]


def max_pool(
    x: tnp.ArrayLike,
    window: Ints,
    stride: Ints | None = None,
    padding: Any = "VALID",
    *,
    ceil_mode: bool = False,
) -> td.Array:
    """The largest element in each window. Padding never wins; how equal elements share
    the derivative is not specified.

    Shapes: ``(..., *spatial, channels) -> (..., *spatial, channels)``, with as many
    spatial axes as `window` has entries.

    Args:
      window: an int for each spatial axis, ``(3,)`` for sequences; one int is that for
        height and width.
      stride: the distance between windows, an int for all axes or one for each; by
        default the window.
      padding: "SAME", "VALID", an int for all axes, or an int or a (before, after) pair
        for each, less than the window.
      ceil_mode: whether there are windows that reach beyond the end (but begin before
        it, or in the padding before the first element).

    Raises:
      ValueError: for other shapes, or windows of nothing but padding.

    >>> import treadle.numpy as tnp
    >>> max_pool(tnp.arange(16.0).reshape(4, 4, 1), 2)[..., 0]
    Array([[ 5.,  7.],
           [13., 15.]], dtype=float32)
    >>> max_pool(tnp.arange(4.0).reshape(4, 1), (3,), 1)[..., 0]
    Array([2., 3.], dtype=float32)
    """
    windows = _windows("max_pool", x, window, stride, padding, ceil_mode)
    return _extreme(windows, td.lax.max, lambda tiles, axes: tiles.max(axes))


def min_pool(
    x: tnp.ArrayLike,
    window: Ints,
    stride: Ints | None = None,
    padding: Any = "VALID",
    *,
    ceil_mode: bool = False,
) -> td.Array:
    """The smallest element in each window; arguments are those of `max_pool`.

    >>> import treadle.numpy as tnp
    >>> min_pool(tnp.arange(16.0).reshape(4, 4, 1), 2)[..., 0]
    Array([[ 0.,  2.],
           [ 8., 10.]], dtype=float32)
    """
    windows = _windows("min_pool", x, window, stride, padding, ceil_mode)
    return _extreme(windows, td.lax.min, lambda tiles, axes: tiles.min(axes))


def avg_pool(
    x: tnp.ArrayLike,
    window: Ints,
    stride: Ints | None = None,
    padding: Any = "VALID",
    *,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
) -> td.Array:
    """The mean of each window, over the elements that are not padding.

    Arguments and shapes are those of `max_pool`.

    Args:
      count_include_pad: whether zeros in the padding count as elements, too. What
        `ceil_mode` adds never does.

    >>> import treadle.numpy as tnp
    >>> avg_pool(tnp.arange(16.0).reshape(4, 4, 1), 2)[..., 0]
    Array([[ 2.5,  4.5],
           [10.5, 12.5]], dtype=float32)
    """
    x = check.as_array(x)
    windows = _windows("avg_pool", x, window, stride, padding, ceil_mode)
    if windows.tiles:
        return _pooled(windows, None, lambda tiles, axes: tiles.mean(axes))
    windows = windows._replace(x=check.wide(windows.x))
    if windows.strides == windows.sizes and _is_same(padding) and not ceil_mode:
        # Added up as tiles are: an image of any size has them then.
        total = _pooled(windows.padded(), None, lambda tiles, axes: tiles.sum(axes))
    else:
        total = _pooled(windows, td.lax.add, None)
    return check.narrow(total / _counts(windows, count_include_pad), x)


def lp_pool(
    x: tnp.ArrayLike,
    norm: float,
    window: Ints,
    stride: Ints | None = None,
    padding: Any = "VALID",
) -> td.Array:
    """The p-norm of each window, ``(Σ |x|^norm)^(1 / norm)``. The derivative of a norm
    that is 0 is 0.

    Shapes and other arguments are those of `max_pool`.

    Args:
      norm: at least 1.

    >>> import treadle.numpy as tnp
    >>> lp_pool(tnp.array([3.0, 4.0, 0.0, 1.0])[:, None], 2, (2,))[..., 0]
    Array([5., 1.], dtype=float32)
    """
    if not norm >= 1:
        raise ValueError(
            f"lp_pool: the norm must be at least 1, got {norm!r}{at(user_source())}"
        )
    x = check.as_array(x)
    powers = abs(check.wide(x)) ** norm
    windows = _windows("lp_pool", powers, window, stride, padding)
    total = _pooled(windows, td.lax.add, lambda tiles, axes: tiles.sum(axes))
    some = total > 0
    root = tnp.where(some, total, 1) ** (1 / norm)
    return check.narrow(tnp.where(some, root, 0), x)


def adaptive_avg_pool(x: tnp.ArrayLike, output_size: Any) -> td.Array:
    """The means of as many windows as the output has elements: the i-th of m along an
    axis of length n goes from floor(i n / m) to ceil((i + 1) n / m).

    Shapes: ``(..., *spatial, channels) -> (..., *output_size, channels)``.

    Args:
      output_size: an int for each spatial axis, or None to leave it as it is; one int
        is that for height and width.

    >>> import treadle.numpy as tnp
    >>> adaptive_avg_pool(tnp.arange(5.0)[:, None], (2,))[..., 0]
    Array([1., 3.], dtype=float32)
    """
    return _adapted("adaptive_avg_pool", x, output_size, _mean_along)


def adaptive_max_pool(x: tnp.ArrayLike, output_size: Any) -> td.Array:
    """The largest elements of as many windows as the output has elements.

    Windows, shapes and arguments are those of `adaptive_avg_pool`.

    >>> import treadle.numpy as tnp
    >>> adaptive_max_pool(tnp.arange(5.0)[:, None], (2,))[..., 0]
    Array([2., 4.], dtype=float32)
    """
    return _adapted("adaptive_max_pool", x, output_size, _max_along)


def global_avg_pool(x: tnp.ArrayLike, *, rank: int = 2) -> td.Array:
    """The mean over all spatial axes: ``(..., *spatial, channels) -> (..., channels)``.

    Args:
      rank: how many spatial axes there are; 2 for height and width.

    >>> import treadle.numpy as tnp
    >>> global_avg_pool(tnp.arange(16.0).reshape(4, 4, 1))
    Array([7.5], dtype=float32)
    """
    x = check.spatial("global_avg_pool", x, rank)
    return tnp.mean(x, tuple(range(-1 - rank, -1)))


def global_max_pool(x: tnp.ArrayLike, *, rank: int = 2) -> td.Array:
    """The largest element over all spatial axes, as `global_avg_pool`.

    >>> import treadle.numpy as tnp
    >>> global_max_pool(tnp.arange(16.0).reshape(4, 4, 1))
    Array([15.], dtype=float32)
    """
    x = check.spatial("global_max_pool", x, rank)
    return x.max(tuple(range(-1 - rank, -1)))


class _Windows(NamedTuple):
    """An image, and its windows with an entry for each spatial axis."""

    x: td.Array
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    beyond: tuple[int, ...]
    """What is added after the padding, for the last window."""

    @property
    def space(self) -> tuple[int, ...]:
        return self.x.shape[-1 - len(self.sizes) : -1]

    def padded(self) -> _Windows:
        """The same with zeros put around the image."""
        none = ((0, 0),)
        around = none * (self.x.ndim - 1 - len(self.sizes)) + self.pads + none
        return self._replace(x=tnp.pad(self.x, around), pads=none * len(self.sizes))

    @property
    def tiles(self) -> bool:
        """Whether they lie side by side, perhaps with a rest that no window has. Of
        padding that depends on a size that is not fixed it is not asked."""
        return (
            self.strides == self.sizes
            and not any([is_dim(n) or n for ends in self.pads for n in ends])
            and not any(self.beyond)
        )


def _is_same(padding: Any) -> bool:
    return isinstance(padding, str) and padding.upper() == "SAME"


def _windows(
    name: str, x: Any, window: Any, stride: Any, padding: Any, ceil_mode: bool = False
) -> _Windows:
    rank = len(window) if hasattr(window, "__len__") else 2
    x = check.spatial(name, x, rank)
    sizes = check.per_axis(name, "window", window, rank)
    strides = sizes if stride is None else check.per_axis(name, "stride", stride, rank)
    space = x.shape[-1 - rank : -1]
    pads = check.pads(check.padding(name, padding, rank), space, sizes, strides)
    # Not by their maximum: which end is longer depends on sizes that are not fixed.
    if any([n >= w for ends, w in zip(pads, sizes, strict=True) for n in ends]):
        raise ValueError(
            f"{name}: padding of {pads} around windows of {sizes} makes windows of "
            f"nothing but padding{at(user_source())}"
        )
    beyond = (0,) * rank
    if ceil_mode:
        axes = zip(space, sizes, strides, pads, strict=True)
        beyond = tuple([_beyond(n + low, high, w, s) for n, w, s, (low, high) in axes])
    return _Windows(x, sizes, strides, pads, beyond)


def _beyond(n: int, high: int, window: int, stride: int) -> int:
    """How far a window more reaches beyond n elements and the padding after them."""
    count = -(-(n + high - window) // stride) + 1
    if (count - 1) * stride >= n:
        return 0
    return (count - 1) * stride + window - n - high


_FEW = 4


def _extreme(windows: _Windows, op: Any, of_tiles: Any) -> td.Array:
    """Windows of few elements are a reduction of windows even where they are tiles: it
    reads rows as they lie. The derivative of others is that of a reduction."""
    few = math.prod(windows.sizes) <= _FEW
    return _pooled(windows, op, None if few else of_tiles)


def _pooled(windows: _Windows, op: Any, of_tiles: Any) -> td.Array:
    """By a function of two elements, or a reduction of axes if they are tiles."""
    x, sizes, strides, pads, beyond = windows
    rank, space = len(sizes), windows.space
    lead, channels = x.shape[: -1 - rank], x.shape[-1]
    if of_tiles is not None and windows.tiles:
        counts = [n // w for n, w in zip(space, sizes, strict=True)]
        whole = [slice(n * w) for n, w in zip(counts, sizes, strict=True)]
        x = x[(..., *whole, slice(None))]
        split = [m for n, w in zip(counts, sizes, strict=True) for m in (n, w)]
        first = len(lead) + 1
        axes = tuple(range(first, first + 2 * rank, 2))
        return of_tiles(x.reshape(*lead, *split, channels), axes)
    ones = (1,) * len(lead)
    none = ((0, 0),)
    ends = zip(pads, beyond, strict=True)
    around = [(low, high + more) for (low, high), more in ends]
    return td.lax.reduce_window(
        x,
        _start(op, x.dtype),
        op,
        (*ones, *sizes, 1),
        (*ones, *strides, 1),
        (*none * len(lead), *around, *none),
    )


def _start(op: Any, dtype: Any) -> Any:
    """What changes nothing."""
    if op is td.lax.add:
        return 0
    low, high = -np.inf, np.inf
    if td.dtypes.is_integer(dtype):
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return low if op is td.lax.max else high


def _counts(windows: _Windows, include_pad: bool) -> Any:
    """How many elements of each window count: (*spatial, 1)."""
    # Constants, unless the sizes are not fixed.
    lib: Any = tnp if any(map(is_dim, windows.space)) else np
    counts: Any = lib.ones(())
    for n, w, s, (low, high), more in zip(windows.space, *windows[1:], strict=True):
        start = lib.arange((n + low + high + more - w) // s + 1) * s - low
        first, last = (-low, n + high) if include_pad else (0, n)
        inside = lib.minimum(start + w, last) - lib.maximum(start, first)
        counts = counts[..., None] * inside
    return tnp.asarray(counts[..., None], windows.x.dtype)


def _adapted(
    name: str, x: Any, output_size: Any, along: Callable[[Any, int, int], Any]
) -> td.Array:
    many = hasattr(output_size, "__len__")
    rank = len(output_size) if many else 2
    x = check.spatial(name, x, rank)
    wanted = tuple(output_size) if many else (output_size,) * rank
    check.per_axis(name, "output_size", [1 if m is None else m for m in wanted], rank)
    for axis, m in enumerate(wanted, x.ndim - 1 - rank):
        if m is not None:
            x = along(x, axis, m)
    return x


def _mean_along(x: Any, axis: int, m: int) -> Any:
    """An axis as the means of m windows."""
    n = x.shape[axis]
    if n % m == 0:
        return _split(x, axis, m).mean(axis + 1)
    first, places = _windows_along(n, m)
    inside = places == first[:, None] + tnp.arange(places.shape[1])
    count = inside.sum(1)
    rest = (1,) * (x.ndim - axis - 1)
    seen = tnp.take(check.wide(x), places, axis=axis)
    total = tnp.where(inside.reshape(*inside.shape, *rest), seen, 0).sum(axis + 1)
    return check.narrow(total / count.reshape(m, *rest).astype(total.dtype), x)


def _max_along(x: Any, axis: int, m: int) -> Any:
    """An axis as the largest elements of m windows."""
    n = x.shape[axis]
    if n % m == 0:
        return _split(x, axis, m).max(axis + 1)
    _, places = _windows_along(n, m)
    return tnp.take(x, places, axis=axis).max(axis + 1)


def _windows_along(n: int, m: int) -> tuple[Any, Any]:
    """Where m windows begin, and their elements, as many of each: short windows have
    their last one twice, or three times."""
    i = tnp.arange(m)
    first, last = i * n // m, -(-(i + 1) * n // m)
    longest = tnp.arange(-(-n // m) + 1)
    return first, tnp.minimum(first[:, None] + longest, last[:, None] - 1)


def _split(x: Any, axis: int, m: int) -> Any:
    return x.reshape(*x.shape[:axis], m, x.shape[axis] // m, *x.shape[axis + 1 :])

"""`treadle.image`: images of other sizes.

Arrays may have any number of axes; those that are not resized keep their length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle import np as tnp
from treadle.errors import at, user_source
from treadle.np.contract import check_precision
from treadle.np.operands import as_inexact, as_shape, operand
from treadle.run.array import Array
from treadle.trace.value import typeof

__all__ = ["resize", "scale_and_translate"]

_ALIASES = {
    "bilinear": "linear",
    "trilinear": "linear",
    "triangle": "linear",
    "bicubic": "cubic",
    "tricubic": "cubic",
}


def _linear(x: Any) -> Any:
    return tnp.maximum(0, 1 - x)


def _cubic(x: Any) -> Any:
    """Keys's, with -1/2 (R. G. Keys: Cubic convolution interpolation, 1981)."""
    near = ((1.5 * x - 2.5) * x) * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return tnp.where(x >= 2, 0, tnp.where(x >= 1, far, near))


def _lanczos(radius: int) -> Callable[[Any], Any]:
    def kernel(x: Any) -> Any:
        waves = radius * tnp.sin(math.pi * x) * tnp.sin(math.pi * x / radius)
        inner = waves / tnp.where(x > 1e-3, (math.pi * x) ** 2, 1)
        return tnp.where(x > radius, 0, tnp.where(x > 1e-3, inner, 1))

    return kernel


class _Kernel(NamedTuple):
    """From the distance of two pixels to the weight of one in the other; it is zero
    beyond the radius."""

    radius: int
    weight: Callable[[Any], Any]


_KERNELS = {
    "linear": _Kernel(1, _linear),
    "cubic": _Kernel(2, _cubic),
    "lanczos3": _Kernel(3, _lanczos(3)),
    "lanczos5": _Kernel(5, _lanczos(5)),
}
_LONG_ROW = 16
"""From this many elements on, reading rows is faster than a product with a matrix."""


def resize(
    image: Any,
    shape: Sequence[int],
    method: str,
    antialias: bool = True,
    precision: Any = None,
) -> Array:
    """The image with another shape.

    Args:
      image: an array; axes of batches and channels keep their length.
      shape: as long as that of the image.
      method: "nearest", "linear", "cubic", "lanczos3" or "lanczos5".
      antialias: whether pixels of a smaller image are means of all that they stand for.
      precision: is accepted, and changes nothing: products have all digits.

    Returns:
      An array of the image's dtype ("nearest"), or of floats.

    Raises:
      ValueError: for another method, or a shape with another number of axes.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.image.resize(tnp.array([0.0, 1.0]), (4,), "linear")
    Array([0.  , 0.25, 0.75, 1.  ], dtype=float32)
    """
    check_precision("resize", precision)
    image = tnp.asarray(operand("resize", image))
    wanted = _shape("resize", image, shape)
    axes = [i for i, n in enumerate(wanted) if n != image.shape[i]]
    if _method("resize", method, ("nearest", *_KERNELS)) == "nearest":
        return _nearest(image, wanted, axes)
    if 0 in wanted:
        return tnp.zeros(wanted, as_inexact("resize", image).dtype)
    kernel = _KERNELS[_ALIASES.get(method, method)]
    image = tnp.asarray(as_inexact("resize", image))
    for axis in axes:
        n, m = image.shape[axis], wanted[axis]
        count = 0
        if _row(image, axis) >= _LONG_ROW:
            count = _read_of_sizes(n, m, kernel, antialias)
        image = _along(image, axis, m, n / m, 0.0, kernel, antialias, count)
    return image


def scale_and_translate(
    image: Any,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: Any,
    translation: Any,
    method: str,
    antialias: bool = True,
    precision: Any = None,
) -> Array:
    """The image scaled and moved: what was at x is at ``scale * x + translation``.

    Pixel i reaches from i to i + 1. What comes from outside of the image is zero.

    Args:
      image: an array.
      shape: that of the result.
      spatial_dims: the axes that are scaled and moved.
      scale, translation: a number for each of these; may be traced and differentiated.
      method: "linear", "cubic", "lanczos3" or "lanczos5".
      antialias, precision: as for `resize`.

    Raises:
      ValueError: for another method, or if numbers of axes don't fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.array([1.0, 2.0, 3.0])
    >>> td.image.scale_and_translate(x, (3,), (0,), [1.0], [1.0], "linear")
    Array([0., 1., 2.], dtype=float32)
    """
    name = "scale_and_translate"
    check_precision(name, precision)
    image = tnp.asarray(as_inexact(name, operand(name, image)))
    wanted = _shape(name, image, shape)
    kernel = _KERNELS[_method(name, method, tuple(_KERNELS))]
    scale, translation = _numbers(scale), _numbers(translation)
    if not len(spatial_dims) == len(scale) == len(translation):
        raise ValueError(
            f"{name}: {len(scale)} scales and {len(translation)} translations for "
            f"{len(spatial_dims)} spatial_dims{at(user_source())}"
        )
    axes = [axis % image.ndim for axis in spatial_dims]
    for axis, by, to in zip(axes, scale, translation, strict=True):
        count, back = _read(image, axis, by, kernel, antialias), 1 / by
        image = _along(
            image, axis, wanted[axis], back, to * back, kernel, antialias, count
        )
    if image.shape != wanted:
        raise ValueError(
            f"{name}: the shape {wanted} changes axes that are not in spatial_dims "
            f"{tuple(spatial_dims)}{at(user_source())}"
        )
    return image


def _numbers(values: Any) -> list[Any]:
    """Given as an array, or as a sequence of numbers."""
    if isinstance(values, list | tuple):
        return list(values)
    array = tnp.asarray(values)
    return [array[i] for i in range(array.shape[0])]


def _along(
    image: Any,
    axis: int,
    length: int,
    backwards: Any,
    moved: Any,
    kernel: _Kernel,
    antialias: bool,
    count: int,
) -> Any:
    """The image with one axis scaled and moved: what lies at x comes from ``backwards *
    x - moved``.

    count: how many pixels are read for each; 0 for a product with a matrix.
    """
    n = image.shape[axis]
    # Half floats can't count the pixels.
    working = dtypes.promote((image.real.dtype, False), (dtypes.float32, False))[0]
    width = tnp.maximum(backwards, 1) if antialias else 1.0
    new = tnp.arange(length, dtype=working)
    places = (new + 0.5) * backwards - moved - 0.5

    def weights(pixels: Any) -> Any:
        """Of pixels, along the first axis, in the new ones."""
        found = kernel.weight(abs(places - pixels) / width)
        found = tnp.where((pixels >= 0) & (pixels < n), found, 0)
        total = found.sum(0)
        known = abs(total) > 1000 * np.finfo(np.float32).eps
        found = tnp.where(known, found / tnp.where(known, total, 1), 0)
        inside = (places >= -0.5) & (places <= n - 0.5)
        return tnp.where(inside, found, 0).astype(image.dtype)

    if not count:
        product = weights(tnp.arange(n, dtype=working)[:, None])
        moved = tnp.tensordot(image, product, axes=((axis,), (0,)))
        return tnp.moveaxis(moved, -1, axis)
    first = tnp.floor(places - kernel.radius * width) + 1
    pixels = first + tnp.arange(count, dtype=working)[:, None]
    shares, rows = weights(pixels), pixels.astype(int)
    shape = (length,) + (1,) * (image.ndim - axis - 1)
    parts = [
        tnp.take(image, rows[k], axis=axis, mode="clip") * shares[k].reshape(shape)
        for k in range(count)
    ]
    return sum(parts[1:], start=parts[0])


def _read(image: Any, axis: int, scale: Any, kernel: _Kernel, antialias: bool) -> int:
    """How many pixels are read for each; 0 if a product with a matrix is faster, or if
    the scale is an array. A float that is made of open sizes is compared as others are:
    there is one program for all of which the answers are alike."""
    if not isinstance(scale, float) or _row(image, axis) < _LONG_ROW:
        return 0
    least = 2 * kernel.radius
    if not antialias:
        return least
    wide = least / scale
    return next((n for n in range(least, 2 * least + 1) if wide <= n), 0)


def _read_of_sizes(n: int, m: int, kernel: _Kernel, antialias: bool) -> int:
    """The same for an axis of n pixels that become m. Lengths that are not fixed are
    compared alone: there is one program for all of which the answers are alike."""
    least = 2 * kernel.radius
    if not antialias:
        return least
    counts = range(least, 2 * least + 1)
    return next((count for count in counts if least * n <= count * m), 0)


def _row(image: Any, axis: int) -> int:
    """How many elements lie behind each place of an axis."""
    return math.prod(image.shape[axis + 1 :])


def _nearest(image: Any, wanted: tuple[int, ...], axes: Sequence[int]) -> Any:
    for axis in axes:
        n, m = image.shape[axis], wanted[axis]
        if n and m % n == 0:
            image = tnp.repeat(image, m // n, axis=axis)
            continue
        # The pixel in which the middle of the new one lies.
        places = (
            (2 * tnp.arange(m, dtype=dtypes.of_index(2 * n * m)) + 1) * n // (2 * m)
        )
        image = tnp.take(image, places, axis=axis, mode="clip")
    return image


def _shape(name: str, image: Any, shape: Sequence[int]) -> tuple[int, ...]:
    wanted = as_shape(name, shape)
    if len(wanted) != image.ndim:
        raise ValueError(
            f"{name}: the shape {wanted} has another number of axes than the image "
            f"({typeof(image)}){at(user_source())}"
        )
    return wanted


def _method(name: str, method: str, known: tuple[str, ...]) -> str:
    found = _ALIASES.get(method, method)
    if found not in known:
        raise ValueError(
            f"{name}: method {method!r} is none of {', '.join(map(repr, known))}"
            f"{at(user_source())}"
        )
    return found

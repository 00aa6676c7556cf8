"""Convolutions with any layout, padding, stride, dilation and groups.

As everywhere in deep learning, the filter is not flipped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.errors import at, user_source
from treadle.lax.operands import Ints, array, ints
from treadle.lax.padding import (
    ConvDimensionNumbers,
    conv_dimension_numbers,
    for_transpose,
    pads,
    reaches,
)
from treadle.np.contract import factors, is_exact, of_dtype
from treadle.np.operands import ArrayLike
from treadle.ops import conv as convs
from treadle.ops.movement import full, move_axis, reshape, reverse, transpose
from treadle.run.array import Array
from treadle.trace.value import typeof

Padding = str | Sequence[tuple[int, int]]


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """A convolution over any number of spatial axes.

    Args:
      lhs: images, by default (N, C, *spatial).
      rhs: the filter, by default (O, I, *spatial), where I is C / feature_group_count.
      window_strides: for each spatial axis.
      padding: "SAME", "SAME_LOWER", "VALID", or a pair (before, after) for each spatial
        axis; what is negative cuts.
      lhs_dilation: how far apart elements of the images are put (zeros between them).
      rhs_dilation: how far apart elements of the filter are put.
      dimension_numbers: the layouts of images, filter and result, such as ``("NHWC",
        "HWIO", "NHWC")``, or `ConvDimensionNumbers`.
      feature_group_count: in how many parts the channels are split, each with its own
        filters.
      batch_group_count: in how many parts the examples are split; the features of the
        result are those of the parts, side by side.
      precision: "highest" (or "float32") multiplies pixel by pixel. Otherwise filters
        of 3 x 3 without strides (of each image, if they are volumes) may take a fourth
        of the products (Lavin and Gray, 2016), in float32, if they are that or bfloat16
        and there are enough of them; those of 3 of a row half of them, of float32. That
        loses up to twice the digits of such a sum, an infinity or NaN in an image makes
        NaNs of results up to three pixels (of those that its taps meet, if they are
        apart) further on, and one in a filter of all of its feature.
      preferred_element_type: of the result, and of sums if it has the most digits.

    Raises:
      ValueError: for shapes or options that don't fit each other.
      TypeError: for bools.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x, w = tnp.ones((1, 3, 8, 8)), tnp.ones((4, 3, 3, 3))
    >>> td.lax.conv_general_dilated(x, w, (2, 2), "SAME").shape
    (1, 4, 4, 4)
    """
    name = "conv_general_dilated"
    x, w = factors(
        name, lhs, rhs, precision=precision, preferred=preferred_element_type
    )
    shapes = typeof(x).shape, typeof(w).shape
    numbers = conv_dimension_numbers(*shapes, dimension_numbers)
    x = _laid_out(x, _last(numbers.lhs_spec))
    w = _laid_out(w, (*numbers.rhs_spec[2:], numbers.rhs_spec[1], numbers.rhs_spec[0]))
    x = _grouped(name, x, typeof(w).shape[-1], batch_group_count)
    spatial, kernel = typeof(x).shape[1:-1], typeof(w).shape[:-2]
    rank = len(spatial)
    ones = (1,) * rank
    strides = ints(name, "window_strides", window_strides, rank)
    apart = ints(name, "lhs_dilation", lhs_dilation or ones, rank)
    dilation = ints(name, "rhs_dilation", rhs_dilation or ones, rank)
    seen = reaches(spatial, apart), reaches(kernel, dilation)
    if batch_group_count > 1 and feature_group_count > 1:
        raise ValueError(
            f"{name}: groups of features or of examples, not both: "
            f"{feature_group_count} and {batch_group_count}{at(user_source())}"
        )
    out = convs.conv_general(
        x,
        w,
        strides=strides,
        padding=pads(name, padding, *seen, strides),
        lhs_dilation=apart,
        rhs_dilation=dilation,
        feature_groups=feature_group_count * batch_group_count,
        exact=is_exact(precision),
    )
    out = _laid_out(out, _argsort(_last(numbers.out_spec)))
    return of_dtype(out, preferred_element_type)


def _last(spec: Ints) -> Ints:
    """The axes of examples, space, channels."""
    return (spec[0], *spec[2:], spec[1])


def _argsort(order: Ints) -> Ints:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _laid_out(x: Any, order: Ints) -> Any:
    if order == tuple(range(len(order))):
        return x
    return transpose(x, permutation=order)


def _grouped(name: str, x: Any, features: int, groups: int) -> Any:
    """Groups of examples as groups of channels."""
    if groups == 1:
        return x
    n, *spatial, channels = typeof(x).shape
    if groups < 1 or n % groups or features % groups:
        raise ValueError(
            f"{name}: {n} examples and {features} features can't be split in {groups} "
            f"groups{at(user_source())}"
        )
    x = reshape(x, shape=(groups, n // groups, *spatial, channels))
    x = move_axis(x, 0, len(spatial) + 1)
    return reshape(x, shape=(n // groups, *spatial, groups * channels))


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """`conv_general_dilated` in its default layouts, without dilation."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """`conv_general_dilated` in its default layouts, without groups."""
    return conv_general_dilated(
        lhs,
        rhs,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: Padding,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    transpose_kernel: bool = False,
    precision: Any = None,
    preferred_element_type: Any = None,
    use_consistent_padding: bool = False,
) -> Array:
    """A convolution with fractional strides: what upsamples in networks.

    Args:
      strides: for each spatial axis, how many results there are to an element.
      padding: "SAME" or "VALID", of the convolution that would lead back; or pairs:
        what is added here to the dilated images.
      dimension_numbers: layouts as in `conv_general_dilated`; by default channels are
        last: ``("NHWC", "HWIO", "NHWC")`` for two spatial axes.
      transpose_kernel: whether the filter is flipped, and its features exchanged: then
        this is the gradient of the convolution with that filter.
      use_consistent_padding: whether pairs, too, are those of the convolution that
        would lead back.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x, w = tnp.ones((1, 4, 4, 3)), tnp.ones((3, 3, 3, 5))
    >>> td.lax.conv_transpose(x, w, (2, 2), "SAME").shape
    (1, 8, 8, 5)
    """
    name = "conv_transpose"
    x, w = array(name, lhs), array(name, rhs)
    if dimension_numbers is None:
        dimension_numbers = _channels_last(name, x.ndim)
    numbers = conv_dimension_numbers(x.shape, w.shape, dimension_numbers)
    rank = x.ndim - 2
    steps = ints(name, "strides", strides, rank)
    dilation = ints(name, "rhs_dilation", rhs_dilation or (1,) * rank, rank)
    kernel = reaches([w.shape[a] for a in numbers.rhs_spec[2:]], dilation)
    if not isinstance(padding, str):
        around = pads(name, padding, kernel, kernel, steps)
    elif padding not in ("SAME", "VALID"):
        raise ValueError(
            f'{name}: padding is "SAME", "VALID", or pairs, got {padding!r}'
            f"{at(user_source())}"
        )
    if isinstance(padding, str) or use_consistent_padding:
        kinds: Any = [padding] * rank if isinstance(padding, str) else around
        sizes = zip(kernel, steps, kinds, strict=True)
        around = tuple([for_transpose(k, s, p) for k, s, p in sizes])
    if transpose_kernel:
        w = reverse(w, axes=numbers.rhs_spec[2:])
        out_features, in_features, *space = numbers.rhs_spec
        numbers = numbers._replace(rhs_spec=(in_features, out_features, *space))
    return conv_general_dilated(
        x,
        w,
        (1,) * rank,
        around,
        steps,
        dilation,
        numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )


_LAST = {2: "NC", 3: "NHC", 4: "NHWC", 5: "NHWDC"}


def _channels_last(name: str, rank: int) -> tuple[str, str, str]:
    if rank not in _LAST:
        raise ValueError(
            f"{name}: say dimension_numbers for {rank - 2} spatial axes"
            f"{at(user_source())}"
        )
    layout = _LAST[rank]
    return layout, f"{layout[1:-1]}IO", layout


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: Padding,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """What a filter of some spatial shape sees at each place: the channels of the
    result are those of the images, each with all elements of the window.

    The arguments are those of `conv_general_dilated`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.ones((1, 3, 8, 8))
    >>> td.lax.conv_general_dilated_patches(x, (2, 2), (2, 2), "VALID").shape
    (1, 12, 4, 4)
    """
    name = "conv_general_dilated_patches"
    x = array(name, lhs)
    kernel = ints(name, "filter_shape", filter_shape, x.ndim - 2)
    numbers = conv_dimension_numbers(x.shape, x.shape, dimension_numbers)
    channels, size = x.shape[numbers.lhs_spec[1]], math.prod(kernel)
    # Of each channel, one filter for each element of the window.
    one = np.eye(size, dtype=x.dtype).reshape(size, 1, *kernel)
    w: Any = full((channels, *one.shape), 1, x.dtype) * one
    w = reshape(w, shape=(channels * size, 1, *kernel))
    spec = numbers.rhs_spec
    w = _laid_out(w, _argsort(spec))
    return conv_general_dilated(
        x,
        w,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        ConvDimensionNumbers(numbers.lhs_spec, spec, numbers.out_spec),
        feature_group_count=channels,
        precision=precision,
        preferred_element_type=preferred_element_type,
    )

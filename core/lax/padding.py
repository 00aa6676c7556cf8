"""How convolutions and windows pad, and how their axes are named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from treadle.dims import positive_part
from treadle.errors import at, user_source
from treadle.lax.operands import Ints, ints
from treadle.ops.conv import dilated

Pairs = tuple[tuple[int, int], ...]


def padtype_to_pads(
    in_shape: Sequence[int],
    window_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
) -> list[tuple[int, int]]:
    """How many elements a padding adds before and after, for each axis.

    Args:
      in_shape, window_shape: lengths after dilation.
      padding: "VALID": none; "SAME": as many windows as strides fit in the array, what
        is odd goes behind; "SAME_LOWER": what is odd goes before; or pairs already.

    Raises:
      ValueError: for another name.

    >>> import treadle as td
    >>> td.lax.padtype_to_pads((5, 6), (2, 3), (1, 2), "SAME")
    [(0, 1), (0, 1)]
    """
    return list(
        pads("padtype_to_pads", padding, in_shape, window_shape, window_strides)
    )


def pads(
    name: str, padding: Any, lengths: Sequence, window: Sequence, strides: Sequence
) -> Pairs:
    """`padtype_to_pads` for a function of some name."""
    if not isinstance(padding, str):
        found = [ints(name, "padding", p, 2) for p in padding]
        if len(found) != len(lengths):
            raise ValueError(
                f"{name}: {len(found)} pairs of padding, {len(lengths)} expected: "
                f"{padding}{at(user_source())}"
            )
        return tuple([(low, high) for low, high in found])
    kind = padding.upper()
    if kind == "VALID":
        return ((0, 0),) * len(lengths)
    if kind not in ("SAME", "SAME_LOWER"):
        raise ValueError(
            f'{name}: padding is "SAME", "SAME_LOWER", "VALID", or pairs (before, '
            f"after), got {padding!r}{at(user_source())}"
        )
    result = []
    for n, k, s in zip(lengths, window, strides, strict=True):
        total = (-(-n // s) - 1) * s + k - n
        if k < s:  # else it can't be below 0
            total = positive_part(total)
        less, more = total // 2, total - total // 2
        result.append((less, more) if kind == "SAME" else (more, less))
    return tuple(result)


def for_transpose(k: int, s: int, padding: str | tuple[int, int]) -> tuple[int, int]:
    """The padding, around elements that are s apart, of the convolution with a kernel
    of length k that leads back from one with stride s and some padding."""
    if isinstance(padding, tuple):
        before, after = (k - p - 1 for p in padding)
        return before, after
    if padding == "SAME":
        total = k + s - 2
        before = k - 1 if s > k - 1 else -(-total // 2)
    else:
        total = k + s - 2 + max(k - s, 0)
        before = k - 1
    return before, total - before


class ConvDimensionNumbers(NamedTuple):
    """Where the axes of a convolution are.

    lhs_spec: the axes of examples, of channels, and the spatial ones in order.
    rhs_spec: the axes of features that come out, that go in, and the spatial ones.
    out_spec: like lhs_spec, of the result.
    """

    lhs_spec: Ints
    rhs_spec: Ints
    out_spec: Ints


def conv_dimension_numbers(
    lhs_shape: Sequence[int], rhs_shape: Sequence[int], dimension_numbers: Any
) -> ConvDimensionNumbers:
    """Dimension numbers of names such as ``("NHWC", "HWIO", "NHWC")``: N counts
    examples, C channels, I and O features that go in and come out; the other letters
    are spatial axes, in the order that the filter has. None stands for N, C and O, I
    first.

    Raises:
      ValueError: if they do not fit the shapes.

    >>> import treadle as td
    >>> layouts = ("NHWC", "HWIO", "NHWC")
    >>> td.lax.conv_dimension_numbers((1, 8, 8, 3), (3, 3, 3, 4), layouts).rhs_spec
    (3, 2, 0, 1)
    """
    rank = len(lhs_shape)
    if isinstance(dimension_numbers, ConvDimensionNumbers):
        return dimension_numbers
    if len(rhs_shape) != rank or rank < 2:
        raise ValueError(
            f"convolution of shapes {tuple(lhs_shape)} and {tuple(rhs_shape)}: both "
            f"have two axes besides the spatial ones{at(user_source())}"
        )
    if dimension_numbers is None:
        order = tuple(range(rank))
        return ConvDimensionNumbers(order, order, order)
    specs = tuple(dimension_numbers)
    if len(specs) != 3 or not all(isinstance(s, str) for s in specs):
        raise _wrong(dimension_numbers)
    found = []
    space = "".join([c for c in specs[1] if c not in "OI"])
    for spec, others in zip(specs, ("NC", "OI", "NC"), strict=True):
        letters = others + space
        if sorted(spec) != sorted(letters) or len(spec) != rank:
            raise _wrong(dimension_numbers)
        found.append(tuple([spec.index(c) for c in letters]))
    return ConvDimensionNumbers(*found)


def _wrong(given: Any) -> ValueError:
    return ValueError(
        f"dimension_numbers {given!r} are no three names such as ('NHWC', 'HWIO', "
        f"'NHWC'), with the same spatial letters in each{at(user_source())}"
    )


def reaches(lengths: Sequence[int], dilation: Sequence[int]) -> Ints:
    """Lengths with gaps between elements."""
    return tuple([dilated(n, d) for n, d in zip(lengths, dilation, strict=True)])

"""Convolutions of images and volumes as data, whatever device runs them and however.

With channels last and ``P`` the zero-padded, dilated input::

    out[b, y, x, g*F + f]  =  sum over dy, dx, c of
        P[b, y*sy + dy*ry - py, x*sx + dx*rx - px, g*C + c] * w[dy, dx, c, g*F + f]

The derivative by the input is a convolution again, of the dilated output with the
flipped filter. That by the filter is described by the same record, with the strides of
the result as its filter's and those of the derivative by the output as its output's::

    dw[dy, dx, c, g*F + f]  =  sum over b, y, x of
        P[b, y*sy + dy*ry - py, x*sx + dx*rx - px, g*C + c] * dout[b, y, x, g*F + f]

A volume is images, one behind the other: image b of the result is number z of the
volume that it belongs to, and meets, with the rows of taps from dz*Ty on (of Ty for
each dz), image z*sz + dz*rz - pz of that volume of the input.

Kernels may leave products with the zeros beside the input out, or not.
"""

from __future__ import annotations

import numpy as np

from treadle.dims import hint
from treadle.kernels.contract import Strides, is_half
from treadle.records import record


@record(frozen=True)
class Axis:
    """One spatial dimension.

    size, out, taps: of the input, the output and the filter. padding: zeros before the
    first element (negative: elements left out). in_dilation, dilation: steps between
    elements of the input and of the filter.
    """

    size: int
    out: int
    taps: int
    stride: int = 1
    padding: int = 0
    in_dilation: int = 1
    dilation: int = 1

    @property
    def padded(self) -> int:
        """Positions that the filter visits."""
        return self.visited(self.out)

    def visited(self, out: int) -> int:
        """Positions that it visits for so many outputs."""
        return (out - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def extent(self) -> int:
        """Size of the dilated input."""
        return (self.size - 1) * self.in_dilation + 1


FLAT = Axis(1, 1, 1)
"""That along which images are no volumes."""


@record(frozen=True)
class ConvSpec:
    """One convolution. Strides are in elements; see above for their meaning.

    images: of the output. z: its sizes are numbers of images; it has no gaps.
    channels, features: of input and output, all groups together.
    input: strides b, y, x, c. filter: strides dz*Ty + dy, dx, c, f (negative ones flip
    it).
    output: strides b, y, x, 1. Depthwise ones, and gradients by the filter, need lines
    that follow each other.
    fused_input: the input comes from a producer (see `Contraction`).
    dtype: of the result. operands: of what is multiplied; None: as the result. Half
    floats are multiplied as that, and summed in float32.
    exact: whether kernels may not take fewer products than the sum has.
    """

    dtype: np.dtype
    images: int
    channels: int
    features: int
    y: Axis
    x: Axis
    input: Strides
    filter: Strides
    output: Strides
    groups: int = 1
    fused_input: bool = False
    operands: np.dtype | None = None
    z: Axis = FLAT
    exact: bool = False

    def __post_init__(self) -> None:
        if self.channels % self.groups or self.features % self.groups:
            raise ValueError(
                f"{self.groups} groups need channels and features that they divide, "
                f"not {self.channels} and {self.features}"
            )
        if self.output.column != 1 and self.features > 1:
            raise ValueError(
                f"the output needs feature stride 1, not {self.output.column}"
            )

    @property
    def depthwise(self) -> bool:
        """Whether every channel is a group, and gives one feature. For sizes that are
        not fixed whoever made it has asked."""
        channels = hint(self.channels)
        return hint(self.groups) == channels == hint(self.features) != 1

    @property
    def dtypes(self) -> tuple[np.dtype, np.dtype, np.dtype]:
        """Of both operands, and of the result."""
        operands = self.operands or self.dtype
        return operands, operands, self.dtype

    @property
    def half(self) -> np.dtype | None:
        """The half float that is multiplied, if it is one."""
        return next((d for d in self.dtypes if is_half(d)), None)

    @property
    def sums(self) -> np.dtype:
        """What is summed in."""
        return self.dtype if self.half is None else np.dtype(np.float32)

    @property
    def images_in(self) -> int:
        """Images of the input."""
        return self.images // self.z.out * self.z.size

    @property
    def k(self) -> int:
        taps = self.z.taps * self.y.taps * self.x.taps
        return taps * self.channels // self.groups

    @property
    def flops(self) -> int:
        return 2 * self.images * self.y.out * self.x.out * self.k * self.features

    @property
    def sizes(self) -> str:
        """The sizes for people: images x pixels, taps x channels, features."""
        rows = f"{self.z.taps}x{self.y.taps}" if self.z.taps != 1 else self.y.taps
        taps = f"{rows}x{self.x.taps}x{self.channels // self.groups}"
        return f"({self.images} x {self.y.out}x{self.x.out}, {taps}, {self.features})"

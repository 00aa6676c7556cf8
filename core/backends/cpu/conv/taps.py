"""Which taps of a convolution's filter meet the input."""

from __future__ import annotations

from treadle.backends.cpu.conv.arguments import ConvWord
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.parts import Args, maximum, minimum

Z = (
    *(ConvWord.TAPS_Z, ConvWord.STRIDE_Z, ConvWord.DILATION_Z, ConvWord.PAD_Z),
    ConvWord.IN_Z,
)
Y = (
    *(ConvWord.TAPS_Y, ConvWord.STRIDE_Y, ConvWord.DILATION_Y, ConvWord.PAD_Y),
    ConvWord.IN_Y,
)
X = (
    *(ConvWord.TAPS_X, ConvWord.STRIDE_X, ConvWord.DILATION_X, ConvWord.PAD_X),
    ConvWord.IN_X,
)


def taps_inside(
    b: Builder, args: Args, out: str, axis: tuple[ConvWord, ...]
) -> tuple[str, str]:
    """The first tap of an axis that meets the input at an output, and the one after the
    last: at least one, which finds zeros if none does.

    Of 8 rows and 3 taps, every twelfth product would be with zeros.
    """
    taps, stride, step, pad, size = (args(word) for word in axis)
    before = b.op(f"sub i64 {pad}, {b.op(f'mul i64 {out}, {stride}')}")
    last = b.op(f"sub i64 {size}, 1")
    if axis is Y:
        last = b.op(f"mul i64 {last}, {args(ConvWord.IN_DILATION_Y)}")
    first = b.op(f"add i64 {before}, {b.op(f'sub i64 {step}, 1')}")
    first = b.op(f"udiv i64 {maximum(b, first, '0')}, {step}")
    first = minimum(b, first, b.op(f"sub i64 {taps}, 1"))
    left = maximum(b, b.op(f"add i64 {before}, {last}"), "0")
    stop = b.op(f"add i64 {b.op(f'udiv i64 {left}, {step}')}, 1")
    return first, maximum(b, minimum(b, stop, taps), b.op(f"add i64 {first}, 1"))


def image_met(b: Builder, args: Args, image: str, dz: str) -> tuple[str, str]:
    """Which image of the input a tap along z meets, for an image of the output; and
    whether there is one."""
    out, size = args(ConvWord.OUT_Z), args(ConvWord.IN_Z)
    volume, z = (b.op(f"{op} i64 {image}, {out}") for op in ("udiv", "urem"))
    at = b.op(f"mul i64 {z}, {args(ConvWord.STRIDE_Z)}")
    at = b.op(f"add i64 {at}, {b.op(f'mul i64 {dz}, {args(ConvWord.DILATION_Z)}')}")
    at = b.op(f"sub i64 {at}, {args(ConvWord.PAD_Z)}")
    inside = b.op(f"icmp ult i64 {at}, {size}")
    return b.op(f"add i64 {b.op(f'mul i64 {volume}, {size}')}, {at}"), inside

"""What instructions for pairs of bfloat16 do, in IR: their model, lane by lane.

To all of them subnormal numbers are zeros.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.half import packed
from treadle.backends.cpu.emit.half import rounded as nearest
from treadle.backends.cpu.emit.lanes import Value
from treadle.dtypes import bfloat16


def rounded_by_instruction(b: Builder, floats: str, lanes: int = 32) -> str:
    """Floats as the bits of bfloat16, by AVX512-BF16."""
    short = b.op(f"fptrunc <{lanes} x float> {floats} to <{lanes} x bfloat>")
    return b.op(f"bitcast <{lanes} x bfloat> {short} to <{lanes} x i16>")


def rounded_by_model(b: Builder, floats: str, lanes: int = 32) -> str:
    x = Value(b, flushed(b, floats, lanes), "float", lanes)
    return packed(nearest(x, bfloat16), bfloat16).text


def halves(b: Builder, pairs: str, lanes: int = 16) -> list[str]:
    """The first and the second bfloat16 of pairs, as floats."""
    floats, words = f"<{lanes} x float>", f"<{lanes} x i32>"
    sixteen = ", ".join(["i32 16"] * lanes)
    upper = ", ".join(["i32 -65536"] * lanes)
    bits = [
        b.op(f"shl {words} {pairs}, <{sixteen}>"),
        b.op(f"and {words} {pairs}, <{upper}>"),
    ]
    return [
        flushed(b, b.op(f"bitcast {words} {word} to {floats}"), lanes) for word in bits
    ]


def widened(b: Builder, shorts: str, lanes: int) -> str:
    """The bits of bfloat16 as floats: a vector, or one number."""
    given, words, floats = (
        kind if lanes == 1 else f"<{lanes} x {kind}>"
        for kind in ("i16", "i32", "float")
    )
    sixteen = "16" if lanes == 1 else f"<{', '.join(['i32 16'] * lanes)}>"
    word = b.op(f"zext {given} {shorts} to {words}")
    word = b.op(f"shl {words} {word}, {sixteen}")
    return b.op(f"bitcast {words} {word} to {floats}")


def flushed(b: Builder, x: str, lanes: int = 16) -> str:
    """Zeros, of the same sign, in the place of subnormal numbers."""
    floats, suffix = f"<{lanes} x float>", f"v{lanes}f32"
    b.declare(f"{floats} @llvm.fabs.{suffix}({floats})")
    b.declare(f"{floats} @llvm.copysign.{suffix}({floats}, {floats})")
    size = b.op(f"call {floats} @llvm.fabs.{suffix}({floats} {x})")
    smallest = ", ".join(["float 0x3810000000000000"] * lanes)
    tiny = b.op(f"fcmp olt {floats} {size}, <{smallest}>")
    words = f"{floats} zeroinitializer, {floats} {x}"
    zero = b.op(f"call {floats} @llvm.copysign.{suffix}({words})")
    return b.op(f"select <{lanes} x i1> {tiny}, {floats} {zero}, {floats} {x}")


def splat_word(b: Builder, address: str) -> str:
    """A pair in memory, 16 times."""
    words = "<16 x i32>"
    pair = b.op(f"load i32, ptr {address}, align 4")
    first = b.op(f"insertelement {words} poison, i32 {pair}, i64 0")
    return b.op(
        f"shufflevector {words} {first}, {words} poison, {words} zeroinitializer"
    )


def added_by_model(
    b: Builder, total: str, x: Sequence[str], y: Sequence[str], lanes: int = 16
) -> str:
    """Sums that VDPBF16PS adds the products of pairs to, given as `halves`: of the
    second ones first, each by a fused multiplication that rounds."""
    floats, suffix = f"<{lanes} x float>", f"v{lanes}f32"
    b.declare(f"{floats} @llvm.fma.{suffix}({floats}, {floats}, {floats})")
    total = flushed(b, total, lanes)
    for i in (1, 0):
        values = f"{floats} {x[i]}, {floats} {y[i]}, {floats} {total}"
        found = b.op(f"call {floats} @llvm.fma.{suffix}({values})")
        total = flushed(b, found, lanes)
    return total


def added_by_instructions(
    b: Builder,
    sums: Sequence[Sequence[str]],
    lines: Sequence[str],
    steps: Sequence[Sequence[str]],
    adds: str,
) -> list[list[str]]:
    """Rows of vectors of sums, to which an instruction adds the products of words in
    memory, of which each row has a line, and of vectors of words, as many as sums:
    those of each step with the next word of a line.

    As one piece of assembly, of which LLVM takes longer for each piece than for each
    instruction, and splits words in memory from what multiplies by them.
    """
    floats, words = "<16 x float>", "<16 x i32>"
    flat = [x for row in sums for x in row]
    width, count = len(sums[0]), len(flat)
    first = 2 * count + len(lines)
    text = [
        f"{adds} {4 * k}(${2 * count + i}){{1to16}}, ${first + k * width + j}, "
        f"${i * width + j}"
        for k, vectors in enumerate(steps)
        for i in range(len(lines))
        for j in range(len(vectors))
    ]
    given = [x for vectors in steps for x in vectors]
    constraints = [
        *(["=&v"] * count),
        *(str(i) for i in range(count)),
        *(["r"] * len(lines)),
        *(["v"] * len(given)),
        "~{memory}",
    ]
    values = [
        *(f"{floats} {x}" for x in flat),
        *(f"ptr {line}" for line in lines),
        *(f"{words} {x}" for x in given),
    ]
    kinds = f"{{ {', '.join([floats] * count)} }}" if count > 1 else floats
    joined = "\\0A".join(text)
    found = b.op(
        f'call {kinds} asm "{joined}", "{",".join(constraints)}"({", ".join(values)})'
    )
    if count == 1:
        return [[found]]
    new = [b.op(f"extractvalue {kinds} {found}, {i}") for i in range(count)]
    return [new[i : i + width] for i in range(0, count, width)]

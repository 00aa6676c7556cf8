"""What a filter meets of images, packed for a unit that multiplies halves.

A convolution is a product of which A isn't in memory: its rows are pixels of the
result, and along k lies what the taps meet there. That is made of *segments*, which are
contiguous in the image: the channels of a tap, or all of a row of taps, where channels
are few. In the packed blocks (`treadle.backends.cpu.bfloat.pack`) each segment begins a
block of k. For the gradient by the filter rows are the taps' channels, without gaps,
and pixels lie along k.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from treadle.backends.cpu.bfloat.kernel import GROUP
from treadle.backends.cpu.bfloat.unit import (
    BLOCK_BYTES,
    LINE_BYTES,
    SIDE,
    Operand,
    line_mask,
    skipped,
)
from treadle.backends.cpu.conv.arguments import PatchWord
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import ProductWord, Word
from treadle.backends.cpu.gemm.parts import Args, maximum, minimum
from treadle.backends.cpu.gemm.sweep import first_row
from treadle.backends.cpu.run.divided import COLD
from treadle.records import record

_LANES = 8
_VECTOR = f"<{_LANES} x i64>"
_PLACES = f"[{4 * SIDE} x i64]"
"""Of pixels of the result: the addresses of what their first taps meet, and where that
is in the volume: all z, all y, all x. It may lie outside."""

MOST = 1 << 13
"""As many elements a segment of one tap may have: there are so many zeros."""

_AXES = "Z", "Y", "X"
_HALVES = f"<{SIDE} x i16>"
_WORD_BYTES = LINE_BYTES // SIDE
_K_BYTES = BLOCK_BYTES // SIDE
"""Of a packed block, for each k."""


def emit_patches(b: Builder, a: Operand) -> None:
    """Defines ``pack_group``, which packs rows of pixels."""
    _emit_places(b)
    with b.function(
        "define internal void @patches(ptr %args, i64 %row, i64 %count, ptr %to)"
    ):
        args = Args(b)
        places = b.op(f"alloca {_PLACES}, align 64")
        met = b.op(f"alloca [{SIDE} x i64], align 64")
        b(f"call void @places(ptr %args, i64 %row, i64 %count, ptr {places})")
        run = args(PatchWord.RUN)
        depth = b.op(f"and i64 {b.op(f'add i64 {run}, {SIDE - 1}')}, {-SIDE}")
        many = _of_several_taps(b, args)
        with b.loop("0", args(PatchWord.SEGMENTS)) as number:
            segment = _segment(b, args, number)
            start = b.op(f"mul i64 {number}, {depth}")
            target = skipped(b, "%to", start, _K_BYTES)
            with b.when(many), b.loop("0", "%count") as i:
                line = skipped(b, target, i, LINE_BYTES)
                _copy_some(b, a, segment, _place(b, places, i), line, depth)
            with b.when(b.op(f"xor i1 {many}, true")):
                _reach(b, segment, places, met)
                whole = b.op(f"and i64 {run}, {-SIDE}")
                for left, first, stop in ((False, "0", whole), (True, whole, run)):
                    with b.loop(first, stop, str(SIDE)) as j:
                        rest = b.op(f"sub i64 {run}, {j}") if left else None
                        to = skipped(b, target, j, _K_BYTES)
                        _copy_lines(b, a, (met, "%count"), j, rest, to)
        b("ret void")
    with _packed_groups(b) as (args, packed), b.loop("%t0", "%t1") as t:
        row, end, target = _tile(b, args, packed, t)
        count = b.op(f"sub i64 {end}, {row}")
        b(f"call void @patches(ptr %args, i64 {row}, i64 {count}, ptr {target})")


def emit_patches_turned(b: Builder, a: Operand) -> None:
    """Defines ``pack_group``, which packs rows of the taps' channels."""
    _emit_places(b)
    with _packed_groups(b) as (args, packed):
        places = b.op(f"alloca {_PLACES}, align 64")
        met = b.op(f"alloca [{SIDE} x i64], align 64")
        lines = b.op(f"alloca [{SIDE * LINE_BYTES} x i8], align 64")
        run, many = args(PatchWord.RUN), _of_several_taps(b, args)
        with b.loop("%k0", "%k1", str(SIDE)) as k:
            count = minimum(b, str(SIDE), b.op(f"sub i64 %k1, {k}"))
            b(f"call void @places(ptr %args, i64 {k}, i64 {count}, ptr {places})")
            with b.loop(count, str(SIDE)) as i:
                line = skipped(b, lines, i, LINE_BYTES)
                b(f"store {_HALVES} zeroinitializer, ptr {line}, align 64")
            at_k = b.op(f"mul i64 {b.op(f'sub i64 {k}, %k0')}, {_K_BYTES}")
            with b.loop("%t0", "%t1") as t:
                row, end, target = _tile(b, args, packed, t)
                first = b.op(f"udiv i64 {row}, {run}")
                last = b.op(f"udiv i64 {b.op(f'sub i64 {end}, 1')}, {run}")
                # A tap's channels may fill the lines.
                start = b.op(f"sub i64 {b.op(f'mul i64 {first}, {run}')}, {row}")
                over = b.op(f"add i64 {start}, {run}")
                full = b.op(f"icmp sge i64 {over}, {SIDE}")
                full = b.op(f"and i1 {full}, {b.op(f'xor i1 {many}, true')}")
                with b.when(full):
                    _reach(b, _segment(b, args, first), places, met)
                    skip = b.op(f"sub i64 0, {start}")
                    _copy_lines(b, a, (met, count), skip, None, lines)
                stop = b.op(f"add i64 {last}, 1")
                stop = b.op(f"select i1 {full}, i64 {first}, i64 {stop}")
                with b.loop(first, stop) as number:
                    begin = b.op(f"mul i64 {number}, {run}")
                    begin = b.op(f"sub i64 {begin}, {row}")
                    fresh = b.op(f"icmp eq i64 {number}, {first}")
                    segment = _segment(b, args, number)
                    _gather(b, segment, begin, (places, count), lines, fresh)
                to = b.op(f"getelementptr i8, ptr {target}, i64 {at_k}")
                rows = b.op(f"sub i64 {end}, {row}")
                b(
                    f"call void @pack_rows(ptr {lines}, i64 1, i64 {SIDE}, "
                    f"i64 {rows}, i64 {SIDE}, ptr {to}, i64 0)"
                )


@contextmanager
def _packed_groups(b: Builder) -> Iterator[tuple[Args, str]]:
    """``pack_group``, with where packed rows are."""
    with b.function(f"define internal void @pack_group({GROUP})"):
        args = Args(b)
        yield args, skipped(b, "%scratch", args(ProductWord.A_OFFSET), 1)
        b("ret void")


def _tile(b: Builder, args: Args, packed: str, tile: str) -> tuple[str, str, str]:
    """The first row of a tile, the one after its last, and where it is packed."""
    row = first_row(b, args, ProductWord.TILE_LOW, tile)
    end = first_row(b, args, ProductWord.TILE_LOW, b.op(f"add i64 {tile}, 1"))
    number = b.op(f"sub i64 {tile}, %t0")
    return row, end, skipped(b, packed, number, args(ProductWord.A_STRIDE))


def _emit_places(b: Builder) -> None:
    """``places``: those of some pixels of a line, from a row on."""
    with b.function(
        "define internal void @places(ptr %args, i64 %row, i64 %count, ptr %places)"
    ):
        args = Args(b)
        out = [args(PatchWord[f"OUT_{axis}"]) for axis in _AXES]
        stride = [args(PatchWord[f"STRIDE_{axis}"]) for axis in _AXES]
        pad = [args(PatchWord[f"PAD_{axis}"]) for axis in _AXES]
        steps, images_in = [args(Word.A + i) for i in (1, 2, 3)], args(PatchWord.IN_Z)
        skip = b.op(f"mul i64 {args(PatchWord.GROUP)}, {args(PatchWord.CHANNELS)}")
        first = skipped(b, args(Word.A, "ptr"), skip, _WORD_BYTES)
        rest = b.op(f"mul i64 {args(PatchWord.LINE)}, {out[2]}")
        rest = b.op(f"add i64 {rest}, %row")
        begins = []
        for size in (out[2], out[1]):
            begins.append(b.op(f"urem i64 {rest}, {size}"))
            rest = b.op(f"udiv i64 {rest}, {size}")
        image = b.op(f"add i64 {rest}, {args(PatchWord.IMAGE)}")
        begins += [b.op(f"{op} i64 {image}, {out[0]}") for op in ("urem", "udiv")]
        carried = [("i64", value) for value in begins]
        with b.carrying("0", "%count", "1", carried) as turn:
            *across, volume = turn.values
            at = [
                b.op(f"sub i64 {b.op(f'mul i64 {value}, {step}')}, {before}")
                for value, step, before in zip(
                    reversed(across), stride, pad, strict=True
                )
            ]
            begin = b.op(f"mul i64 {volume}, {images_in}")
            address = first
            for value, step in zip(
                (b.op(f"add i64 {begin}, {at[0]}"), *at[1:]), steps, strict=True
            ):
                elements = b.op(f"mul i64 {value}, {step}")
                address = skipped(b, address, elements, _WORD_BYTES)
            for i, value in enumerate((address, *at)):
                kind = "i64" if i else "ptr"
                b(f"store {kind} {value}, ptr {_listed(b, '%places', turn.index, i)}")
            over = "1"
            for value, size in zip(across, reversed(out), strict=True):
                following = b.op(f"add i64 {value}, {over}")
                past = b.op(f"icmp eq i64 {following}, {size}")
                turn.next.append(b.op(f"select i1 {past}, i64 0, i64 {following}"))
                over = b.op(f"zext i1 {past} to i64")
            turn.next.append(b.op(f"add i64 {volume}, {over}"))
        b("ret void")


def _listed(b: Builder, places: str, index: str, which: int) -> str:
    """Where the number of a pixel is: an address, z, y or x."""
    at = b.op(f"add i64 {index}, {which * SIDE}")
    return b.op(f"getelementptr i64, ptr {places}, i64 {at}")


@record(frozen=True)
class _Segment:
    """One of a filter.

    skip: bytes from where the first tap of a pixel is to where this one is. steps: how
    far that is along z, y and x. sizes: of the input. channels: of a tap. taps: of a
    row. run: its elements. many: whether it has all taps of a row.
    """

    skip: str
    steps: tuple[str, ...]
    sizes: tuple[str, ...]
    channels: str
    taps: str
    run: str
    many: str


def _of_several_taps(b: Builder, args: Args) -> str:
    return b.op(f"icmp ne i64 {args(PatchWord.RUN)}, {args(PatchWord.CHANNELS)}")


def _segment(b: Builder, args: Args, number: str) -> _Segment:
    across = args(PatchWord.ACROSS)
    dx, row = (b.op(f"{op} i64 {number}, {across}") for op in ("urem", "udiv"))
    taps_y = args(PatchWord.TAPS_Y)
    dy, dz = (b.op(f"{op} i64 {row}, {taps_y}") for op in ("urem", "udiv"))
    steps, skip = [], "0"
    for i, (axis, tap) in enumerate(zip(_AXES, (dz, dy, dx), strict=True)):
        steps.append(b.op(f"mul i64 {tap}, {args(PatchWord[f'DILATION_{axis}'])}"))
        elements = b.op(f"mul i64 {steps[-1]}, {args(Word.A + 1 + i)}")
        skip = b.op(f"add i64 {skip}, {b.op(f'mul i64 {elements}, {_WORD_BYTES}')}")
    return _Segment(
        skip,
        tuple(steps),
        tuple([args(PatchWord[f"IN_{axis}"]) for axis in _AXES]),
        args(PatchWord.CHANNELS),
        args(PatchWord.TAPS_X),
        args(PatchWord.RUN),
        _of_several_taps(b, args),
    )


@record(frozen=True)
class _Met:
    """What a segment meets at a pixel: its address, whether rows and images are inside,
    and where its first tap is along x."""

    address: str
    inside: str
    x: str


def _met(b: Builder, segment: _Segment, place: list[str]) -> _Met:
    address, *at = place
    z, y, x = [
        b.op(f"add i64 {value}, {step}")
        for value, step in zip(at, segment.steps, strict=True)
    ]
    inside = [
        b.op(f"icmp ult i64 {value}, {size}")
        for value, size in zip((z, y), segment.sizes, strict=False)
    ]
    address = b.op(f"getelementptr i8, ptr {address}, i64 {segment.skip}")
    return _Met(address, b.op(f"and i1 {inside[0]}, {inside[1]}"), x)


def _place(b: Builder, places: str, index: str) -> list[str]:
    """The numbers of a pixel."""
    kinds = "ptr", "i64", "i64", "i64"
    return [
        b.op(f"load {kind}, ptr {_listed(b, places, index, i)}")
        for i, kind in enumerate(kinds)
    ]


def _reach(b: Builder, segment: _Segment, places: str, to: str) -> None:
    """Addresses of what 32 pixels meet of a segment of one tap; of zeros, where that is
    outside."""
    nothing = f"@nothing = internal constant [{2 * MOST} x i8] zeroinitializer"
    b.library["nothing"] = nothing
    zeros = _splat(b, b.op("ptrtoint ptr @nothing to i64"))
    skip = _splat(b, segment.skip)
    limits = [
        (_splat(b, step), _splat(b, size))
        for step, size in zip(segment.steps, segment.sizes, strict=True)
    ]
    for first in range(0, SIDE, _LANES):

        def some(which: int, first: int = first) -> str:
            place = _listed(b, places, str(first), which)
            return b.op(f"load {_VECTOR}, ptr {place}, align 64")

        inside = ""
        for which, (step, size) in enumerate(limits, start=1):
            at = b.op(f"add {_VECTOR} {some(which)}, {step}")
            within = b.op(f"icmp ult {_VECTOR} {at}, {size}")
            inside = (
                b.op(f"and <{_LANES} x i1> {inside}, {within}") if inside else within
            )
        address = b.op(f"add {_VECTOR} {some(0)}, {skip}")
        met = b.op(
            f"select <{_LANES} x i1> {inside}, {_VECTOR} {address}, {_VECTOR} {zeros}"
        )
        b(f"store {_VECTOR} {met}, ptr {_listed(b, to, str(first), 0)}, align 64")


def _splat(b: Builder, value: str) -> str:
    one = b.op(f"insertelement {_VECTOR} poison, i64 {value}, i64 0")
    return b.op(
        f"shufflevector {_VECTOR} {one}, {_VECTOR} poison, "
        f"<{_LANES} x i32> zeroinitializer"
    )


def _copy_lines(
    b: Builder,
    a: Operand,
    met: tuple[str, str],
    skip: str,
    left: str | None,
    to: str,
) -> None:
    """A line of each of some addresses, `skip` elements behind it: 32 elements, or
    those that are `left`, and zeros."""
    addresses, count = met
    with b.loop("0", count) as i:
        address = b.op(f"load ptr, ptr {_listed(b, addresses, i, 0)}")
        value = a.read(b, a.at(b, address, skip), left, SIDE)
        b(f"store {_HALVES} {value}, ptr {skipped(b, to, i, LINE_BYTES)}, align 64")


def _range(b: Builder, segment: _Segment, met: _Met) -> tuple[str, str]:
    """The first element of a segment that is inside, and the one after the last."""
    x, size = met.x, segment.sizes[2]
    first = maximum(b, b.op(f"sub i64 0, {x}"), "0")
    stop = minimum(b, b.op(f"sub i64 {size}, {x}"), segment.taps)
    first, stop = (b.op(f"mul i64 {n}, {segment.channels}") for n in (first, stop))
    within = b.op(f"icmp ult i64 {x}, {size}")
    whole = b.op(f"select i1 {within}, i64 {segment.run}, i64 0")
    first = b.op(f"select i1 {segment.many}, i64 {first}, i64 0")
    stop = b.op(f"select i1 {segment.many}, i64 {stop}, i64 {whole}")
    return first, b.op(f"select i1 {met.inside}, i64 {stop}, i64 0")


def _between(b: Builder, address: str, first: str, stop: str) -> str:
    """32 elements, zeros before one and from another on, which are not read."""
    mask = f"<{SIDE} x i1>"
    ones = f"<{', '.join(['i1 true'] * SIDE)}>"
    later = b.op(f"xor {mask} {line_mask(b, first)}, {ones}")
    inside = b.op(f"and {mask} {line_mask(b, stop)}, {later}")
    name = "@llvm.masked.load.v32i16.p0"
    b.declare(f"{_HALVES} {name}(ptr, {mask}, {_HALVES})")
    return b.op(
        f"call {_HALVES} {name}(ptr align 2 {address}, {mask} {inside}, "
        f"{_HALVES} zeroinitializer)"
    )


def _copy_some(
    b: Builder, a: Operand, segment: _Segment, place: list[str], line: str, depth: str
) -> None:
    """Copies a segment of several taps, of which some may be outside."""
    met = _met(b, segment, place)
    first, stop = _range(b, segment, met)
    with b.loop("0", depth, str(SIDE)) as j:
        value = _between(
            b,
            a.at(b, met.address, j),
            b.op(f"sub i64 {first}, {j}"),
            b.op(f"sub i64 {stop}, {j}"),
        )
        to = skipped(b, line, j, _K_BYTES)
        b(f"store {_HALVES} {value}, ptr {to}, align 64")


def _gather(
    b: Builder,
    segment: _Segment,
    start: str,
    places: tuple[str, str],
    lines: str,
    fresh: str,
) -> None:
    """Lines of what pixels meet of a segment, whose first element belongs at a place of
    a line that may lie before it."""
    listed, count = places
    with b.loop("0", count) as i:
        met = _met(b, segment, _place(b, listed, i))
        first, stop = _range(b, segment, met)
        first, stop = (b.op(f"add i64 {n}, {start}") for n in (first, stop))
        back = b.op(f"mul i64 {start}, {-_WORD_BYTES}")
        address = b.op(f"getelementptr i8, ptr {met.address}, i64 {back}")
        value = _between(b, address, first, stop)
        line = skipped(b, lines, i, LINE_BYTES)
        old = b.op(f"load {_HALVES}, ptr {line}, align 64")
        old = b.op(f"select i1 {fresh}, {_HALVES} zeroinitializer, {_HALVES} {old}")
        both = b.op(f"or {_HALVES} {old}, {value}")
        b(f"store {_HALVES} {both}, ptr {line}, align 64")


def emit_filter_panels(b: Builder) -> None:
    """Defines ``pack_panels``, which packs some features of the filter, segment by
    segment."""
    with b.function(
        "define internal void @pack_panels(ptr %args, i64 %b0, i64 %b1, i64 %n0, "
        "i64 %n1, i64 %k0, i64 %k1, ptr %to) " + COLD
    ):
        args = Args(b)
        stride, run = args(ProductWord.PANEL_STRIDE), args(PatchWord.RUN)
        depth = b.op(f"and i64 {b.op(f'add i64 {run}, {SIDE - 1}')}, {-SIDE}")
        rows, taps, channels, features = (args(Word.B + i) for i in range(1, 5))
        group = b.op(f"mul i64 {args(PatchWord.GROUP)}, {args(ProductWord.N)}")
        contiguous = b.op(f"icmp eq i64 {features}, 1")
        width = b.op(f"select i1 {contiguous}, i64 {4 * SIDE}, i64 {SIDE}")
        with b.loop("%n0", "%n1", width) as n:
            count = minimum(b, b.op(f"sub i64 %n1, {n}"), width)
            panel = b.op(f"udiv i64 {b.op(f'sub i64 {n}, %n0')}, {SIDE}")
            target = skipped(b, "%to", panel, stride)
            feature = b.op(f"mul i64 {b.op(f'add i64 {n}, {group}')}, {features}")
            with b.loop("0", args(PatchWord.SEGMENTS)) as segment:
                across = args(PatchWord.ACROSS)
                at = feature
                for op, step in (("udiv", rows), ("urem", taps)):
                    index = b.op(f"{op} i64 {segment}, {across}")
                    at = b.op(f"add i64 {at}, {b.op(f'mul i64 {index}, {step}')}")
                source = skipped(b, args(Word.B, "ptr"), at, _WORD_BYTES)
                start = b.op(f"mul i64 {segment}, {depth}")
                b(
                    f"call void @pack_columns(ptr {source}, i64 {features}, "
                    f"i64 {channels}, i64 {count}, i64 {run}, "
                    f"ptr {skipped(b, target, start, _K_BYTES)}, i64 {stride})"
                )
        b("ret void")

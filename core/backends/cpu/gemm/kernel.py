"""The matrix product kernel: blocks, packing and hooks around the micro-kernel.

It computes a `Contraction` as `schedule` says. A task owns some batch elements, some
row tiles and some column panels, and packs what it needs for itself, so that tasks
never wait for each other::

    for each batch element
        for each group of row tiles whose packed part of A fits the L2 cache, or all
            for each piece of k
                pack the group's part of A (unless it is read in place)
                for each chunk of columns
                    pack B as panels as wide as a tile (unless it is read in place)
                    for each block of a few row tiles
                        for each panel, for each row tile: micro-kernel
                        after the last piece of k: epilogue

Where batch elements share B, panels that are packed meet all of them::

    for each piece of k
        for each chunk of columns
            pack B
            for each batch element
                for each group of row tiles: as above, for these columns

Packed panels stay in the L2 cache. Blocks are low, so that C is written by whole rows:
panel by panel it would be written in strips, each of which touches every page of C.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from functools import partial

import numpy as np

from treadle.backends.cpu import families
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import (
    BUILT_IN,
    IN_PLACE,
    Kind,
    ProductWord,
    Tile,
    Word,
)
from treadle.backends.cpu.gemm.few_rows import emit_few_rows
from treadle.backends.cpu.gemm.pack import emit_pack, emit_pack_panels
from treadle.backends.cpu.gemm.pack_tiles import emit_pack_tiles
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    call_pack,
    emit_dispatch,
    minimum,
    operand_at,
    own_scratch,
    owned_by_task,
    pieces,
)
from treadle.backends.cpu.gemm.streamed import emit_streamed
from treadle.backends.cpu.gemm.sweep import (
    ONE_SEGMENT,
    Steps,
    Sweep,
    emit_sweep,
    emit_tiles,
    first_row,
    needed,
)
from treadle.backends.cpu.gemm.tile import Machine, wide_rows
from treadle.backends.cpu.gemm.turned import emit_turned_rows
from treadle.backends.cpu.run.divided import COLD
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import Target, host, llvm

_SCALARS = {
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
    np.dtype(np.int32): "i32",
    np.dtype(np.uint32): "i32",
}
"""What elements are to the kernels: unsigned numbers have those of signed ones."""


def tile(dtype: np.dtype, target: Target | None = None) -> Tile:
    """The register block that this machine's kernels use."""
    target = target or host()
    lanes = target.vector_bytes // dtype.itemsize
    if target.arch == "aarch64":
        return Tile(lanes, 13)  # with 14, LLVM keeps one of the sums in memory
    return Tile(lanes, 14 if target.vector_bytes == 64 else 6)


def machine_for(dtype: np.dtype, target: Target) -> Machine:
    return Machine(
        scalar=_SCALARS[dtype],
        tile=tile(dtype, target),
        assembly=_assembly(target),
    )


def _assembly(target: Target) -> str:
    """Which assembly micro-kernel this machine can run."""
    if target.arch == "x86_64":
        if target.vector_bytes == 64 and {"avx512bw", "bmi2"} <= target.flags:
            return "avx512"
        if target.vector_bytes == 32 and {"avx2", "fma"} <= target.flags:
            return "avx2"
    return ""


class Part(Enum):
    """Which kinds of matrix products a module has: the less, the sooner compiled."""

    PLAIN = "contract"
    FEW = "contract_few"  # those of half floats that read B once: `FEW_KINDS`
    TURNED = "contract_turned"  # of others, `Kind.TURNED`
    STREAMED = "contract_streamed"  # and `Kind.STREAMED`
    ALL = "contract_all"  # what a product of open sizes may need: calls the others


class Images(Enum):
    """Which kinds of convolutions a module has. It takes two to four times as long to
    compile as one of products, and most programs have none."""

    FORWARD = "convolve"
    GRADIENTS = "convolve_gradients"  # by the filter, besides
    ALL = "convolve_all"  # and what is a product of lines


PLAIN_KINDS = Kind.PRODUCT, Kind.PANELS, Kind.FEW_ROWS
FEW_PARTS = {Kind.TURNED: Part.TURNED, Kind.STREAMED: Part.STREAMED}
"""The modules of `FEW_KINDS`."""

_LARGER: dict[Part | Images, tuple[Images, ...]] = {
    Images.FORWARD: (Images.ALL, Images.GRADIENTS),
    Images.GRADIENTS: (Images.ALL,),
}


@functools.cache
def source(dtype: np.dtype, part: Part | Images = Part.PLAIN) -> Source:
    """The kernel of products, or of convolutions, for one dtype, to be loaded: of
    floats, and of integers of 32 bits, which have one sign or the other for their
    readers alone."""
    if dtype not in _SCALARS:
        raise NotImplementedError(
            f"no matrix kernel for {dtype}: convert the operands to float32 first"
        )
    if isinstance(part, Images):
        families.load("conv_emitted")
    scalar = _SCALARS[dtype]
    key = f"{part.value}/{scalar}"
    if part is Part.ALL:
        parts = dict.fromkeys(PLAIN_KINDS, Part.PLAIN) | FEW_PARTS
        others = tuple([source(dtype, p) for p in dict.fromkeys(parts.values())])
        return Source(key, part.value, partial(emit_either, parts), needs=others)

    def machine() -> Machine:
        return replace(machine_for(dtype, host()), apart=True)

    def emit() -> str:
        llvm().initialize_native_asmparser()  # for the assembly in the kernels
        return emit_module(machine(), part)

    larger = tuple([source(dtype, p) for p in _LARGER.get(part, ())])
    needs = () if part in FEW_PARTS.values() else needed(machine)
    return Source(key, part.value, emit, within=larger, needs=needs)


def common() -> list[Source]:
    """The modules of floats that programs of all kinds have, and that of integers."""
    kinds = *(p for p in Part if p is not Part.FEW), *Images
    floats = [np.dtype(np.float32), np.dtype(np.float64)]
    found = [source(dtype, kind) for dtype in floats for kind in kinds]
    return [*found, source(np.dtype(np.int32))]


def emit_either(parts: Mapping[Kind, Part]) -> str:
    """IR of what calls the modules of several kinds."""
    b = Builder()
    for name in dict.fromkeys([part.value for part in parts.values()]):
        b.lines.append(f"declare void @{name}(ptr, i64, i64)")
    emit_dispatch(b, Part.ALL.value, {k: part.value for k, part in parts.items()})
    return b.text()


def emit_module(machine: Machine, part: Part | Images = Part.PLAIN) -> str:
    """IR of what one dtype needs, in one module."""
    b = Builder()
    kinds: dict[Kind, str] = {}
    if part not in FEW_PARTS.values():
        _emit_tiles(b, machine)
    if part in (Part.PLAIN, Part.ALL, Images.ALL):
        kinds |= _emit_plain(b, machine)
    if part in (Part.TURNED, Part.ALL):
        emit_turned_rows(b, machine)
        kinds[Kind.TURNED] = "turned"
    if part in (Part.STREAMED, Part.ALL):
        emit_streamed(b, machine)
        kinds[Kind.STREAMED] = "streamed"
    if isinstance(part, Images):
        emit = families.conv_emitted.emit_convolutions
        kinds |= emit(b, machine, part is not Images.FORWARD)
    emit_dispatch(b, part.value, kinds)
    return b.text()


def _emit_tiles(b: Builder, machine: Machine) -> None:
    emit_tiles(b, machine)
    emit_sweep(b, machine)
    b.lines.append(ONE_SEGMENT)
    emit_pack(b, machine)


def _emit_plain(b: Builder, machine: Machine) -> dict[Kind, str]:
    emit_pack_panels(b, machine)
    emit_pack_tiles(b, machine)
    _emit_block(b, machine)
    _emit_chunk(b, machine)
    _emit_rows(b, machine)
    _emit_product(b, machine)
    emit_few_rows(b, machine)
    return {Kind.PRODUCT: "product", Kind.FEW_ROWS: "few_rows"}


def _emit_product(b: Builder, machine: Machine) -> None:
    """``product``: one task. Finds out what the task owns."""
    with b.function(
        "define internal void @product(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        owned = owned_by_task(b, args, machine.tile.columns)
        (first, last), tiles, batches = owned
        scratch = own_scratch(b, args)
        shares = b.op(f"icmp ne i64 {args(ProductWord.SHARES_B)}, 0")
        with (
            b.when(shares),
            pieces(b, args) as (k0, k1),
            b.loop(first, last, args(ProductWord.CHUNK)) as n0,
        ):
            n1 = b.op(f"add i64 {n0}, {args(ProductWord.CHUNK)}")
            n1 = minimum(b, n1, last)
            where = f"i64 0, i64 0, i64 {k0}, i64 {k1}, i64 {n0}, i64 {n1}"
            b(f"call void @pack_chunk(ptr %args, ptr {scratch}, {where})")
            with (
                b.loop(*batches) as batch,
                b.loop(*tiles, args(ProductWord.A_TILES)) as t0,
            ):
                where = _group(b, args, batch, (t0, tiles[1]), (k0, k1))
                owned_columns = f"i64 {n0}, i64 {n1}, i1 false"
                b(
                    f"call void @rows(ptr %args, ptr {scratch}, {where}, "
                    f"{owned_columns})"
                )
        with (
            b.when(b.op(f"xor i1 {shares}, true")),
            b.loop(*batches) as batch,
            b.loop(*tiles, args(ProductWord.A_TILES)) as t0,
            pieces(b, args) as (k0, k1),
        ):
            where = _group(b, args, batch, (t0, tiles[1]), (k0, k1))
            b(
                f"call void @rows(ptr %args, ptr {scratch}, {where}, i64 {first}, "
                f"i64 {last}, i1 true)"
            )
        b("ret void")


def _group(
    b: Builder, args: Args, batch: str, tiles: tuple[str, str], k: tuple[str, str]
) -> str:
    """Arguments that name a batch element, a piece of k, and a group of row tiles, of
    which the first and the end of all are given."""
    b0 = b.op(f"udiv i64 {batch}, {args(ProductWord.BATCH1)}")
    b1 = b.op(f"urem i64 {batch}, {args(ProductWord.BATCH1)}")
    t1 = b.op(f"add i64 {tiles[0]}, {args(ProductWord.A_TILES)}")
    t1 = minimum(b, t1, tiles[1])
    return f"i64 {b0}, i64 {b1}, i64 {k[0]}, i64 {k[1]}, i64 {tiles[0]}, i64 {t1}"


def _emit_rows(b: Builder, machine: Machine) -> None:
    """``rows``: some row tiles, times one piece of k, for some columns, whose panels
    are to be packed or have been."""
    with b.function(
        "define internal void @rows(ptr %args, ptr %scratch, i64 %b0, i64 %b1, "
        "i64 %k0, i64 %k1, i64 %t0, i64 %t1, i64 %first, i64 %last, i1 %packs) " + COLD
    ):
        args = Args(b)
        r0 = first_row(b, args, ProductWord.TILE_LOW, "%t0")
        r1 = first_row(b, args, ProductWord.TILE_LOW, "%t1")
        given = operand_at(b, machine, args, Word.A, r0, "%k0")
        a, steps = _emit_a(b, machine, args, given, (r0, r1))
        chunk, block = args(ProductWord.CHUNK), args(ProductWord.BLOCK_TILES)
        with b.loop("%first", "%last", chunk) as n0:
            n1 = minimum(b, b.op(f"add i64 {n0}, {chunk}"), "%last")
            where = f"i64 %b0, i64 %b1, i64 %k0, i64 %k1, i64 {n0}, i64 {n1}"
            with b.when("%packs"):
                b(f"call void @pack_chunk(ptr %args, ptr %scratch, {where})")
            with b.loop("%t0", "%t1", block) as t:
                stop = minimum(b, b.op(f"add i64 {t}, {block}"), "%t1")
                row = first_row(b, args, ProductWord.TILE_LOW, t)
                lines = a
                for index, first, step in (
                    (row, r0, steps.per_row),
                    (t, "%t0", steps.per_tile),
                ):
                    skipped = b.op(f"sub i64 {index}, {first}")
                    skipped = b.op(f"mul i64 {skipped}, {step}")
                    lines = b.op(f"getelementptr i8, ptr {lines}, i64 {skipped}")
                how = ", ".join(f"i64 {step}" for step in steps)
                b(
                    f"call void @block(ptr %args, ptr %scratch, {where}, "
                    f"i64 {t}, i64 {stop}, ptr {lines}, {how})"
                )
        b("ret void")


def _emit_a(
    b: Builder, machine: Machine, args: Args, given: str, rows: tuple[str, str]
) -> tuple[str, Steps]:
    """Packs rows of A, if they are to be; the address of the first, and their steps.

    Rows that are contiguous stay so, tile by tile: nothing is transposed.
    """
    wide, size = machine.tile.packed_rows, machine.itemsize
    packs = args(Word.PACK_A)
    in_place = b.op(f"icmp eq i64 {packs}, {IN_PLACE}")
    skipped, step = args(ProductWord.A_OFFSET), args(ProductWord.A_STRIDE)
    packed = b.op(f"getelementptr i8, ptr %scratch, i64 {skipped}")
    contiguous = b.op(f"icmp eq i64 {args(Word.A + 3)}, 1")
    tiled = b.op(f"icmp eq i64 {packs}, {BUILT_IN}")
    tiled = b.op(f"and i1 {tiled}, {contiguous}")
    per_tile = b.op(f"mul i64 {step}, {wide * size}")
    with b.when(tiled):
        low, extra = args(ProductWord.TILE_LOW), args(ProductWord.TILE_EXTRA)
        b(
            f"call void @pack_tiles(ptr {given}, i64 {args(Word.A + 4)}, "
            f"i64 {b.op('sub i64 %k1, %k0')}, i64 {low}, i64 {extra}, i64 %t0, "
            f"i64 %t1, ptr {packed}, i64 {per_tile})"
        )
    as_rows = b.op(f"or i1 {in_place}, {tiled}")
    with b.when(b.op(f"xor i1 {as_rows}, true")):
        where = f"i64 %b0, i64 %b1, i64 {rows[0]}, i64 {rows[1]}, i64 %k0, i64 %k1"
        call_pack(b, args, Word.PACK_A, Word.A, where, f"ptr {packed}, i64 {step}")
    step = b.op(f"select i1 {in_place}, i64 {args(Word.A + 3)}, i64 {step}")
    a_row = b.op(f"mul i64 {step}, {size}")
    pairs = ((0, a_row), (per_tile, 0), (size, a_row), (wide * size, size))
    return b.op(f"select i1 {in_place}, ptr {given}, ptr {packed}"), Steps(
        *(b.op(f"select i1 {tiled}, i64 {x}, i64 {y}") for x, y in pairs)
    )


_WHERE = "i64 %b0, i64 %b1, i64 %k0, i64 %k1, i64 %n0, i64 %n1"
"""A batch element, a piece of k and a chunk of columns."""


def _emit_chunk(b: Builder, machine: Machine) -> None:
    """``pack_chunk``: packs the panels of a chunk, unless B is read in place."""
    with b.function(
        f"define internal void @pack_chunk(ptr %args, ptr %scratch, {_WHERE}) " + COLD
    ):
        args = Args(b)
        width = machine.tile.columns
        in_place = b.op(f"icmp eq i64 {args(Word.PACK_B)}, {IN_PLACE}")
        built_in = b.op(f"icmp eq i64 {args(Word.PACK_B)}, {BUILT_IN}")
        contiguous = b.op(f"icmp eq i64 {args(Word.B + 4)}, 1")
        copies = b.op(f"and i1 {built_in}, {contiguous}")
        columns = b.op("sub i64 %n1, %n0")
        whole = b.op(f"and i64 {columns}, {-width}")
        whole = b.op(f"select i1 {copies}, i64 {whole}, i64 0")
        with b.when(copies):
            source = operand_at(b, machine, args, Word.B, "%k0", "%n0")
            b(
                f"call void @pack_panels(ptr {source}, i64 {args(Word.B + 3)}, "
                f"i64 {b.op('sub i64 %k1, %k0')}, i64 {whole}, ptr %scratch, "
                f"i64 {args(ProductWord.K_PIECE)})"
            )
        start = b.op(f"add i64 %n0, {whole}")
        stop = b.op(f"select i1 {in_place}, i64 {start}, i64 %n1")
        with b.loop(start, stop, str(width)) as n:
            end = minimum(b, b.op(f"add i64 {n}, {width}"), "%n1")
            _emit_pack_panel(b, machine, args, n, end)
        b("ret void")


def _emit_pack_panel(
    b: Builder, machine: Machine, args: Args, start: str, stop: str
) -> None:
    where = f"i64 %b0, i64 %b1, i64 %k0, i64 %k1, i64 {start}, i64 {stop}"
    panel = _panel_at(b, machine, args, start)
    block = f"ptr {panel}, i64 {machine.tile.columns}"
    call_pack(b, args, Word.PACK_B, Word.B, where, block)


def _panel_at(b: Builder, machine: Machine, args: Args, column: str) -> str:
    """Where a panel is, or would be, once packed."""
    within = b.op(f"sub i64 {column}, %n0")
    number = b.op(f"udiv i64 {within}, {machine.tile.columns}")
    skipped = b.op(f"mul i64 {number}, {args(ProductWord.PANEL_STRIDE)}")
    return b.op(f"getelementptr i8, ptr %scratch, i64 {skipped}")


_STEPS = Steps(*(f"%{name}" for name in Steps._fields))


def _emit_block(b: Builder, machine: Machine) -> None:
    """``block``: a few row tiles, for the columns of a chunk, and their epilogue."""
    with b.function(
        f"define internal void @block(ptr %args, ptr %scratch, {_WHERE}, "
        f"i64 %t0, i64 %t1, ptr %a, {', '.join(f'i64 {x}' for x in _STEPS)})"
    ):
        args = Args(b)
        r0 = first_row(b, args, ProductWord.TILE_LOW, "%t0")
        r1 = first_row(b, args, ProductWord.TILE_LOW, "%t1")
        _emit_panels(b, machine, args, (r0, r1))
        finished = b.op(f"icmp eq i64 %k1, {args(ProductWord.K)}")
        whole = "%b0", "%b1", r0, r1, "%n0", "%n1"
        call_epilogue(b, args, finished, whole)
        b("ret void")


def _emit_panels(
    b: Builder, machine: Machine, args: Args, rows: tuple[str, str]
) -> None:
    """The loop over the columns of a block."""
    width, size = machine.tile.columns, machine.itemsize
    in_place_b = b.op(f"icmp eq i64 {args(Word.PACK_B)}, 0")
    height = b.op(f"sub i64 {rows[1]}, {rows[0]}")
    few = b.op(f"icmp ule i64 {height}, {wide_rows(machine)}")
    may_widen = b.op(f"and i1 {few}, {in_place_b}")
    later = b.op("zext i1 " + b.op("icmp ne i64 %k0, 0") + " to i64")
    length = b.op("sub i64 %k1, %k0")
    low, extra = args(ProductWord.TILE_LOW), args(ProductWord.TILE_EXTRA)
    c_row = b.op(f"mul i64 {args(Word.C + 3)}, {size}")
    with b.carrying("%n0", "%n1", "", []) as turn:
        n = turn.index
        left = b.op(f"sub i64 %n1, {n}")
        enough = b.op(f"icmp sge i64 {left}, {2 * width}")
        widen = b.op(f"and i1 {may_widen}, {enough}")
        turn.step = b.op(f"select i1 {widen}, i64 {2 * width}, i64 {width}")
        columns = minimum(b, left, turn.step)
        # Partial panels are packed, so that the micro-kernel may read whole ones.
        full = b.op(f"icmp eq i64 {columns}, {turn.step}")
        in_place = b.op(f"and i1 {in_place_b}, {full}")
        missing = b.op(f"xor i1 {full}, true")
        with b.when(b.op(f"and i1 {missing}, {in_place_b}")):
            _emit_pack_panel(b, machine, args, n, "%n1")
        given = operand_at(b, machine, args, Word.B, "%k0", n)
        packed = _panel_at(b, machine, args, n)
        panel = b.op(f"select i1 {in_place}, ptr {given}, ptr {packed}")
        step = b.op(f"select i1 {in_place}, i64 {args(Word.B + 3)}, i64 {width}")
        Sweep(
            tiles=(low, extra, "%t0", "%t1"),
            a=("%a", "0"),
            k=("@one_segment", "1", length),
            panel=(panel, b.op(f"mul i64 {step}, {size}")),
            c=(operand_at(b, machine, args, Word.C, rows[0], n), c_row),
            columns=columns,
            accumulate=later,
            lie=_STEPS,
        ).call(b)

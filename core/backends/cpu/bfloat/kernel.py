"""The matrix product of half floats, with sums in float32, on tiles or on vectors.

It has the tasks and the arguments of the product kernel (`treadle.backends.cpu.gemm`),
with packed blocks and a micro-kernel of its own, and computes nothing in place::

    all panels of B are packed, by a launch before, if several groups of rows read them
    for each batch element
        for each group of blocks of rows whose packed part of A fits the L2 cache
            for each chunk of columns
                for each block of k: there is one, but of long sums
                    pack the group's part of A, unless that is done
                    pack the chunk's panels of 32 columns, unless that is done
                    for each panel
                        for each piece of k, for each block of rows: micro-kernel
                epilogue

A piece of a panel stays in the L1 cache. Partial sums are floats in scratch and lose
nothing there, so no bit depends on how k is cut; nor on anything else that is chosen.
"""

from __future__ import annotations

import functools
from functools import partial
from typing import Protocol

import numpy as np

from treadle.backends.cpu.bfloat import tiles, vectors
from treadle.backends.cpu.bfloat.pack import PACKERS, emit_pack
from treadle.backends.cpu.bfloat.singles import (
    FloatUnit,
    SingleInstructions,
    SingleUnit,
)
from treadle.backends.cpu.bfloat.tile_block import TileUnit
from treadle.backends.cpu.bfloat.unit import (
    BLOCK_BYTES,
    BYTES,
    LINE_BYTES,
    SIDE,
    SUMS_BYTES,
    WORDS,
    Dtypes,
    Operand,
    Unit,
)
from treadle.backends.cpu.bfloat.vectors import VectorUnit
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import (
    FEW_KINDS,
    Kind,
    ProductWord,
    TileWord,
    Word,
)
from treadle.backends.cpu.gemm.kernel import (
    PLAIN_KINDS,
    Part,
    emit_either,
    machine_for,
)
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    emit_dispatch,
    minimum,
    operand_at,
    own_scratch,
    owned_by_task,
    share,
)
from treadle.backends.cpu.gemm.sweep import first_row
from treadle.backends.cpu.run.divided import COLD, exported
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import (
    AMX,
    AMX_MODEL,
    AVX512_BF16,
    bfloat_unit,
    host,
    llvm,
    multiplies_singles,
)
from treadle.dtypes import bfloat16, float16

_FLOAT32 = np.dtype(np.float32)
_CHUNK = 128  # columns that are packed at once


def unit(dtype: np.dtype = bfloat16) -> Unit:
    """What multiplies elements that are packed as a float on this machine."""
    if dtype == float16:
        return SingleUnit(SingleInstructions())
    if dtype == _FLOAT32:
        return FloatUnit(SingleInstructions())
    name = bfloat_unit()
    if name in (AMX, AMX_MODEL):
        return TileUnit(tiles.Instructions() if name == AMX else tiles.Model())
    real = name == AVX512_BF16
    return VectorUnit(vectors.Instructions() if real else vectors.Model())


def unit_for(dtypes: Dtypes) -> Unit:
    """What multiplies elements of these dtypes: as halves, if any are."""
    names = [dtype.name for dtype in dtypes]
    small = {dtype for dtype in dtypes[:2] if dtype in BYTES}
    halves = {*dtypes} - small - {_FLOAT32}
    known = halves.issubset((bfloat16, float16)) and len(halves) < 2
    if not known or not (halves or small):
        raise NotImplementedError(
            f"no product for {', '.join(names)}: only of bfloat16, float16 or integers "
            "of a byte, and float32"
        )
    if halves or dtypes.b in BYTES:
        return unit(*halves) if halves else unit(_FLOAT32)
    return FloatUnit(SingleInstructions(), few=False)


@functools.cache
def source(dtypes: Dtypes, part: Part = Part.PLAIN) -> Source:
    """The kernel of products for operands and results of these dtypes."""
    names = [dtype.name for dtype in dtypes]
    found = unit_for(dtypes)
    key = f"{part.value}/{found.name}/{' '.join(names)}"
    if part is Part.ALL:
        others = source(dtypes, Part.PLAIN), source(dtypes, Part.FEW)
        parts = dict.fromkeys(PLAIN_KINDS, Part.PLAIN)
        parts |= dict.fromkeys(FEW_KINDS, Part.FEW)
        return Source(key, part.value, partial(emit_either, part, parts), needs=others)
    needs = () if part is Part.FEW else (packing(dtypes, found),)
    return Source(
        key,
        part.value,
        lambda: emit_module(dtypes, found, part, apart=True),
        needs=needs,
    )


def common() -> list[Source]:
    """The kernels of halves that this machine multiplies, with results of their own
    dtype, and of floats."""
    halves = [bfloat16] if bfloat_unit() else []
    halves += [float16] if multiplies_singles() else []
    return [
        source(Dtypes(dtype, dtype, result), part)
        for dtype in halves
        for result in (dtype, _FLOAT32)
        for part in (Part.PLAIN, Part.FEW, Part.ALL)
    ]


def packing(dtypes: Dtypes, unit: Unit) -> Source:
    """The module of what packs operands of some dtypes, whatever results are."""

    def emit() -> str:
        b = Builder()
        a, by, _ = unit.operands(dtypes)
        emit_pack(b, machine_for(_FLOAT32, host()), a, by)
        return exported(b.text(), PACKERS)

    names = f"{dtypes.a.name} {dtypes.b.name}"
    return Source(f"pack/{unit.name}/{names}", PACKERS[0], emit, exports=PACKERS[1:])


def emit_module(
    dtypes: Dtypes, unit: Unit, part: Part = Part.PLAIN, apart: bool = False
) -> str:
    """IR of what operands and results of some dtypes need.

    apart: whether another module packs operands.
    """
    b = Builder()
    a, by, c = unit.operands(dtypes)
    if part is Part.FEW:
        llvm().initialize_native_asmparser()  # for the assembly in the kernels
        emit_dispatch(b, part.value, unit.few(b, a, by, c))
        return b.text()
    if apart:
        declare_packers(b)
    else:
        emit_pack(b, machine_for(_FLOAT32, host()), a, by)
    unit.define(b, c)
    _emit_pack_group(b, unit, a)
    emit_pack_panels(b, by)
    emit_panels(b)
    emit_columns(b, unit, c)
    emit_tasks(b, unit, "product", _Matrices(b))
    kinds = {Kind.PRODUCT: "product", Kind.PANELS: "panels"}
    emit_dispatch(b, part.value, kinds | unit.more(b, a, by, c))
    return b.text()


def declare_packers(b: Builder) -> None:
    """What another module has, that of `packing`."""
    for name in PACKERS:
        b.declare(f"void @{name}(ptr, i64, i64, i64, i64, ptr, i64)")


class Batches(Protocol):
    """What tasks do for batch elements, beside multiplying."""

    def enter(self, args: Args) -> None:
        """At the start of a task."""

    def begin(self, args: Args, batch: str) -> tuple[str, str, str]:
        """The arguments for a batch element, and both of its numbers in them."""

    def finish(self, args: Args, block: tuple[str, str, str, str, str, str]) -> None:
        """After a block of its results has been stored: its numbers, the first row and
        the one after the last, and so of columns."""


class _Matrices:
    """Of a product."""

    def __init__(self, b: Builder) -> None:
        self.b = b

    def enter(self, args: Args) -> None:
        pass

    def begin(self, args: Args, batch: str) -> tuple[str, str, str]:
        inner = args(ProductWord.BATCH1)
        b0, b1 = (self.b.op(f"{op} i64 {batch}, {inner}") for op in ("udiv", "urem"))
        return "%args", b0, b1

    def finish(self, args: Args, block: tuple[str, str, str, str, str, str]) -> None:
        call_epilogue(self.b, args, "true", block)


def emit_tasks(b: Builder, unit: Unit, name: str, batches: Batches) -> None:
    """Defines a function: one task."""
    with b.function(
        f"define internal void @{name}(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        (first, last), rows, owned = owned_by_task(b, args, SIDE)
        scratch = own_scratch(b, args)
        group, chunk = args(ProductWord.A_TILES), args(ProductWord.CHUNK)
        k, block = args(ProductWord.K), args(TileWord.K_BLOCK)
        long = b.op(f"icmp slt i64 {block}, {k}")
        batches.enter(args)
        unit.configure(b)
        with b.loop(*owned) as batch:
            given, b0, b1 = batches.begin(args, batch)
            with b.loop(*rows, group) as t0:
                t1 = minimum(b, b.op(f"add i64 {t0}, {group}"), rows[1])
                r0 = first_row(b, args, ProductWord.TILE_LOW, t0)
                r1 = first_row(b, args, ProductWord.TILE_LOW, t1)
                with b.loop(first, last, chunk) as n0:
                    n1 = minimum(b, b.op(f"add i64 {n0}, {chunk}"), last)
                    fresh = b.op(f"icmp eq i64 {n0}, {first}")
                    fresh = b.op(f"or i1 {fresh}, {long}")
                    with b.loop("0", k, block) as k0:
                        k1 = minimum(b, b.op(f"add i64 {k0}, {block}"), k)
                        where = (
                            f"ptr {given}, ptr {scratch}, i64 {b0}, i64 {b1}, "
                            f"i64 {t0}, i64 {t1}, i64 {k0}, i64 {k1}"
                        )
                        with b.when(fresh):
                            b(f"call void @pack_group({where})")
                        b(f"call void @columns({where}, i64 {n0}, i64 {n1})")
                    batches.finish(args, (b0, b1, r0, r1, n0, n1))
        unit.release(b)
        b("ret void")


GROUP = "ptr %args, ptr %scratch, i64 %b0, i64 %b1, i64 %t0, i64 %t1, i64 %k0, i64 %k1"
"""A batch element, some blocks of rows, and a block of k."""


def _emit_pack_group(b: Builder, unit: Unit, a: Operand) -> None:
    """``pack_group``: packs the rows of A of some blocks."""
    with b.function(f"define internal void @pack_group({GROUP}) " + COLD):
        args = Args(b)
        packed = b.op(
            f"getelementptr i8, ptr %scratch, i64 {args(ProductWord.A_OFFSET)}"
        )
        length = b.op("sub i64 %k1, %k0")
        with b.loop("%t0", "%t1") as t:
            row = first_row(b, args, ProductWord.TILE_LOW, t)
            following = b.op(f"add i64 {t}, 1")
            end = first_row(b, args, ProductWord.TILE_LOW, following)
            given = operand_at(b, a, args, Word.A, row, "%k0")
            number = b.op(f"sub i64 {t}, %t0")
            skipped = b.op(f"mul i64 {number}, {args(ProductWord.A_STRIDE)}")
            target = b.op(f"getelementptr i8, ptr {packed}, i64 {skipped}")
            b(
                f"call void @pack_rows(ptr {given}, i64 {args(Word.A + 3)}, "
                f"i64 {args(Word.A + 4)}, i64 {b.op(f'sub i64 {end}, {row}')}, "
                f"i64 {length}, ptr {target}, i64 0)"
            )
            unit.packed(b, target, length)
        b("ret void")


def emit_pack_panels(b: Builder, by: Operand) -> None:
    """``pack_panels``: packs the columns of B from a multiple of 32 on, in panels. All
    at once, where lines of B are contiguous."""
    with b.function(
        "define internal void @pack_panels(ptr %args, i64 %b0, i64 %b1, i64 %n0, "
        "i64 %n1, i64 %k0, i64 %k1, ptr %to) " + COLD
    ):
        args = Args(b)
        stride = args(ProductWord.PANEL_STRIDE)
        length = b.op("sub i64 %k1, %k0")
        contiguous = b.op(f"icmp eq i64 {args(Word.B + 4)}, 1")
        width = b.op(f"select i1 {contiguous}, i64 {_CHUNK}, i64 {SIDE}")
        with b.loop("%n0", "%n1", width) as n:
            left = b.op(f"sub i64 %n1, {n}")
            number = b.op(f"udiv i64 {b.op(f'sub i64 {n}, %n0')}, {SIDE}")
            skipped = b.op(f"mul i64 {number}, {stride}")
            target = b.op(f"getelementptr i8, ptr %to, i64 {skipped}")
            b(
                f"call void @pack_columns("
                f"ptr {operand_at(b, by, args, Word.B, '%k0', n)}, "
                f"i64 {args(Word.B + 4)}, i64 {args(Word.B + 3)}, "
                f"i64 {minimum(b, left, width)}, i64 {length}, "
                f"ptr {target}, i64 {stride})"
            )
        b("ret void")


def emit_panels(b: Builder) -> None:
    """``panels``: packs a task's share of the panels that all read."""
    with b.function(
        "define internal void @panels(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        rounded = b.op(f"add i64 {args(ProductWord.N)}, {SIDE - 1}")
        count = b.op(f"udiv i64 {rounded}, {SIDE}")
        wanted = b.op(f"icmp ne i64 {args(TileWord.SHARED)}, 0")
        count = b.op(f"select i1 {wanted}, i64 {count}, i64 0")
        first, last = share(b, "%task", count, args(Word.TASKS))
        target = _shared_panel(b, args, first)
        n0, n1 = (b.op(f"mul i64 {panel}, {SIDE}") for panel in (first, last))
        n1 = minimum(b, n1, args(ProductWord.N))
        k = args(ProductWord.K)
        where = f"i64 0, i64 0, i64 {n0}, i64 {n1}, i64 0, i64 {k}, ptr {target}"
        b(f"call void @pack_panels(ptr %args, {where})")
        b("ret void")


def _shared_panel(b: Builder, args: Args, panel: str) -> str:
    skipped = b.op(f"mul i64 {panel}, {args(ProductWord.PANEL_STRIDE)}")
    return b.op(f"getelementptr i8, ptr {args(Word.SCRATCH, 'ptr')}, i64 {skipped}")


def emit_columns(b: Builder, unit: Unit, c: Operand) -> None:
    """``columns``: some blocks of rows, for the columns of a chunk."""
    with b.function(f"define internal void @columns({GROUP}, i64 %n0, i64 %n1)"):
        args = Args(b)
        state = b.op(f"alloca {unit.state}, align 8")
        b(f"store {unit.state} zeroinitializer, ptr {state}, align 8")
        alone = b.op(f"icmp eq i64 {args(TileWord.SHARED)}, 0")
        stride = args(ProductWord.PANEL_STRIDE)
        between = args(TileWord.SUMS)
        own = b.op(f"getelementptr i8, ptr %scratch, i64 {args(TileWord.OWN)}")
        with b.when(alone):
            where = f"i64 %b0, i64 %b1, i64 %n0, i64 %n1, i64 %k0, i64 %k1, ptr {own}"
            b(f"call void @pack_panels(ptr %args, {where})")
        with b.loop("%n0", "%n1", str(SIDE)) as n:
            shared = _shared_panel(b, args, b.op(f"udiv i64 {n}, {SIDE}"))
            number = b.op(f"udiv i64 {b.op(f'sub i64 {n}, %n0')}, {SIDE}")
            skipped = b.op(f"mul i64 {number}, {stride}")
            panel = b.op(f"getelementptr i8, ptr {own}, i64 {skipped}")
            panel = b.op(f"select i1 {alone}, ptr {panel}, ptr {shared}")
            skipped = b.op(f"mul i64 {number}, {between}")
            sums = b.op(f"getelementptr i8, ptr %scratch, i64 {skipped}")
            with b.loop("%k0", "%k1", args(ProductWord.K_PIECE)) as k0:
                _emit_piece(b, args, unit, c, (n, panel, sums), k0, state)
        b(f"call void @finish(ptr {state})")
        b("ret void")


def _emit_piece(
    b: Builder,
    args: Args,
    unit: Unit,
    c: Operand,
    panel: tuple[str, str, str],
    k0: str,
    state: str,
) -> None:
    """Multiplies all blocks of rows by one piece of a panel: its column, its address,
    and where its sums are."""
    n, address, kept = panel
    k, piece = args(ProductWord.K), args(ProductWord.K_PIECE)
    k1 = b.op(f"add i64 {k0}, {piece}")
    length = b.op(f"sub i64 {minimum(b, k1, '%k1')}, {k0}")
    depth = unit.speed.depth
    steps = b.op(f"udiv i64 {b.op(f'add i64 {length}, {depth - 1}')}, {depth}")
    before = b.op(f"mul i64 {b.op(f'sub i64 {steps}, 1')}, {depth}")
    rest = b.op(f"sub i64 {length}, {before}")
    group = depth // WORDS
    words = b.op(f"udiv i64 {b.op(f'add i64 {rest}, {group - 1}')}, {group}")
    is_first = b.op(f"icmp eq i64 {k0}, 0")
    is_last = b.op(f"icmp sge i64 {k1}, {k}")
    whole = b.op(f"icmp sge i64 {piece}, {k}")
    columns = minimum(b, b.op(f"sub i64 %n1, {n}"), str(SIDE))
    blocks = b.op("sub i64 %t1, %t0")
    # The next piece is as long as this one at most: its lines, of which a block has
    # 32, are shared out over all steps.
    ahead = b.op(f"add i64 {b.op(f'sub i64 {blocks}, 1')}, {SIDE}")
    ahead = b.op(f"udiv i64 {ahead}, {blocks}")
    each = b.op(f"mul i64 {ahead}, {b.op(f'mul i64 {steps}, {LINE_BYTES}')}")
    packed = b.op(f"getelementptr i8, ptr %scratch, i64 {args(ProductWord.A_OFFSET)}")
    step = b.op(f"mul i64 {args(Word.C + 3)}, {c.dtype.itemsize}")
    at_k = b.op(f"mul i64 {b.op(f'sub i64 {k0}, %k0')}, {BLOCK_BYTES // depth}")
    by = b.op(f"getelementptr i8, ptr {address}, i64 {at_k}")
    following = b.op(
        f"getelementptr i8, ptr {by}, i64 {b.op(f'mul i64 {steps}, {BLOCK_BYTES}')}"
    )
    with b.loop("%t0", "%t1") as t:
        number = b.op(f"sub i64 {t}, %t0")
        # With one piece, sums are done with when the next but one begins.
        turn = b.op(f"and i64 {number}, 1")
        place = b.op(f"select i1 {whole}, i64 {turn}, i64 {number}")
        place = b.op(f"mul i64 {place}, {SUMS_BYTES}")
        sums = b.op(f"getelementptr i8, ptr {kept}, i64 {place}")
        skipped = b.op(f"mul i64 {number}, {args(ProductWord.A_STRIDE)}")
        skipped = b.op(f"add i64 {skipped}, {at_k}")
        a = b.op(f"getelementptr i8, ptr {packed}, i64 {skipped}")
        next_b = b.op(
            f"getelementptr i8, ptr {following}, "
            f"i64 {b.op(f'mul i64 {number}, {each}')}"
        )
        row = first_row(b, args, ProductWord.TILE_LOW, t)
        end = first_row(b, args, ProductWord.TILE_LOW, b.op(f"add i64 {t}, 1"))
        target = operand_at(b, c, args, Word.C, row, n)
        rows = b.op(f"sub i64 {end}, {row}")
        b(
            f"call void @block(ptr {a}, ptr {by}, ptr {sums}, i64 {steps}, "
            f"i64 {words}, i1 {is_first}, i1 {is_last}, ptr {next_b}, i64 {ahead}, "
            f"ptr {target}, i64 {step}, i64 {rows}, i64 {columns}, ptr {state})"
        )

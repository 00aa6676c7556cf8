"""The matrix product kernel: blocks, packing and hooks around the micro-kernel.

Its work is described in `treadle.kernels.contract`. A task owns some batch elements,
some row tiles and some column panels, and packs what it needs for itself, so that
tasks never wait for each other::

    for each batch element
        for each block of row tiles whose part of A fits the L2 cache
            for each piece of k
                pack the block of A (unless it is read in place)
                for each panel of B, as wide as a tile
                    pack the panel (unless it is read in place)
                    for each row tile: micro-kernel
                    after the last piece: epilogue
"""

from __future__ import annotations

import functools

import numpy as np

from treadle.backends.cpu.builder import Builder
from treadle.backends.cpu.conv import emit_convolution
from treadle.backends.cpu.conv_filter import emit_filter_gradient
from treadle.backends.cpu.gemm_pack import emit_pack
from treadle.backends.cpu.gemm_parts import (
    COLD,
    Args,
    call_epilogue,
    call_pack,
    minimum,
    operand_at,
    share,
)
from treadle.backends.cpu.gemm_sweep import (
    Sweep,
    emit_sweep,
    emit_tiles,
    first_row,
    row_of_tile,
)
from treadle.backends.cpu.gemm_tile import Machine, wide_rows
from treadle.backends.cpu.native import Source
from treadle.backends.cpu.target import Target, host, llvm
from treadle.kernels.contract import Kind, Slot, Tile, Word


def tile(dtype: np.dtype, target: Target | None = None) -> Tile:
    """The register block that this machine's kernels use."""
    target = target or host()
    lanes = target.vector_bytes // dtype.itemsize
    many_registers = target.vector_bytes == 64 or target.arch == "aarch64"
    return Tile(lanes, 14 if many_registers else 6)


def machine_for(dtype: np.dtype, target: Target) -> Machine:
    return Machine(
        scalar={4: "float", 8: "double"}[dtype.itemsize],
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


@functools.cache
def source(dtype: np.dtype) -> Source:
    """The kernel ``contract`` for one dtype (float32 or float64), to be loaded."""
    if dtype not in (np.dtype("float32"), np.dtype("float64")):
        raise NotImplementedError(
            f"no matrix kernel for {dtype}: convert the operands to float32 first"
        )

    def emit() -> str:
        llvm().initialize_native_asmparser()  # for the assembly in the kernels
        return emit_module(machine_for(dtype, host()))

    return Source(f"contract/{dtype.name}", "contract", emit)


def emit_module(machine: Machine) -> str:
    """IR of everything that one dtype needs."""
    b = Builder()
    emit_tiles(b, machine)
    emit_sweep(b, machine)
    b.lines.append("@one_segment = internal constant i64 0")
    emit_pack(b, machine)
    _emit_panel(b, machine)
    _emit_block(b, machine)
    _emit_product(b, machine)
    emit_convolution(b, machine)
    emit_filter_gradient(b, machine)
    _emit_contract(b)
    return b.text()


def _emit_contract(b: Builder) -> None:
    """``contract``: calls the kernel of the kind that the arguments are for."""
    kinds = {
        Kind.PRODUCT: "product",
        Kind.CONVOLUTION: "convolution",
        Kind.FILTER_GRADIENT: "filter_gradient",
        Kind.SUM_PARTIALS: "sum_partials",
    }
    with b.function("define void @contract(ptr %args, i64 %task) " + COLD):
        kind = Args(b)(Slot.KIND)
        for number, name in kinds.items():
            with b.when(b.op(f"icmp eq i64 {kind}, {int(number)}")):
                b(f"call void @{name}(ptr %args, i64 %task)")
        b("ret void")


def _emit_product(b: Builder, machine: Machine) -> None:
    """``product``: one task. Finds out what the task owns."""
    with b.function("define internal void @product(ptr %args, i64 %task) " + COLD):
        args = Args(b)
        columns, rows = args(Word.GRID_COLUMNS), args(Word.GRID_ROWS)
        column = b.op(f"urem i64 %task, {columns}")
        rest = b.op(f"udiv i64 %task, {columns}")
        row = b.op(f"urem i64 {rest}, {rows}")
        group = b.op(f"udiv i64 {rest}, {rows}")
        width = machine.tile.columns
        panels = b.op(
            f"udiv i64 {b.op(f'add i64 {args(Word.N)}, {width - 1}')}, {width}"
        )
        panel_bounds = share(b, column, panels, columns)
        first, last = (b.op(f"mul i64 {p}, {width}") for p in panel_bounds)
        last = minimum(b, last, args(Word.N))
        tiles = share(b, row, args(Word.TILES), rows)
        batches = share(b, group, args(Word.BATCHES), args(Word.GRID_BATCHES))
        used = b.op(f"mul i64 %task, {args(Slot.SCRATCH_STRIDE)}")
        scratch = b.op(f"getelementptr i8, ptr {args(Slot.SCRATCH, 'ptr')}, i64 {used}")
        step = args(Word.BLOCK_TILES)
        k, piece = args(Word.K), args(Word.K_PIECE)
        with b.loop(*batches) as batch:
            b0 = b.op(f"udiv i64 {batch}, {args(Word.BATCH1)}")
            b1 = b.op(f"urem i64 {batch}, {args(Word.BATCH1)}")
            _emit_resident(b, machine, args, (b0, b1), (first, last), scratch)
            with b.loop(*tiles, step) as tile_start, b.loop("0", k, piece) as k_start:
                tile_stop = minimum(b, b.op(f"add i64 {tile_start}, {step}"), tiles[1])
                k_stop = minimum(b, b.op(f"add i64 {k_start}, {piece}"), k)
                b(
                    f"call void @block(ptr %args, ptr {scratch}, i64 {b0}, i64 {b1}, "
                    f"i64 {tile_start}, i64 {tile_stop}, i64 {k_start}, i64 {k_stop}, "
                    f"i64 {first}, i64 {last})"
                )
        b("ret void")


def _emit_resident(
    b: Builder,
    machine: Machine,
    args: Args,
    batch: tuple[str, str],
    columns: tuple[str, str],
    scratch: str,
) -> None:
    """Packs all panels of a task at once, if they stay in the cache."""
    step = args(Word.PANEL_STRIDE)
    resident = b.op(f"icmp ne i64 {step}, 0")
    stop = b.op(f"select i1 {resident}, i64 {columns[1]}, i64 {columns[0]}")
    width = machine.tile.columns
    with b.loop(columns[0], stop, str(width)) as n:
        end = minimum(b, b.op(f"add i64 {n}, {width}"), columns[1])
        panel = panel_at(b, machine, args, scratch, b.op(f"sub i64 {n}, {columns[0]}"))
        where = (
            f"i64 {batch[0]}, i64 {batch[1]}, i64 0, i64 {args(Word.K)}, "
            f"i64 {n}, i64 {end}"
        )
        block = f"ptr {panel}, i64 {width}"
        call_pack(b, args, Slot.PACK_B, Slot.B, where, block)


def panel_at(
    b: Builder, machine: Machine, args: Args, scratch: str, column: str
) -> str:
    """Where the packed panel is that starts at a column of the task."""
    number = b.op(f"udiv i64 {column}, {machine.tile.columns}")
    skipped = b.op(f"mul i64 {number}, {args(Word.PANEL_STRIDE)}")
    return b.op(f"getelementptr i8, ptr {scratch}, i64 {skipped}")


def _emit_block(b: Builder, machine: Machine) -> None:
    """``block``: some rows of one matrix, times one piece of k, for some columns."""
    size = machine.itemsize
    with b.function(
        "define internal void @block(ptr %args, ptr %scratch, i64 %b0, i64 %b1, "
        "i64 %t0, i64 %t1, i64 %k0, i64 %k1, i64 %n0, i64 %n1)"
    ):
        args = Args(b)
        r0 = first_row(b, args, Word.TILE_LOW, "%t0")
        r1 = first_row(b, args, Word.TILE_LOW, "%t1")
        a = operand_at(b, machine, args, Slot.A, r0, "%k0")
        in_place_a = b.op(f"icmp eq i64 {args(Slot.PACK_A)}, 0")
        packed_a = b.op(f"getelementptr i8, ptr %scratch, i64 {args(Word.A_OFFSET)}")
        a_stride = args(Word.A_STRIDE)
        with b.when(b.op(f"xor i1 {in_place_a}, true")):
            where = f"i64 %b0, i64 %b1, i64 {r0}, i64 {r1}, i64 %k0, i64 %k1"
            block = f"ptr {packed_a}, i64 {a_stride}"
            call_pack(b, args, Slot.PACK_A, Slot.A, where, block)
        a = b.op(f"select i1 {in_place_a}, ptr {a}, ptr {packed_a}")
        a_row = b.op(f"select i1 {in_place_a}, i64 {args(Slot.A + 3)}, i64 {a_stride}")
        a_row = b.op(f"mul i64 {a_row}, {size}")
        _emit_panels(b, machine, args, (r0, r1), (a, a_row))
        whole = b.op(f"icmp eq i64 {args(Word.EPILOGUE_TILES)}, 0")
        last = b.op(f"icmp eq i64 %k1, {args(Word.K)}")
        finished = b.op(f"and i1 {whole}, {last}")
        call_epilogue(b, args, finished, ("%b0", "%b1", r0, r1, "%n0", "%n1"))
        b("ret void")


def _emit_panels(
    b: Builder, machine: Machine, args: Args, rows: tuple[str, str], a: tuple[str, str]
) -> None:
    """The loop over the columns of a block."""
    width, size = machine.tile.columns, machine.itemsize
    in_place_b = b.op(f"icmp eq i64 {args(Slot.PACK_B)}, 0")
    few = b.op(
        f"icmp ule i64 {b.op(f'sub i64 {rows[1]}, {rows[0]}')}, {wide_rows(machine)}"
    )
    may_widen = b.op(f"and i1 {few}, {in_place_b}")
    with b.carrying("%n0", "%n1", "", []) as turn:
        n = turn.index
        left = b.op(f"sub i64 %n1, {n}")
        enough = b.op(f"icmp sge i64 {left}, {2 * width}")
        widen = b.op(f"and i1 {may_widen}, {enough}")
        turn.step = b.op(f"select i1 {widen}, i64 {2 * width}, i64 {width}")
        columns = minimum(b, left, turn.step)
        stop = b.op(f"add i64 {n}, {columns}")
        # Partial panels are packed, so that the micro-kernel may read whole ones.
        full = b.op(f"icmp eq i64 {columns}, {turn.step}")
        in_place = b.op(f"and i1 {in_place_b}, {full}")
        transient = b.op(f"icmp eq i64 {args(Word.PANEL_STRIDE)}, 0")
        absent = b.op(f"xor i1 {in_place}, true")
        with b.when(b.op(f"and i1 {absent}, {transient}")):
            where = f"i64 %b0, i64 %b1, i64 %k0, i64 %k1, i64 {n}, i64 {stop}"
            block = f"ptr %scratch, i64 {width}"
            call_pack(b, args, Slot.PACK_B, Slot.B, where, block)
        given = operand_at(b, machine, args, Slot.B, "%k0", n)
        packed = panel_at(b, machine, args, "%scratch", b.op(f"sub i64 {n}, %n0"))
        panel = b.op(f"select i1 {in_place}, ptr {given}, ptr {packed}")
        row = b.op(f"select i1 {in_place}, i64 {args(Slot.B + 3)}, i64 {width}")
        row = b.op(f"mul i64 {row}, {size}")
        b(
            f"call void @panel(ptr %args, i64 %b0, i64 %b1, i64 %t0, i64 %t1, "
            f"i64 %k0, i64 %k1, i64 {n}, i64 {stop}, ptr {a[0]}, i64 {a[1]}, "
            f"ptr {panel}, i64 {row})"
        )


def _emit_panel(b: Builder, machine: Machine) -> None:
    """``panel``: all row tiles of a block with one panel of B, and the epilogue."""
    with b.function(
        "define internal void @panel(ptr %args, i64 %b0, i64 %b1, i64 %t0, i64 %t1, "
        "i64 %k0, i64 %k1, i64 %n0, i64 %n1, ptr %a, i64 %a_row, ptr %b, i64 %b_row)"
    ):
        args = Args(b)
        later = b.op("zext i1 " + b.op("icmp ne i64 %k0, 0") + " to i64")
        accumulate = b.op(f"or i64 {later}, {args(Word.ACCUMULATE)}")
        finished = b.op(f"icmp eq i64 %k1, {args(Word.K)}")
        low, extra = args(Word.TILE_LOW), args(Word.TILE_EXTRA)
        first = row_of_tile(b, low, extra, "%t0")
        c_row = b.op(f"mul i64 {args(Slot.C + 3)}, {machine.itemsize}")
        given_step = args(Word.EPILOGUE_TILES)
        whole = b.op(f"icmp eq i64 {given_step}, 0")
        step = b.op(f"select i1 {whole}, i64 %t1, i64 {given_step}")
        finished = b.op(f"select i1 {whole}, i1 false, i1 {finished}")
        with b.loop("%t0", "%t1", step) as t:
            stop = minimum(b, b.op(f"add i64 {t}, {step}"), "%t1")
            r0, r1 = (row_of_tile(b, low, extra, at) for at in (t, stop))
            skipped = b.op(f"mul i64 {b.op(f'sub i64 {r0}, {first}')}, %a_row")
            Sweep(
                tiles=(low, extra, t, stop),
                a=(b.op(f"getelementptr i8, ptr %a, i64 {skipped}"), "%a_row"),
                k=("@one_segment", "1", b.op("sub i64 %k1, %k0")),
                panel=("%b", "%b_row"),
                c=(operand_at(b, machine, args, Slot.C, r0, "%n0"), c_row),
                columns=b.op("sub i64 %n1, %n0"),
                accumulate=accumulate,
            ).call(b)
            call_epilogue(b, args, finished, ("%b0", "%b1", r0, r1, "%n0", "%n1"))
        b("ret void")

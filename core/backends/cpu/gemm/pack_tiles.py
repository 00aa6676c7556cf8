"""Copies rows of A that are contiguous, so that each row tile lies apart.

Each k of a tile begins with a vector, and the micro-kernel takes its elements one by
one: nothing is transposed. A few k of all tiles are copied before the next few, as a
line of the cache has elements of several tiles.
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.parts import minimum
from treadle.backends.cpu.gemm.sweep import row_of_tile
from treadle.backends.cpu.gemm.tile import Machine, lane_mask, masked_load

_TOGETHER = 8
"""So many k."""


def emit_pack_tiles(b: Builder, machine: Machine) -> None:
    """Defines ``pack_tiles``, of some tiles, of which the first has its first row at
    `source`. From one k to the next there are `step` elements, from tile to tile
    `per_tile` bytes."""
    tile, size = machine.tile, machine.itemsize
    wide = tile.packed_rows
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    with b.function(
        "define internal void @pack_tiles(ptr noalias readonly %source, i64 %step, "
        "i64 %depth, i64 %low, i64 %extra, i64 %t0, i64 %t1, ptr noalias %packed, "
        "i64 %per_tile)"
    ):
        first = row_of_tile(b, "%low", "%extra", "%t0")
        line = b.op(f"mul i64 %step, {size}")
        later = b.op(f"mul i64 {line}, {_TOGETHER}")
        with (
            b.loop("0", "%depth", str(_TOGETHER)) as k0,
            b.loop("%t0", "%t1") as t,
        ):
            k1 = minimum(b, b.op(f"add i64 {k0}, {_TOGETHER}"), "%depth")
            row = row_of_tile(b, "%low", "%extra", t)
            height = b.op(f"zext i1 {b.op(f'icmp slt i64 {t}, %extra')} to i64")
            height = b.op(f"add i64 {height}, %low")
            firsts = range(0, wide, tile.lanes)
            masks = [lane_mask(b, machine, height, lane) for lane in firsts]
            skipped = b.op(f"sub i64 {row}, {first}")
            source = b.op(f"getelementptr {machine.scalar}, ptr %source, i64 {skipped}")
            skipped = b.op(f"sub i64 {t}, %t0")
            skipped = b.op(f"mul i64 {skipped}, %per_tile")
            target = b.op(f"getelementptr i8, ptr %packed, i64 {skipped}")
            with b.loop(k0, k1) as k:
                skipped = b.op(f"mul i64 {k}, {line}")
                at = b.op(f"getelementptr i8, ptr {source}, i64 {skipped}")
                ahead = b.op(f"getelementptr i8, ptr {at}, i64 {later}")
                b(f"call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
                skipped = b.op(f"mul i64 {k}, {wide * size}")
                to = b.op(f"getelementptr i8, ptr {target}, i64 {skipped}")
                for lane, mask in zip(firsts, masks, strict=True):
                    from_, into = (
                        b.op(f"getelementptr {machine.scalar}, ptr {x}, i64 {lane}")
                        for x in (at, to)
                    )
                    x = masked_load(b, machine, from_, mask)
                    b(f"store {machine.vector} {x}, ptr {into}, align {size}")
        b("ret void")

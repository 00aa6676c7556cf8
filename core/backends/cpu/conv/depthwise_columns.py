"""The factors, or sums, of one vector of features of groups, side by side (see
`depthwise`).

In a filter the rows of features lie apart: those of many groups a page or more, so that
each is a miss in the L1 cache and in its table of pages. Where a filter is large, a
task therefore goes over its blocks once for every vector of features, of which it has
copied the factors, or adds up the sums, one behind the other. What is added, and when,
stays as it is.
"""

from __future__ import annotations

from treadle.backends.cpu.conv.arguments import ConvWord, DepthwiseWord
from treadle.backends.cpu.conv.depthwise_blocks import Scratch
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Word
from treadle.backends.cpu.gemm.parts import Args, minimum, offset
from treadle.backends.cpu.gemm.tile import (
    Machine,
    lane_mask,
    masked_load,
    masked_store,
)


class Columns:
    """Channels c0..c1-1, which one turn over the blocks is for.

    copied: whether these are one vector, beside each other, at `place`: an i1, or None
    if they never are.
    """

    def __init__(
        self,
        b: Builder,
        machine: Machine,
        args: Args,
        scratch: Scratch,
        c0: str,
        groups: bool,
    ) -> None:
        self.b, self.machine, self.c0 = b, machine, c0
        stop = b.op(f"add i64 {c0}, {args(DepthwiseWord.COLUMNS)}")
        self.c1 = minimum(b, stop, args(ConvWord.CHANNELS))
        self.apart = args(DepthwiseWord.APART)
        skipped = args(DepthwiseWord.COLUMNS_OFFSET)
        self.place = b.op(f"getelementptr i8, ptr {scratch.zeros}, i64 {skipped}")
        self.copied = b.op(f"icmp ne i64 {skipped}, 0") if groups else None

    def _base(self, otherwise: str) -> str:
        """Where channel 0 would be."""
        if self.copied is None:
            return otherwise
        back = self.b.op(f"sub i64 0, {self.c0}")
        place = offset(self.b, self.machine, self.place, back, "1")
        return self.b.op(f"select i1 {self.copied}, ptr {place}, ptr {otherwise}")

    def factors(self, weights: str) -> str:
        """The address of the first one's, of those of the filter."""
        if self.copied is not None:
            with self.b.when(self.copied):
                given = f"ptr %args, ptr {weights}, ptr {self.place}, i64 {self.c0}"
                self.b(f"call void @copied({given}, i64 {self.c1})")
        return self._base(weights)

    def zeroed(self, sums: str, size: str, rows: str) -> str:
        """The address of the first one's sums, of those of all, which are zero then.

        size: bytes of all. rows: of taps and channels of a group.
        """
        b, base = self.b, self._base(sums)
        if self.copied is None:
            b(f"call void @llvm.memset.p0.i64(ptr {sums}, i8 0, i64 {size}, i1 false)")
            return base
        some = b.op(
            f"mul i64 {rows}, {self.machine.tile.lanes * self.machine.itemsize}"
        )
        some = b.op(f"select i1 {self.copied}, i64 {some}, i64 {size}")
        place = b.op(f"select i1 {self.copied}, ptr {self.place}, ptr {sums}")
        b(f"call void @llvm.memset.p0.i64(ptr {place}, i8 0, i64 {some}, i1 false)")
        return base

    def put(self, sums: str, rows: str, channels: str) -> None:
        """Sums among those of all."""
        if self.copied is not None:
            with self.b.when(self.copied):
                target = offset(self.b, self.machine, sums, self.c0, "1")
                width = self.b.op(f"sub i64 {self.c1}, {self.c0}")
                self.b(
                    f"call void @put(ptr {self.place}, ptr {target}, i64 {rows}, "
                    f"i64 {channels}, i64 {width})"
                )


def emit_columns(b: Builder, machine: Machine) -> None:
    """``copied`` and ``put``, which `Columns` calls."""
    lanes = str(machine.tile.lanes)
    with b.function(
        "define internal void @copied(ptr %args, ptr %filter, ptr %target, i64 %c0, "
        "i64 %c1)"
    ):
        args = Args(b)
        mask = lane_mask(b, machine, b.op("sub i64 %c1, %c0"))
        first = offset(b, machine, "%filter", "%c0", "1")
        sizes = ConvWord.TAPS_Y, ConvWord.TAPS_X, ConvWord.GROUP_CHANNELS
        rows = b.op(f"mul i64 {args(sizes[0])}, {args(sizes[1])}")
        with b.loop("0", rows) as tap, b.loop("0", args(sizes[2])) as c:
            place = first
            y, x = (
                b.op(f"{op} i64 {tap}, {args(sizes[1])}") for op in ("udiv", "urem")
            )
            for i, index in enumerate((y, x, c), start=1):
                place = offset(b, machine, place, index, args(Word.B + i))
            row = b.op(f"add i64 {b.op(f'mul i64 {tap}, {args(sizes[2])}')}, {c}")
            target = offset(b, machine, "%target", row, lanes)
            value = masked_load(b, machine, place, mask)
            b(f"store {machine.vector} {value}, ptr {target}, align {machine.itemsize}")
        b("ret void")
    with b.function(
        "define internal void @put(ptr %source, ptr %target, i64 %rows, "
        "i64 %channels, i64 %width)"
    ):
        mask = lane_mask(b, machine, "%width")
        with b.loop("0", "%rows") as row:
            place = offset(b, machine, "%source", row, lanes)
            value = b.op(
                f"load {machine.vector}, ptr {place}, align {machine.itemsize}"
            )
            target = offset(b, machine, "%target", row, "%channels")
            masked_store(b, machine, value, target, mask)
        b("ret void")

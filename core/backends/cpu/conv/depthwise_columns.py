"""The factors, or sums, of one vector of features of groups, side by side (see
`depthwise`).

In a filter the rows of features lie apart: those of many groups a page or more, so that
each is a miss in the L1 cache and in its table of pages. Where a filter is large, a
task therefore goes over some blocks once for every vector of features, of which it has
copied the factors, or adds up the sums, one behind the other; of pixels and gradients,
too, the second copies what each block meets. What is added, and when, stays as it is.
"""

from __future__ import annotations

from treadle.backends.cpu.conv.arguments import ConvWord, DepthwiseWord
from treadle.backends.cpu.conv.depthwise_blocks import Block, Scratch, below_bytes
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
    """Channels c0..c1-1, which one turn over some blocks is for.

    copied: whether these are one vector, beside each other, at `place`: an i1, or None
    if they never are.
    """

    def __init__(
        self, b: Builder, machine: Machine, args: Args, scratch: Scratch, c0: str
    ) -> None:
        self.b, self.machine, self.args, self.scratch = b, machine, args, scratch
        stop = b.op(f"add i64 {c0}, {args(DepthwiseWord.COLUMNS)}")
        self.c0, self.c1 = c0, minimum(b, stop, args(ConvWord.CHANNELS))
        self.width = b.op(f"sub i64 {self.c1}, {c0}")
        self.place = self._at(DepthwiseWord.COLUMNS_OFFSET)
        self.copied = copied(b, args)

    def _at(self, word: DepthwiseWord) -> str:
        return self.b.op(
            f"getelementptr i8, ptr {self.scratch.zeros}, i64 {self.args(word)}"
        )

    def _base(self, place: str, otherwise: str) -> str:
        """Where channel 0 would be."""
        back = self.b.op(f"sub i64 0, {self.c0}")
        place = offset(self.b, self.machine, place, back, "1")
        return self.b.op(f"select i1 {self.copied}, ptr {place}, ptr {otherwise}")

    def _get(self, source: str, target: str, rows: str, step: str) -> None:
        source = offset(self.b, self.machine, source, self.c0, "1")
        self.b(
            f"call void @get(ptr {source}, ptr {target}, i64 {rows}, i64 {step}, "
            f"i64 {self.width})"
        )

    def factors(self, weights: str) -> str:
        """The address of the first one's, of those of the filter."""
        b, args, machine = self.b, self.args, self.machine
        taps_x, each = args(ConvWord.TAPS_X), args(ConvWord.GROUP_CHANNELS)
        apart = b.op(f"mul i64 {each}, {machine.tile.lanes}")
        taps = b.op(f"mul i64 {args(ConvWord.TAPS_Y)}, {taps_x}")
        taps = b.op(f"select i1 {self.copied}, i64 {taps}, i64 0")
        with b.loop("0", taps) as tap:
            y, x = (b.op(f"{op} i64 {tap}, {taps_x}") for op in ("udiv", "urem"))
            source = offset(b, machine, weights, y, args(Word.B + 1))
            source = offset(b, machine, source, x, args(Word.B + 2))
            target = offset(b, machine, self.place, tap, apart)
            self._get(source, target, each, args(Word.B + 3))
        return self._base(self.place, weights)

    def begun(self, sums: str, is_first: str) -> str:
        """The address of the first one's sums, of those of all. is_first: whether
        nothing has been added to them."""
        b, machine = self.b, self.machine
        rows = self.args(ConvWord.K)
        size = b.op(f"mul i64 {rows}, {machine.tile.lanes * machine.itemsize}")
        with b.when(b.op(f"and i1 {self.copied}, {is_first}")):
            zeros = f"ptr {self.place}, i8 0, i64 {size}, i1 false"
            b(f"call void @llvm.memset.p0.i64({zeros})")
        goes_on = b.op(f"xor i1 {is_first}, true")
        with b.when(b.op(f"and i1 {self.copied}, {goes_on}")):
            self._get(sums, self.place, rows, self.args(ConvWord.CHANNELS))
        return self._base(self.place, sums)

    def near(self, block: Block, gradients: str) -> tuple[str, str, str]:
        """Gradients of a block, elements between those of its outputs, and bytes from
        pixels that it meets to those to be asked for, after copies of both, if any."""
        b, args, machine = self.b, self.args, self.machine
        step = args(Word.B + 3)
        place = self._at(DepthwiseWord.NEAR_OFFSET)
        with b.when(self.copied):
            self._get(gradients, place, block.count, step)
            lines = b.op(f"sub i64 {block.rows}, 1")
            lines = b.op(f"mul i64 {lines}, {args(ConvWord.STRIDE_Y)}")
            reach = b.op(f"sub i64 {args(ConvWord.TAPS_Y)}, 1")
            reach = b.op(f"mul i64 {reach}, {args(ConvWord.DILATION_Y)}")
            lines = b.op(f"add i64 {b.op(f'add i64 {lines}, {reach}')}, 1")
            entries = b.op(f"mul i64 {lines}, {args(DepthwiseWord.LINE)}")
            pixels = offset(b, machine, place, block.count, str(machine.tile.lanes))
            b(
                f"call void @near(ptr {self.scratch.table}, i64 {entries}, "
                f"ptr {pixels}, i64 {self.c0}, i64 {self.width})"
            )
        lanes = machine.tile.lanes
        step = b.op(f"select i1 {self.copied}, i64 {lanes}, i64 {step}")
        below = below_bytes(b, machine, args)
        below = b.op(f"select i1 {self.copied}, i64 0, i64 {below}")
        return self._base(place, gradients), step, below

    def put(self, sums: str) -> None:
        """Sums among those of all."""
        rows, channels = self.args(ConvWord.K), self.args(ConvWord.CHANNELS)
        with self.b.when(self.copied):
            target = offset(self.b, self.machine, sums, self.c0, "1")
            self.b(
                f"call void @put(ptr {self.place}, ptr {target}, i64 {rows}, "
                f"i64 {channels}, i64 {self.width})"
            )


def copied(b: Builder, args: Args) -> str:
    """Whether vectors of features are copied: an i1."""
    return b.op(f"icmp ne i64 {args(DepthwiseWord.COLUMNS_OFFSET)}, 0")


def emit_columns(b: Builder, machine: Machine) -> None:
    """Defines what `Columns` calls: ``get``, ``put``, and ``near``, which makes a table
    of pixels one of their copies."""
    lanes, how = str(machine.tile.lanes), f"align {machine.itemsize}"
    rows = "ptr %source, ptr %target, i64 %rows, i64 %step, i64 %width"
    with b.function(f"define internal void @get({rows})"):
        mask = lane_mask(b, machine, "%width")
        with b.loop("0", "%rows") as row:
            place = offset(b, machine, "%source", row, "%step")
            target = offset(b, machine, "%target", row, lanes)
            value = masked_load(b, machine, place, mask)
            b(f"store {machine.vector} {value}, ptr {target}, {how}")
        b("ret void")
    with b.function(f"define internal void @put({rows})"):
        mask = lane_mask(b, machine, "%width")
        with b.loop("0", "%rows") as row:
            place = offset(b, machine, "%source", row, lanes)
            value = b.op(f"load {machine.vector}, ptr {place}, {how}")
            target = offset(b, machine, "%target", row, "%step")
            masked_store(b, machine, value, target, mask)
        b("ret void")
    with b.function(
        "define internal void @near(ptr %table, i64 %count, ptr %target, i64 %c0, "
        "i64 %width)"
    ):
        mask = lane_mask(b, machine, "%width")
        back = b.op("sub i64 0, %c0")
        with b.loop("0", "%count") as number:
            entry = b.op(f"getelementptr ptr, ptr %table, i64 {number}")
            pixel = b.op(f"load ptr, ptr {entry}, align 8")
            pixel = offset(b, machine, pixel, "%c0", "1")
            value = masked_load(b, machine, pixel, mask)
            target = offset(b, machine, "%target", number, lanes)
            b(f"store {machine.vector} {value}, ptr {target}, {how}")
            target = offset(b, machine, target, back, "1")
            b(f"store ptr {target}, ptr {entry}, align 8")
        b("ret void")

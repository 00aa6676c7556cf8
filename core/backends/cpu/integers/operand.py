"""How integers lie in memory, and as what products of them are packed."""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.bfloat.unit import WORDS, line_mask
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.parts import maximum, minimum
from treadle.records import record

BYTES, HALVES = 4, 2
"""Elements in a word, where they are packed as bytes or made 16 bits long."""


@record(frozen=True)
class Integers:
    """Integers of 8, 16 or 32 bits.

    group: elements in a word. flipped: whether 128 is added or taken away, so that a
    signed byte is an unsigned one or the other way round. masked: whether the machine
    has masked loads of these.
    """

    dtype: np.dtype
    group: int
    flipped: bool = False
    masked: bool = True

    @property
    def name(self) -> str:
        return f"{self.dtype.name}{'_flipped' if self.flipped else ''}"

    @property
    def depth(self) -> int:
        return WORDS * self.group

    @property
    def as_packed(self) -> bool:
        return self.scalar == self._packed and not self.flipped

    @property
    def scalar(self) -> str:
        return f"i{8 * self.dtype.itemsize}"

    @property
    def _packed(self) -> str:
        return f"i{32 // self.group}"

    def vector(self, lanes: int) -> str:
        return f"<{lanes} x {self._packed}>"

    def at(self, b: Builder, base: str, index: str, step: str = "1") -> str:
        elements = index if step == "1" else b.op(f"mul i64 {index}, {step}")
        return b.op(f"getelementptr {self.scalar}, ptr {base}, i64 {elements}")

    def read(self, b: Builder, address: str, count: str | None, lanes: int) -> str:
        vector = f"<{lanes} x {self.scalar}>"
        if count is None:
            align = self.dtype.itemsize
            value = b.op(f"load {vector}, ptr {address}, align {align}")
        elif self.masked:
            mask = f"<{lanes} x i1>"
            name = f"@llvm.masked.load.v{lanes}{self.scalar}.p0"
            b.declare(f"{vector} {name}(ptr, {mask}, {vector})")
            value = b.op(
                f"call {vector} {name}(ptr align {self.dtype.itemsize} {address}, "
                f"{mask} {line_mask(b, count, lanes)}, {vector} zeroinitializer)"
            )
        else:
            name = self._defined(b, lanes)
            value = b.op(f"call {vector} {name}(ptr {address}, i64 {count})")
        return self._packed_from(b, value, lanes)

    def _packed_from(self, b: Builder, value: str, lanes: int) -> str:
        vector, packed = f"<{lanes} x {self.scalar}>", self.vector(lanes)
        if vector != packed:
            extend = "zext" if self.dtype.kind == "u" else "sext"
            return b.op(f"{extend} {vector} {value} to {packed}")
        if not self.flipped:
            return value
        signs = ", ".join(["i8 -128"] * lanes)
        return b.op(f"xor {packed} {value}, <{signs}>")

    def _defined(self, b: Builder, lanes: int) -> str:
        """The name of a function that reads as many elements as there are."""
        name, size = f"@read_{self.scalar}_{lanes}", self.dtype.itemsize
        if name in b.library:
            return name
        vector = f"<{lanes} x {self.scalar}>"
        text = Builder()
        with text.function(
            f"define internal {vector} {name}(ptr %from, i64 %count) noinline"
        ):
            buffer = text.op(f"alloca {vector}, align 64")
            with text.when(text.op(f"icmp sge i64 %count, {lanes}")):
                whole = text.op(f"load {vector}, ptr %from, align {size}")
                text(f"ret {vector} {whole}")
                text.label(text.fresh_label("unreachable"))
            text(f"store {vector} zeroinitializer, ptr {buffer}, align 64")
            left = maximum(text, minimum(text, "%count", str(lanes)), "0")
            # Few copies of fixed lengths take less time than a call of memcpy.
            part, done = lanes // 2, "0"
            while part:
                kind = f"<{part} x {self.scalar}>"
                bit = text.op(f"and i64 {left}, {part}")
                with text.when(text.op(f"icmp ne i64 {bit}, 0")):
                    source, target = (
                        text.op(f"getelementptr {self.scalar}, ptr {x}, i64 {done}")
                        for x in ("%from", buffer)
                    )
                    value = text.op(f"load {kind}, ptr {source}, align {size}")
                    text(f"store {kind} {value}, ptr {target}, align {size}")
                done = text.op(f"add i64 {done}, {bit}")
                part //= 2
            value = text.op(f"load {vector}, ptr {buffer}, align 64")
            text(f"ret {vector} {value}")
        b.declarations |= text.declarations
        b.library[name] = "\n".join(text.lines)
        return name

    def write(self, b: Builder, sums: str, address: str, count: str) -> None:
        kind, mask = "<32 x i32>", "<32 x i1>"
        name = "@llvm.masked.store.v32i32.p0"
        b.declare(f"void {name}({kind}, ptr, {mask})")
        b(
            f"call void {name}({kind} {sums}, ptr align 4 {address}, "
            f"{mask} {line_mask(b, count)})"
        )

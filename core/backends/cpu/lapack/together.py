"""The kernel's way with small matrices: as many at once as vectors have lanes."""

from __future__ import annotations

from collections.abc import Callable

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.fourier.lanes import at, scaled
from treadle.backends.cpu.gemm.parts import Args, share
from treadle.backends.cpu.lapack import cholesky
from treadle.backends.cpu.lapack.lanes import slab
from treadle.backends.cpu.lapack.schedule import TABLE, Word
from treadle.backends.cpu.lapack.small import SmallWord
from treadle.trace.routine import Small

FEW = 3
"""So many matrices are better factored one by one."""


def emit(b: Builder, small: Small) -> None:
    """``together``: what a task does with its matrices."""
    of = slab(small.dtype)
    cholesky.emit(b, of)
    with b.function("define internal void @together(ptr %args, i64 %task) noinline"):
        args = Args(b)
        room = args(Word.SMALL + SmallWord.ROOM, "ptr")
        room = at(b, room, scaled(b, args(Word.SMALL + SmallWord.ROOM_BYTES), "%task"))
        n = args(Word.SMALL + SmallWord.SIZES)
        start, stop = share(b, "%task", args(Word.MATRICES), args(Word.TASKS))
        with b.carrying(start, stop, "1", []) as turn:
            left = b.op(f"sub i64 {stop}, {turn.index}")
            few = b.op(f"icmp sle i64 {left}, {FEW}")
            large = b.op(f"icmp sgt i64 {n}, 40")
            alone = b.op(f"or i1 {few}, {large}")
            count = b.least(left, str(of.count))
            turn.step = b.op(f"select i1 {alone}, i64 1, i64 {count}")
            last = b.op(f"sub i64 {turn.step}, 1")
            a, step = _block(b, args, 1, turn.index)
            out, _ = _block(b, args, 2, turn.index)
            rest = f"(ptr {a}, ptr {out}, i64 {step}, i64 {last}, i64 {n}, ptr {room})"
            with b.when(alone):
                b(f"call void @cholesky_alone{rest}")
            with b.when(b.op(f"xor i1 {alone}, true")):
                b(f"call void @cholesky{rest}")
        b("ret void")


def _block(b: Builder, args: Args, number: int, index: str) -> tuple[str, str]:
    """An operand or result of a matrix, and bytes from one matrix to the next."""
    base = args(TABLE + 3 * number, "ptr")
    step = args(TABLE + 3 * number + 1)
    return at(b, base, scaled(b, index, step)), step

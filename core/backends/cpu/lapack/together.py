"""The kernel's way with small matrices: as many at once as vectors have lanes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.fourier.lanes import at, scaled
from treadle.backends.cpu.gemm.parts import Args, share
from treadle.backends.cpu.lapack import (
    cholesky,
    elimination,
    reflections,
    substitution,
)
from treadle.backends.cpu.lapack.lanes import Slab, emit_less, emit_moves, slab
from treadle.backends.cpu.lapack.schedule import Word
from treadle.backends.cpu.lapack.small import SmallWord
from treadle.trace.routine import Small

Emit = Callable[[Builder, Slab, str], None]

_EMITS: dict[str, Emit] = {
    "cholesky": cholesky.emit,
    "triangular_solve": substitution.emit,
    "lu": elimination.emit,
    "lu_solve": elimination.emit_solve,
    "qr": reflections.emit,
    "triangle": partial(reflections.emit, orthogonal=False),
}
"""What writes the function for matrices in lanes."""


def emit(b: Builder, small: Small) -> None:
    """``together``: what a task does with its matrices."""
    of = slab(small.dtype)
    emit_moves(b, of)
    emit_less(b, of)
    _EMITS[small.what](b, of, "many")
    if small.what == "cholesky":
        cholesky.emit_alone(b, of, "alone")
    else:
        one = replace(of, count=1)
        emit_moves(b, one)
        emit_less(b, one)
        _EMITS[small.what](b, one, "alone")
    with b.function(
        "define internal void @together(ptr %args, i64 %task, i64 %slot) noinline"
    ):
        args = Args(b)
        room = args(Word.SMALL + SmallWord.ROOM, "ptr")
        room = at(b, room, scaled(b, args(Word.SMALL + SmallWord.ROOM_BYTES), "%task"))
        few = args(Word.SMALL + SmallWord.FEW)
        start, stop = share(b, "%task", args(Word.MATRICES), args(Word.TASKS))
        with b.carrying(start, stop, "1", []) as turn:
            left = b.op(f"sub i64 {stop}, {turn.index}")
            count = b.least(left, str(of.count))
            alone = b.op(f"icmp sle i64 {count}, {few}")
            turn.step = b.op(f"select i1 {alone}, i64 1, i64 {count}")
            last = b.op(f"sub i64 {turn.step}, 1")
            rest = f"(ptr %args, i64 {turn.index}, i64 {last}, ptr {room})"
            with b.when(alone):
                b(f"call void @alone{rest}")
            with b.when(b.op(f"xor i1 {alone}, true")):
                b(f"call void @many{rest}")
        b("ret void")

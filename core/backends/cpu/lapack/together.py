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
    wide,
)
from treadle.backends.cpu.lapack.lanes import Slab, emit_less, emit_moves, slab
from treadle.backends.cpu.lapack.schedule import Word
from treadle.backends.cpu.lapack.small import Size, SmallWord, Ways
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


def emit(b: Builder, small: Small, ways: Ways) -> None:
    """``together``: what a task does with its matrices."""
    of = slab(small.dtype)
    has_wide = ways.wide and small.what == "triangular_solve" and of.parts == 1
    if ways.many:
        emit_moves(b, of)
    if ways.many or small.what == "cholesky":
        emit_less(b, of)
    if ways.many:
        _EMITS[small.what](b, of, "many")
    if ways.alone:
        _emit_alone(b, of, small.what)
    if has_wide:
        wide.emit(b, of)
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
            many = b.op(f"xor i1 {alone}, true")
            rest = f"(ptr %args, i64 {turn.index}, i64 {last}, ptr {room})"
            if has_wide:
                what = args(Word.SMALL + SmallWord.IS_SMALL)
                is_wide = b.op(f"icmp eq i64 {what}, {Size.WIDE}")
                with b.when(is_wide):
                    b(f"call void @wide(ptr %args, i64 {turn.index}, ptr {room})")
                alone = b.op(f"and i1 {alone}, {b.op(f'xor i1 {is_wide}, true')}")
            for name, is_so in (("alone", alone), ("many", many)):
                if getattr(ways, name):
                    with b.when(is_so):
                        b(f"call void @{name}{rest}")
        b("ret void")


def _emit_alone(b: Builder, of: Slab, what: str) -> None:
    """``alone``: what is done with one matrix."""
    if what == "cholesky":
        cholesky.emit_alone(b, of, "alone")
        return
    one = replace(of, count=1)
    emit_moves(b, one)
    emit_less(b, one)
    _EMITS[what](b, one, "alone")

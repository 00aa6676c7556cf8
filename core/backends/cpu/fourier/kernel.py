"""The kernel that calls the inner loops of NumPy's Fourier transforms: see `library`.

``void fourier(ptr args, i64 task)``, with the words of `schedule.Word`. A task owns
some of the pieces into which the lines of all blocks are cut, and makes one call for
each.
"""

from __future__ import annotations

from functools import cache

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.fourier.schedule import Word
from treadle.backends.cpu.gemm.parts import Args, share
from treadle.backends.cpu.run.native import Source

_SYMBOL = "fourier"


@cache
def source() -> Source:
    """The one kernel for all transforms."""
    return Source(_SYMBOL, _SYMBOL, emit)


def emit() -> str:
    """The IR text of its module."""
    b = Builder()
    emit_calls(b, f'void @"{_SYMBOL}"')
    return b.text()


def emit_calls(b: Builder, head: str) -> None:
    """The kernel. head: its result and name."""
    with b.function(f"define {head}(ptr %args, i64 %task, i64 %slot) nounwind"):
        args = Args(b)
        given, sizes, steps = (b.op(f"alloca [{n} x i64]") for n in (3, 3, 5))
        inner, pieces = args(Word.INNER), args(Word.PIECES)
        between = args(Word.BETWEEN_IN), args(Word.BETWEEN_OUT)
        _store(b, sizes, 1, args(Word.LENGTH_IN))
        _store(b, sizes, 2, args(Word.LENGTH_OUT))
        # All lines have one factor, so that from one to the next its step is 0.
        within = args(Word.WITHIN_IN), args(Word.WITHIN_OUT)
        for place, step in enumerate((between[0], "0", between[1], *within)):
            _store(b, steps, place, step)
        factor = b.op(f"ptrtoint ptr {args.at(Word.FACTOR)} to i64")
        _store(b, given, 1, factor)
        all_pieces = b.op(f"mul i64 {args(Word.OUTER)}, {pieces}")
        mine = share(b, "%task", all_pieces, args(Word.TASKS))
        with b.loop(*mine) as i:
            block = b.op(f"udiv i64 {i}, {pieces}")
            piece = b.op(f"urem i64 {i}, {pieces}")
            first, end = share(b, piece, inner, pieces)
            _store(b, sizes, 0, b.op(f"sub i64 {end}, {first}"))
            for slot, base, whole, line in (
                (0, Word.OPERAND, Word.BLOCK_IN, between[0]),
                (2, Word.RESULT, Word.BLOCK_OUT, between[1]),
            ):
                start = b.op(f"mul i64 {block}, {args(whole)}")
                ahead = b.op(f"mul i64 {first}, {line}")
                offset = b.op(f"add i64 {start}, {ahead}")
                _store(b, given, slot, b.op(f"add i64 {args(base)}, {offset}"))
            data = args(Word.DATA, "ptr")
            b(
                f"call void {args(Word.LOOP, 'ptr')}(ptr {given}, ptr {sizes},"
                f" ptr {steps}, ptr {data})"
            )
        b("ret void")


def _store(b: Builder, base: str, index: int, value: str) -> None:
    place = b.op(f"getelementptr i64, ptr {base}, i64 {index}")
    b(f"store i64 {value}, ptr {place}")

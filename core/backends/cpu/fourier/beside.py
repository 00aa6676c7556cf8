"""Transforms of many lines at once, one in each lane of a vector.

``void beside(ptr args, i64 task)``, with the words of `own.Word`: some lines are
brought into a block, however they lie, transformed there, and taken out. If there are
fewer of them than lanes, the others are empty.
"""

from __future__ import annotations

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.fourier.lanes import Lanes, at, groups_of, scaled
from treadle.backends.cpu.fourier.own import IRFFT, RFFT, Way, Word
from treadle.backends.cpu.gemm.parts import Args, share

_INTO = (Word.WAY_IN, Word.STEP_IN, Word.GAP_IN, Word.NUMBERS_IN)
_OUT = (Word.WAY_OUT, Word.STEP_OUT, Word.GAP_OUT, Word.NUMBERS_OUT)


def factor_of(args: Args, lanes: Lanes) -> str:
    """By which results are multiplied, as an argument."""
    return f"{lanes.kind} {args(Word.FACTOR, lanes.kind)}"


def scratch_of(b: Builder, args: Args) -> str:
    """The memory of a task."""
    mine = scaled(b, "%task", args(Word.SCRATCH_BYTES))
    return at(b, args(Word.SCRATCH, "ptr"), mine)


def emit_beside(b: Builder, lanes: Lanes) -> None:
    """A task owns some of the vectors of lines of all blocks of lines."""
    with b.function("define internal void @beside(ptr %args, i64 %task, i64 %slot)"):
        args = Args(b)
        inner, count, m = args(Word.INNER), args(Word.LANES), args(Word.LENGTH)
        packs, unpacks = (
            b.op(f"icmp eq i64 {args(Word.KIND)}, {kind}") for kind in (IRFFT, RFFT)
        )
        # What packs exchanges the parts itself.
        flip = b.op(f"select i1 {packs}, i64 0, i64 {args(Word.FLIP)}")
        block = scratch_of(b, args)
        more = b.op(f"add i64 {m}, 1")
        spare = at(b, block, scaled(b, more, lanes.row))
        groups = groups_of(b, lanes.count, inner)
        last = b.op(f"sub i64 {inner}, {count}")
        pieces = b.op(f"mul i64 {args(Word.OUTER)}, {groups}")
        with b.loop(*share(b, "%task", pieces, args(Word.TASKS))) as piece:
            outer = b.op(f"udiv i64 {piece}, {groups}")
            group = b.op(f"urem i64 {piece}, {groups}")
            first = b.least(scaled(b, group, lanes.count), last)
            place = outer, first
            x = _first_line(b, args, place, (Word.OPERAND, Word.BLOCK_IN, Word.LINE_IN))
            y = _first_line(
                b, args, place, (Word.RESULT, Word.BLOCK_OUT, Word.LINE_OUT)
            )
            _emit_moves(b, args, "load", (x, args(Word.LINE_IN), block, flip), _INTO)
            mixing = f"i64 {m}, ptr {args(Word.MIXED, 'ptr')}"
            with b.when(packs):
                b(f"call void @pack_block(ptr {block}, {mixing})")
            recipe = args(Word.RECIPE, "ptr")
            found = b.op(f"call ptr @passes(ptr {recipe}, ptr {block}, ptr {spare})")
            with b.when(unpacks):
                b(f"call void @unpack_block(ptr {found}, {mixing})")
            given = y, args(Word.LINE_OUT), found, args(Word.FLIP)
            _emit_moves(b, args, "store", given, _OUT, f", {factor_of(args, lanes)}")
        b("ret void")


def _first_line(
    b: Builder, args: Args, place: tuple[str, str], words: tuple[Word, Word, Word]
) -> str:
    """The address of a line, given by its block and its number there."""
    base, block, line = words
    start = scaled(b, place[0], args(block))
    ahead = scaled(b, place[1], args(line))
    return at(b, args(base, "ptr"), b.op(f"add i64 {start}, {ahead}"))


def _emit_moves(
    b: Builder,
    args: Args,
    verb: str,
    given: tuple[str, str, str, str],
    words: tuple[Word, Word, Word, Word],
    more: str = "",
) -> None:
    """Calls the function of `moving` for the way in which the lines lie."""
    address, line, block, flip = given
    way, step, gap, n = map(args, words)
    common = (
        f"ptr {address}, i64 {line}, i64 {step}, i64 {gap}, i64 {n}, ptr {block},"
        f" i64 {flip}{more}"
    )
    for known in Way:
        with b.when(b.op(f"icmp eq i64 {way}, {int(known)}")):
            few = f", i64 {args(Word.LANES)}" if known == Way.FEW else ""
            b(f"call void @{verb}_{known.name.lower()}({common}{few})")

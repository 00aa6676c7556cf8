"""What the kernels of attention do besides where operands are half floats.

Either they are computed with as floats, which rows become where they are copied. Or
products are of bfloat16 (`Code.pairs`): what the micro-kernel takes for a float is then
a pair of numbers that are multiplied one after the other: neighbours in a row of
queries, keys, or weights; in panels of what isn't turned, two rows, element by element.
An odd number at the end has a zero beside it. Sums and scores are floats all the same.
"""

from __future__ import annotations

import numpy as np

from treadle.backends.cpu.attention.parts import LOG2E, Code
from treadle.backends.cpu.attention.schedule import COLUMNS, Word, pitch
from treadle.backends.cpu.emit.access import load, store
from treadle.backends.cpu.emit.lanes import Value

_WORD = np.dtype(np.uint16)
_PITCH = pitch(COLUMNS)


def emit_halves(code: Code) -> None:
    """Defines what both kernels call."""
    if code.is_half:
        _emit_take_rows(code)
    if code.pairs:
        _emit_pack_pairs(code)
        _emit_interleave(code)


def _emit_take_rows(code: Code) -> None:
    """``take_rows``: rows as floats, or as pairs."""
    b, lanes = code.b, code.lanes
    with b.function(
        "define internal void @take_rows(ptr %from, i64 %step, i64 %rows, "
        "i64 %columns, ptr %to, i64 %to_step)"
    ):
        step, to_step, rows, columns = code.ints("step", "to_step", "rows", "columns")
        whole = columns & -lanes
        rest = columns - whole
        mask, ragged = code.mask(rest), rest.compare("sgt", 0)
        # Of an odd number of elements, the last pair has a zero.
        filled = code.mask((rest + 1) & -2) if code.pairs else mask
        of, into = (_WORD, _WORD) if code.pairs else (code.stored, code.dtype)
        with code.loop(0, rows) as i:
            source, target = code.beyond("%from", i * step), code.at("%to", i * to_step)
            with code.loop(0, whole, lanes) as j:
                x = load(b, code.beyond(source, j), of, lanes, None)
                store(b, _element(code, target, j), x, into, None)
            with b.when(ragged.text):
                x = load(b, code.beyond(source, whole), of, lanes, mask)
                store(b, _element(code, target, whole), x, into, filled)
        b("ret void")


def _element(code: Code, base: str, index: Value) -> str:
    """The address of a number among pairs, or floats."""
    return _half(code, base, index) if code.pairs else code.at(base, index)


def _half(code: Code, base: str, index: Value) -> str:
    return code.b.op(f"getelementptr i16, ptr {base}, i64 {index.text}")


def _emit_pack_pairs(code: Code) -> None:
    """``pack_pairs``: pairs of rows as panels, each of some of their columns."""
    b, width, lanes = code.b, code.machine.tile.columns, code.lanes
    with b.function(
        "define internal void @pack_pairs(ptr %from, i64 %step, i64 %rows, "
        "i64 %columns, ptr %panels)"
    ):
        step, rows, columns = code.ints("step", "rows", "columns")
        pairs = code.units(rows)
        with code.loop(0, columns, lanes) as j:
            mask = code.mask(columns - j)
            panel, within = code.below(j, width), j & (width - 1)
            target = code.at("%panels", panel * pairs, within)
            with code.loop(0, pairs) as i:
                first = code.beyond("%from", i * 2 * step, j)
                there = (i * 2 + 1).compare("slt", rows)
                low = load(b, first, _WORD, lanes, mask)
                high = load(b, code.beyond(first, step), _WORD, lanes, mask & there)
                _store_pairs(code, code.at(target, i * width), low, high)
        b("ret void")


def _store_pairs(code: Code, address: str, low: Value, high: Value) -> None:
    found = low.cast("zext", "i32") | (high.cast("zext", "i32") << 16)
    store(code.b, address, found, np.dtype(np.uint32), None)


def _emit_interleave(code: Code) -> None:
    """``interleave``: a block of pairs of neighbours, as one of pairs of rows, each
    where the first of the two was. From its end on, as pairs of rows are longer."""
    b, lanes = code.b, code.lanes
    with b.function(
        "define internal void @interleave(ptr %block, i64 %rows, i64 %columns)"
    ):
        rows, columns = code.ints("rows", "columns")
        last = code.below(columns + (lanes - 1), lanes) - lanes
        with code.loop(0, rows, 2) as i:
            line = code.at("%block", i * _PITCH)
            other = code.at(line, code.i64(_PITCH))
            there = (i + 1).compare("slt", rows).splat(lanes)
            with code.loop(0, columns, lanes) as n:
                j = last - n
                low = load(b, _half(code, line, j), _WORD, lanes, None)
                high = load(b, _half(code, other, j), _WORD, lanes, there)
                _store_pairs(code, code.at(line, j), low, high)
        b("ret void")


def scale(code: Code, line: str, room: Value) -> None:
    """Scores of a row in units of log(2), where keys could not be: pairs are as they
    were given."""
    factor = (code.number(Word.SCALE) * LOG2E).rounded_once()
    with code.loop(0, room, code.lanes) as j:
        x = code.load(code.at(line, j)) * factor
        code.store(code.at(line, j), x.rounded_once())


def store_weights(
    code: Code, line: str, index: Value, x: Value, later: bool = False
) -> None:
    """Numbers of a row as the micro-kernel takes them: pairs need half of the room, so
    that a row may be written where it is read. As floats, if they are made so `later`.
    """
    if later or not code.pairs:
        code.store(code.at(line, index), x)
        return
    short = f"<{code.lanes} x bfloat>"
    name = f"@llvm.x86.avx512bf16.cvtneps2bf16.{32 * code.lanes}"
    code.b.declare(f"{short} {name}({x.type})")
    found = x.new(f"call {short} {name}({x.type} {x.text})", "bfloat")
    code.b(f"store {short} {found.text}, ptr {_half(code, line, index)}, align 2")


def narrow(code: Code, line: str, into: str, room: Value) -> None:
    """Floats of a row as the micro-kernel takes them."""
    if code.pairs:
        with code.loop(0, room, code.lanes) as j:
            store_weights(code, into, j, code.load(code.at(line, j)))


def blank(code: Code, row: str, start: Value, stop: Value) -> None:
    """Zeros from one number of a row of weights to another."""
    if code.pairs:
        code.call("fill_pairs", row, start, stop, Value(code.b, "0", "i16", 1))
    else:
        code.call("fill", row, start, stop, code.real(0.0))

"""Tile registers as a unit: a block of 32 x 32 sums over a piece of k.

Packed rows of A are blocks of 32 rows x 32 k, a panel of B is blocks of 16 pairs of k x
32 columns x 2. Sums are floats in scratch. A finished block is rounded and stored while
the next one is computed, some rows a step, in the shadow of the tile instructions.
"""

from __future__ import annotations

from treadle.backends.cpu.bfloat.few_on_tiles import emit_few
from treadle.backends.cpu.bfloat.tiles import ROWS, Tiles
from treadle.backends.cpu.bfloat.unit import (
    BLOCK,
    BLOCK_BYTES,
    SIDE,
    SUMS_ROW,
    Dtypes,
    Operand,
    Speed,
    halves_of,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.arguments import Kind
from treadle.backends.cpu.gemm.parts import minimum

_LINE = 64  # bytes of the cache

PENDING = "{ ptr, ptr, i64, i64, i64 }"
"""Rows that wait to be stored: their sums, where they go, the bytes between rows there,
how many there are, and how many columns they have."""


class TileUnit:
    """Tile registers, or the model of them."""

    state = PENDING
    speed = Speed(
        faster=8,
        a_bytes=1 << 20,
        k_piece=256,
        k_block=512,
        turned_rows=ROWS,
        rows_at_once=ROWS,
    )

    def __init__(self, tiles: Tiles) -> None:
        self.tiles = tiles
        self.name = tiles.name
        self.configure = tiles.configure
        self.release = tiles.release
        self.rounded = tiles.rounded

    def operands(self, dtypes: Dtypes) -> tuple[Operand, Operand, Operand]:
        return halves_of(dtypes, self)

    def few(self, b: Builder, a: Operand, by: Operand, c: Operand) -> dict[Kind, str]:
        return emit_few(b, self.tiles, a, by, c)

    def more(self, b: Builder, a: Operand, by: Operand, c: Operand) -> dict[Kind, str]:
        return {}

    def packed(self, b: Builder, rows: str, k: str) -> None:
        pass

    def define(self, b: Builder, c: Operand) -> None:
        self.tiles.define(b)
        _emit_store_rows(b, c)
        _emit_block(b, self.tiles)
        with b.function("define internal void @finish(ptr %state)"):
            b(f"call void @store_rows(ptr %state, i64 {SIDE})")
            b("ret void")


def _emit_block(b: Builder, tiles: Tiles) -> None:
    """``block``: multiplies, and stores all rows that wait. Its own wait, then."""
    b.declare("void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    with b.function(f"define internal void @block({BLOCK})"):
        tiles.enter(b)
        left = _field(b, 3)
        waiting = b.op(f"load i64, ptr {left}, align 8")
        enough = b.op(f"add i64 {waiting}, {b.op('sub i64 %steps, 1')}")
        each = b.op(f"udiv i64 {enough}, %steps")
        with b.when("%first"):
            for tile in range(4):
                tiles.zero(b, tile)
        with b.when(b.op("xor i1 %first, true")):
            for tile in range(4):
                tiles.load(b, tile, _sums_at(b, tile), str(SUMS_ROW))
        pointers = [("ptr", "%a"), ("ptr", "%b"), ("ptr", "%next")]
        with b.carrying("0", "%steps", "1", pointers) as turn:
            a, panel, following = turn.values
            _emit_step(b, tiles, a, panel)
            with b.loop("0", "%ahead") as i:
                at = b.op(f"mul i64 {i}, {_LINE}")
                _prefetch(b, b.op(f"getelementptr i8, ptr {following}, i64 {at}"), 2)
            with b.when(b.op(f"icmp ne i64 {each}, 0")):
                b(f"call void @store_rows(ptr %state, i64 {each})")
            skipped = b.op(f"mul i64 %ahead, {_LINE}")
            turn.next = [
                b.op(f"getelementptr i8, ptr {a}, i64 {BLOCK_BYTES}"),
                b.op(f"getelementptr i8, ptr {panel}, i64 {BLOCK_BYTES}"),
                b.op(f"getelementptr i8, ptr {following}, i64 {skipped}"),
            ]
        for tile in range(4):
            tiles.store(b, tile, _sums_at(b, tile), str(SUMS_ROW))
        with b.when("%last"):
            waits = ("%sums", "%c", "%c_row", "%rows", "%columns")
            for index, value in enumerate(waits):
                kind = "ptr" if index < 2 else "i64"
                b(f"store {kind} {value}, ptr {_field(b, index)}, align 8")
        b("ret void")


def _sums_at(b: Builder, tile: int) -> str:
    skipped = tile // 2 * ROWS * SUMS_ROW + tile % 2 * 64
    return b.op(f"getelementptr i8, ptr %sums, i64 {skipped}")


def _emit_step(b: Builder, tiles: Tiles, a: str, panel: str) -> None:
    """Tiles 0 to 3 are the sums, 4 and 5 rows of A, 6 and 7 columns of B. Loads are
    spread, so that the first products don't wait for the last load."""

    def at(base: str, skipped: int) -> str:
        return b.op(f"getelementptr i8, ptr {base}, i64 {skipped}")

    tiles.load(b, 6, panel, "128")
    tiles.load(b, 4, a, "64")
    _prefetch_rows(b, a, BLOCK_BYTES)
    tiles.load(b, 5, at(a, BLOCK_BYTES // 2), "64")
    tiles.multiply(b, 0, 4, 6)
    tiles.load(b, 7, at(panel, 64), "128")
    _prefetch_rows(b, a, BLOCK_BYTES + BLOCK_BYTES // 2)
    tiles.multiply(b, 2, 5, 6)
    tiles.multiply(b, 1, 4, 7)
    tiles.multiply(b, 3, 5, 7)


def _prefetch_rows(b: Builder, a: str, start: int) -> None:
    """A tile of A that the next step loads, into the L1 cache."""
    for row in range(ROWS):
        place = f"getelementptr i8, ptr {a}, i64 {start + row * _LINE}"
        _prefetch(b, b.op(place), 3)


def _prefetch(b: Builder, address: str, level: int) -> None:
    """level: 3 for the L1 cache, 2 for L2."""
    b(f"call void @llvm.prefetch.p0(ptr {address}, i32 0, i32 {level}, i32 1)")


def _field(b: Builder, index: int) -> str:
    return b.op(f"getelementptr {PENDING}, ptr %state, i64 0, i32 {index}")


def _emit_store_rows(b: Builder, c: Operand) -> None:
    with b.function("define internal void @store_rows(ptr %state, i64 %most)"):
        fields = [_field(b, i) for i in range(5)]
        kinds = ("ptr", "ptr", "i64", "i64", "i64")
        values = [
            b.op(f"load {kind}, ptr {field}, align 8")
            for kind, field in zip(kinds, fields, strict=True)
        ]
        sums, target, step, left, columns = values
        count = minimum(b, "%most", left)
        places = [("ptr", sums), ("ptr", target)]
        with b.carrying("0", count, "1", places) as turn:
            source, to = turn.values
            row = b.op(f"load <{SIDE} x float>, ptr {source}, align 64")
            c.write(b, row, to, columns)
            turn.next = [
                b.op(f"getelementptr i8, ptr {source}, i64 {SUMS_ROW}"),
                b.op(f"getelementptr i8, ptr {to}, i64 {step}"),
            ]
        for field, value in zip(fields[:2], turn.values, strict=True):
            b(f"store ptr {value}, ptr {field}, align 8")
        b(f"store i64 {b.op(f'sub i64 {left}, {count}')}, ptr {fields[3]}, align 8")
        b("ret void")

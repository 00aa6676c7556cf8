"""Copies of transposed matrices: squares of as many rows as vectors have lanes.

The last squares of rows and columns overlap those before them, instead of being
smaller; a matrix that is no square large goes number by number.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treadle import dtypes
from treadle.backends.cpu.emit import access
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.lapack.lanes import place, slab

_BLOCK = 16
"""Columns whose numbers stay in the cache while they are moved one by one."""

_DTYPES = {4: dtypes.float32, 8: dtypes.float64}
"""What vectors move numbers of so many bytes as."""


class Turn(NamedTuple):
    """A copy: where to, from where, rows and columns of the result, and how many
    numbers apart rows of the result and of the operand begin."""

    to: str
    source: str
    rows: str
    columns: str
    apart: str
    stride: str


def emit(b: Builder, turn: Turn, itemsize: str) -> None:
    """The copy, of numbers of 4, 8 or 16 bytes."""
    for nbytes in (4, 8, 16):
        with b.when(b.op(f"icmp eq i64 {itemsize}, {nbytes}")):
            dtype = _DTYPES.get(nbytes)
            if dtype is None:
                _emit_numbers(b, turn, nbytes)
                continue
            count = slab(dtype).count
            large = [
                b.op(f"icmp sge i64 {n}, {count}") for n in (turn.rows, turn.columns)
            ]
            whole = b.op(f"and i1 {large[0]}, {large[1]}")
            with b.when(whole):
                _emit_squares(b, turn, dtype)
            with b.when(b.op(f"xor i1 {whole}, true")):
                _emit_numbers(b, turn, nbytes)


def _emit_squares(b: Builder, turn: Turn, dtype: np.dtype) -> None:
    of, size = slab(dtype), str(dtype.itemsize)

    def line(base: str, row: str, step: str, column: str) -> str:
        index = b.op(f"add i64 {b.op(f'mul i64 {row}, {step}')}, {column}")
        return place(b, base, (index, size))

    last_row = b.op(f"sub i64 {turn.rows}, {of.count}")
    last_column = b.op(f"sub i64 {turn.columns}, {of.count}")
    lanes = range(of.count)
    with (
        b.loop("0", turn.rows, str(of.count)) as row,
        b.loop("0", turn.columns, str(of.count)) as column,
    ):
        i, j = b.least(row, last_row), b.least(column, last_column)
        found = []
        for k in lanes:
            address = line(turn.source, b.op(f"add i64 {j}, {k}"), turn.stride, i)
            found.append(access.load(b, address, dtype, of.count, None))
        for k, vector in enumerate(of.lanes.transposed(found)):
            address = line(turn.to, b.op(f"add i64 {i}, {k}"), turn.apart, j)
            access.store(b, address, vector, dtype, None)


def _emit_numbers(b: Builder, turn: Turn, nbytes: int) -> None:
    kind = f"i{8 * nbytes}"

    def at(base: str, row: str, step: str, column: str) -> str:
        index = b.op(f"add i64 {b.op(f'mul i64 {row}, {step}')}, {column}")
        return b.op(f"getelementptr {kind}, ptr {base}, i64 {index}")

    with b.loop("0", turn.columns, str(_BLOCK)) as first:
        last = b.least(b.op(f"add i64 {first}, {_BLOCK}"), turn.columns)
        with b.loop("0", turn.rows) as i, b.loop(first, last) as j:
            x = b.op(f"load {kind}, ptr {at(turn.source, j, turn.stride, i)}, align 4")
            b(f"store {kind} {x}, ptr {at(turn.to, i, turn.apart, j)}, align 4")

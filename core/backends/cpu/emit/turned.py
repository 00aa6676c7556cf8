"""Row nests seen across their rows: the last outer loop as the inner one.

What a nest computes once a row is computed for as many rows at a time as vectors have
lanes. Its arrays are read and written as turned blocks (`turn.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from treadle.backends.cpu.emit.access import Arguments, load, read, store
from treadle.backends.cpu.emit.body import Body, Frame
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import half_name
from treadle.backends.cpu.emit.tasks import split_axis
from treadle.backends.cpu.emit.turn import turned_in, turned_out
from treadle.kernels.lower import (
    NestOrder,
    Sweep,
    is_reduction,
    is_running,
    is_store,
    schedule,
)
from treadle.kernels.nest import BROADCAST, STRIDED, Instr, Nest


def may_be_turned(nest: Nest) -> bool:
    """Whether rows of this nest end with reductions, and may run together."""
    if nest.axis != "inner" or split_axis(nest) != "rows":
        return False
    if not any(map(is_reduction, nest.body)) or any(map(is_running, nest.body)):
        return False
    return not any(
        is_store(i) and (i.name != "store" or nest.operands[i.attr].gathers)
        for i in nest.body
    )


def turned_plan(nest: Nest) -> NestOrder:
    """The order of work of a nest whose inner loop is the last outer one, and its mid
    loop the inner one: what `Body` needs to know of it."""
    operands = [
        o._replace(inner=STRIDED, mid=o.inner != BROADCAST, beside=False)
        for o in nest.operands
    ]
    turned = replace(
        nest, outer=nest.outer - 1, mid=1, axis="mid", operands=(*operands,)
    )
    return replace(schedule(nest), nest=turned, varying=schedule(turned).varying)


def turned_arguments(b: Builder, arguments: Arguments, turned: Nest) -> Arguments:
    accesses = [
        replace(
            a,
            operand=o,
            outer=a.outer[:-1],
            mid=[a.inner],
            inner=read(b, a.outer[-1]),
        )
        for a, o in zip(arguments.accesses, turned.operands, strict=True)
    ]
    *outer, inner = arguments.outer
    return replace(
        arguments, outer=outer, mid=[arguments.inner], inner=inner, accesses=accesses
    )


def kept_dtype(dtype: np.dtype) -> np.dtype:
    """Half floats are kept as they are in registers."""
    return np.dtype(np.float32) if half_name(dtype) else dtype


def part_dtypes(nest: Nest, instr: Instr) -> list[np.dtype]:
    """Of a reduction's parts, as they are kept."""
    source = kept_dtype(nest.body[instr.args[0]].dtype)
    is_index = instr.name.startswith("reduce_arg")
    return [source, instr.dtype] if is_index else [source]


def vector_at(b: Builder, lanes: int, block: str, dtype: np.dtype, number: str) -> str:
    """The address of a vector of a block."""
    if number == "0":
        return block
    if number.isdigit():
        bytes_ = int(number) * lanes * dtype.itemsize
        return b.op(f"getelementptr i8, ptr {block}, i64 {bytes_}")
    offset = b.op(f"mul i64 {number}, {lanes * dtype.itemsize}")
    return b.op(f"getelementptr i8, ptr {block}, i64 {offset}")


class TurnedArrays:
    """The arrays of a turned nest that are in turned blocks, by operand.

    body: of the turned nest. columns: elements of a row.
    """

    def __init__(self, body: Body, blocks: Mapping[int, str], columns: str) -> None:
        self.body, self.blocks, self.columns = body, blocks, columns
        self.nest, self.arguments = body.nest, body.arguments

    def groups(
        self,
        plan: NestOrder,
        span: tuple[list[str], str, str],
        suits: str,
        sweep: Callable[[Sweep, Frame], None],
    ) -> str:
        """Emits the rows of a span (positions, first, last), as many at a time as there
        are lanes, if that `suits`; returns the first row that is left."""
        b, lanes, (start, first, last) = self.body.b, self.body.lanes, span
        whole = b.op(f"and i64 {b.op(f'sub i64 {last}, {first}')}, {-lanes}")
        whole = b.op(f"select i1 {suits}, i64 {whole}, i64 0")
        end = b.op(f"add i64 {first}, {whole}")
        with b.loop(first, end, str(lanes)) as top:
            held = Frame(start, 1, top)
            self.move(held, stores=False)
            for s, part in enumerate(plan.sweeps):
                for i in plan.held[s]:
                    self.run(i, held)
                sweep(part, held)
            for i in plan.held[-1]:
                self.run(i, held)
            self.move(held, stores=True)
        return end

    def move(self, held: Frame, stores: bool) -> None:
        """Reads the blocks of all arrays that are read, or writes those others."""
        b = self.body.b
        stored = {i.attr for i in self.nest.body if is_store(i)}
        for k, block in self.blocks.items():
            if (k in stored) != stores:
                continue
            access = self.arguments.accesses[k]
            offset = b.op(f"mul i64 {held.index}, {access.inner}")
            far = access.moved(b, held.positions[k], offset)
            along, columns = "0", "1"
            if access.operand.mid:
                along, columns = read(b, access.mid[0]), self.columns
            if access.operand.mid and access.operand.back:
                end = b.op(f"mul i64 {self._last()}, {along}")
                far, along = access.moved(b, far, end), "1"
            turn = turned_out if stores else turned_in
            width, lanes = 8 * access.operand.dtype.itemsize, self.body.lanes
            turn(b, width, lanes, far, (access.inner, along), columns, block)

    def _last(self) -> str:
        """The last column, which rows that go backwards begin with in memory."""
        return self.body.b.op(f"sub i64 {self.columns}, 1")

    def run(self, i: int, frame: Frame, column: str = "0") -> None:
        """Emits instruction i for all rows, and one column if it depends on that."""
        b, lanes, instr = self.body.b, self.body.lanes, self.nest.body[i]
        block = None
        if instr.name == "load" or is_store(instr):
            block = self.blocks.get(instr.attr)
        if block is None:
            self.body.run(i, frame)
            return
        dtype = self.nest.operands[instr.attr].dtype
        operand = self.nest.operands[instr.attr]
        at = column if operand.mid else "0"
        if operand.mid and operand.back:
            at = b.op(f"sub i64 {self._last()}, {column}")
        place = vector_at(b, lanes, block, dtype, at)
        if instr.name == "load":
            frame.values[i] = [load(b, place, dtype, lanes, None)]
        else:
            store(b, place, frame.get(instr.args[0], 0, lanes), dtype, None)

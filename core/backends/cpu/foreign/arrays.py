"""The kernel that calls C functions on memory, for each example of a batch.

``void foreign(ptr args, i64 task)``, with 64-bit words: those of `Word`, then for each
operand and result its address and the bytes from one example to the next, then the
lengths of all their axes. A task calls for some examples
``void function(void **buffers, const int64_t *sizes)``.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from functools import cache
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.parts import Args, share
from treadle.backends.cpu.run import native
from treadle.late import number
from treadle.trace.foreign import Function, address_of
from treadle.trace.routine import nbytes_behind

_SYMBOL = "foreign_calls"
_TASKS_PER_THREAD = 4


class Word(IntEnum):
    """Words of the arguments, before the buffers'."""

    TASKS = 0
    EXAMPLES = 1
    FUNCTION = 2
    BUFFERS = 3


def tasks(examples: int, threads: int) -> int:
    """The number of tasks: what a call takes is not known."""
    return number(_tasks, (examples, threads), low=1)


def _tasks(examples: int, threads: int) -> int:
    return max(1, min(examples, _TASKS_PER_THREAD * threads if threads > 1 else 1))


def words(
    function: Function, types: Sequence[ArrayType], places: Sequence[Any], lead: int
) -> list[Any]:
    """The arguments behind the number of tasks, for operands and results of these types
    at these places, of which some leading axes are the batch's."""
    examples = math.prod(types[0].shape[:lead])
    found: list[Any] = [examples, address_of(function), len(types)]
    for t, place in zip(types, places, strict=True):
        found += [place, nbytes_behind(t, lead)]
    return found + [n for t in types for n in t.shape[lead:]]


@cache
def source() -> native.Source:
    """The one kernel for all functions."""
    return native.Source(_SYMBOL, _SYMBOL, _emit)


def _emit() -> str:
    b = Builder()

    def item(base: str, index: str) -> str:
        return b.op(f"getelementptr i64, ptr {base}, i64 {index}")

    with b.function(
        f'define void @"{_SYMBOL}"(ptr %args, i64 %task, i64 %slot) nounwind'
    ):
        args = Args(b)
        count, function = args(Word.BUFFERS), args(Word.FUNCTION, "ptr")
        table = args.at(len(Word))
        sizes = item(table, b.op(f"mul i64 {count}, 2"))
        buffers = b.op(f"alloca ptr, i64 {count}")
        examples = share(b, "%task", args(Word.EXAMPLES), args(Word.TASKS))
        with b.loop(*examples) as example:
            with b.loop("0", count) as i:
                entry = item(table, b.op(f"mul i64 {i}, 2"))
                base = b.op(f"load ptr, ptr {entry}")
                step = b.op(f"load i64, ptr {item(entry, '1')}")
                offset = b.op(f"mul i64 {step}, {example}")
                place = b.op(f"getelementptr i8, ptr {base}, i64 {offset}")
                slot = b.op(f"getelementptr ptr, ptr {buffers}, i64 {i}")
                b(f"store ptr {place}, ptr {slot}")
            b(f"call void {function}(ptr {buffers}, ptr {sizes})")
        b("ret void")
    return b.text()


def call(
    function: Function, arrays: Sequence[np.ndarray], outs: Sequence[Any], lead: int
) -> None:
    """Calls it at once, on contiguous arrays of NumPy's; writes the results."""
    whole = [*arrays, *outs]
    types = [ArrayType(a.shape, a.dtype) for a in whole]
    found = words(function, types, [a.ctypes.data for a in whole], lead)
    _kernel()(np.array([1, *found], np.int64).ctypes.data, 0, 0)


@cache
def _kernel() -> Callable[..., None]:
    address = native.load([source()])[_SYMBOL]
    return ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64)(
        address
    )

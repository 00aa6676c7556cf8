"""Transforms of lines of open length: which kernel takes them is one of the words.

``void open(ptr args, i64 task)``, with the words of `own.Word`, after them whether the
length is one of small factors, and then, for all others, those of `schedule.Word`. All
that depends on the length is computed for each one as where it is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.fourier import own, schedule
from treadle.backends.cpu.fourier.kernel import emit_calls
from treadle.backends.cpu.fourier.library import loop
from treadle.backends.cpu.fourier.stockham import emit_transform
from treadle.backends.cpu.gemm.parts import Args
from treadle.backends.cpu.run.native import Source
from treadle.late import number, numbers
from treadle.trace.routine import Kind, Transform

_OURS = len(own.Word)
_OTHERS = _OURS + 1
"""Where a word says which kernel it is, and where those of the library's begin."""


@cache
def source(itemsize: int) -> Source:
    """The kernel for parts of 4 or 8 bytes."""
    symbol = f"fourier_open_{8 * itemsize}"
    return Source(symbol, symbol, lambda: _emit(symbol, itemsize))


def _emit(symbol: str, itemsize: int) -> str:
    b = Builder()
    emit_transform(b, own.lanes_of(itemsize), "internal void @ours")
    emit_calls(b, "internal void @others")
    with b.function(
        f'define void @"{symbol}"(ptr %args, i64 %task, i64 %slot) nounwind'
    ):
        args = Args(b)
        ours = b.op(f"icmp eq i64 {args(_OURS)}, 1")
        with b.when(ours):
            b("call void @ours(ptr %args, i64 %task, i64 %slot)")
        with b.when(b.op(f"xor i1 {ours}, true")):
            b(f"call void @others(ptr {args.at(_OTHERS)}, i64 %task, i64 %slot)")
        b("ret void")
    return b.text()


def tasks(t: Transform, threads: int) -> int:
    """The number of tasks."""
    return number(_tasks, (threads, *_flat(t)), low=1)


def scratch(t: Transform) -> int:
    """Bytes that a task needs."""
    return number(_scratch, _flat(t))


def words(
    t: Transform,
    tasks: int,
    scratch_at: Any,
    places: Sequence[Any],
    itemsizes: Sequence[int],
) -> list[Any]:
    """The words after the number of tasks. places, itemsizes: of operand and result."""
    ours = numbers(_words_of_ours, (*itemsizes, *_flat(t)))
    others = numbers(_words_of_others, (tasks, *itemsizes, *_flat(t)))
    before = schedule.Word.OPERAND - schedule.Word.LOOP
    return [
        *(scratch_at, scratch(t), *places, *ours),
        *(tasks, *others[:before], *places, *others[before:]),
    ]


def _flat(t: Transform) -> tuple[Any, ...]:
    return (*t[:6], *t.lengths, *t.between, *t.within)


def _transform(
    kind: Kind,
    dtype: np.dtype,
    n: int,
    power: float,
    outer: int,
    inner: int,
    *pairs: int,
) -> Transform:
    """That of which there are the numbers one by one."""
    lengths, between, within = pairs[:2], pairs[2:4], pairs[4:]
    return Transform(
        *(kind, dtype, n, power, outer, inner),
        *(lengths, between, within),  # type: ignore[arg-type]
    )


def _tasks(threads: int, *flat: Any) -> int:
    t = _transform(*flat)
    form = own.form(t)
    return own.tasks(t, form, threads) if form else schedule.tasks(t, threads)


def _scratch(*flat: Any) -> int:
    t = _transform(*flat)
    form = own.form(t)
    return own.scratch(t, form) if form else 0


def _words_of_ours(size_in: int, size_out: int, *flat: Any) -> list[int]:
    t = _transform(*flat)
    form = own.form(t)
    if form is None:
        return [0] * (_OURS - own.Word.OUTER + 1)
    return [*own.words_of_lines(t, form, (size_in, size_out)), 1]


def _words_of_others(tasks: int, size_in: int, size_out: int, *flat: Any) -> list[int]:
    t = _transform(*flat)
    inner_loop = loop(t.kind, t.dtype)
    first, rest = schedule.words_around(t, tasks, inner_loop, (size_in, size_out))
    return [*first, *rest]

"""Products of half floats of few rows, which take as long as it takes to read B.

Nothing of B is packed: words (of two k of bfloat16) are made of it in registers, as
`turned` says where k is contiguous, as in ``x @ w.T``, and `streamed` where columns
are. What is added, and in which order, is the same as in all other products of them::

    for each batch element
        copy the rows of A
        for each chunk of columns
            turned: for each 32 columns, for each 32 k: add to sums
            streamed: for each 16 k, for each 32 or 64 columns: add to sums
            write sums; epilogue
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from treadle.backends.cpu.bfloat.unit import (
    LINE_BYTES,
    SIDE,
    SUMS_ROW,
    Operand,
    skipped,
)
from treadle.backends.cpu.emit.builder import Builder, Carried
from treadle.backends.cpu.gemm.arguments import ProductWord, Word
from treadle.backends.cpu.gemm.parts import (
    Args,
    call_epilogue,
    minimum,
    operand_at,
    own_scratch,
    owned_by_task,
)
from treadle.backends.cpu.run.divided import COLD

FEW_ROWS = 8
"""Most rows whose sums are made at once."""

HEIGHTS = 1, 4, FEW_ROWS
"""Rows whose sums are made. Those that A hasn't are made of whatever lies in scratch,
and not written."""

COLUMNS = "ptr %args, ptr %a, ptr %sums, i64 %b0, i64 %b1, i64 %rows, i64 %n0, i64 %n1"
"""Columns of a batch element, and the copied rows of A, `A_STRIDE` bytes apart."""

WORDS = f"<{SIDE // 2} x i32>"
FLOATS = f"<{SIDE // 2} x float>"
SUMS_BLOCK = FEW_ROWS * SUMS_ROW
"""Bytes of the sums of 32 columns."""


class Adds(Protocol):
    """What the kernels need of a unit."""

    def added(
        self,
        b: Builder,
        sums: Sequence[Sequence[str]],
        lines: Sequence[str],
        steps: Sequence[Sequence[str]],
    ) -> list[list[str]]:
        """Rows of vectors of sums, and the products of the pairs of a line of each row
        and of vectors of pairs, as many as sums, for each pair: `steps`."""

    def turned(self, b: Builder, rows: Sequence[str]) -> list[str]:
        """Of sixteen words of each of sixteen rows, vectors of the same one of each."""


class Around(Protocol):
    """What a task does beside multiplying."""

    def configure(self, b: Builder) -> None: ...

    def release(self, b: Builder) -> None: ...

    def prepare(self, b: Builder, rows: str, step: str, k: str) -> None:
        """Once the rows of A are copied, so many bytes apart."""


def emit_task(
    b: Builder,
    name: str,
    a: Operand,
    by: Operand,
    step: int,
    along: int = SIDE,
    around: Around | None = None,
) -> None:
    """Defines a function of a task, which calls that of the same name for chunks of
    columns.

    step: which word says how far columns of B are apart, or rows, that are read side by
    side. along: k that are read at a time: behind the last ones rows of A have zeros.
    around: if given, lines of B are not read from those of memory on.
    """
    with b.function(
        f"define internal void @{name}_batch(ptr %args, ptr %scratch, i64 %b0, "
        "i64 %b1, i64 %first, i64 %last)"
    ):
        args = Args(b)
        start = operand_at(b, by, args, Word.B, "0", "%first")
        shifted = by.dtype.itemsize == 2 and around is None
        head = _head(b, by, start, args(step)) if shifted else "0"
        rows, skip = args(ProductWord.ROWS), args(ProductWord.A_OFFSET)
        k = args(ProductWord.K)
        end = b.op(f"and i64 {b.op(f'add i64 {k}, {along - 1}')}, {-along}")
        # (Blocks of whole lines are not shifted by what is before the first one.)
        end = k if along == SIDE else end
        a_at = b.op(f"getelementptr i8, ptr %scratch, i64 {skip}")
        with b.loop("0", rows) as i:
            source = operand_at(b, a, args, Word.A, i, "0")
            line = skipped(b, a_at, i, args(ProductWord.A_STRIDE))
            first = head if step == Word.B + 4 else "0"
            with blocks(b, end, first, [("ptr", line)]) as (turn, count):
                if along != SIDE:
                    count = b.op(f"sub i64 {k}, {turn.index}")
                value = a.read(b, a.at(b, source, turn.index), count, SIDE)
                (place,) = turn.values
                b(f"store {a.vector(SIDE)} {value}, ptr {place}, align 64")
                turn.next = [after(b, place, a)]
        if around is not None:
            around.prepare(b, a_at, args(ProductWord.A_STRIDE), args(ProductWord.K))
        with b.loop("%first", "%last", args(ProductWord.CHUNK)) as n0:
            n1 = b.op(f"add i64 {n0}, {args(ProductWord.CHUNK)}")
            n1 = minimum(b, n1, "%last")
            b(
                f"call void @{name}_columns(ptr %args, ptr {a_at}, ptr %scratch, "
                f"i64 %b0, i64 %b1, i64 {rows}, i64 {n0}, i64 {n1}, i64 {head})"
            )
            call_epilogue(b, args, "true", ("%b0", "%b1", "0", rows, n0, n1))
        b("ret void")
    with b.function(
        f"define internal void @{name}(ptr %args, i64 %task, i64 %slot) " + COLD
    ):
        args = Args(b)
        (first, last), _, batches = owned_by_task(b, args, SIDE)
        scratch = own_scratch(b, args)
        if around is not None:
            around.configure(b)
        with b.loop(*batches) as batch:
            b0 = b.op(f"udiv i64 {batch}, {args(ProductWord.BATCH1)}")
            b1 = b.op(f"urem i64 {batch}, {args(ProductWord.BATCH1)}")
            b(
                f"call void @{name}_batch(ptr %args, ptr {scratch}, i64 {b0}, "
                f"i64 {b1}, i64 {first}, i64 {last})"
            )
        if around is not None:
            around.release(b)
        b("ret void")


def _head(b: Builder, by: Operand, start: str, step: str) -> str:
    """How many elements there are before a line of memory begins, in all columns, or
    rows; 0 if that differs. What is pages apart shares few lines of the L1 cache: what
    is there of one line is gone before the rest of it is read."""
    size = by.dtype.itemsize
    address = b.op(f"ptrtoint ptr {start} to i64")
    within = b.op(f"and i64 {b.op(f'sub i64 0, {address}')}, {LINE_BYTES - 1}")
    odd = b.op(f"mul i64 {step}, {size}")
    odd = b.op(f"and i64 {odd}, {LINE_BYTES - 1}")
    odd = b.op(f"or i64 {odd}, {b.op(f'and i64 {within}, 3')}")
    alike = b.op(f"icmp eq i64 {odd}, 0")
    return b.op(f"select i1 {alike}, i64 {b.op(f'udiv i64 {within}, {size}')}, i64 0")


@contextmanager
def blocks(
    b: Builder,
    length: str,
    head: str,
    carried: Sequence[tuple[str, str]],
    each: int = SIDE,
) -> Iterator[tuple[Carried, str]]:
    """The loop over so many elements at a time, after `head` ones: with how many there
    are."""
    with b.carrying("0", length, "0", carried) as turn:
        turn.step = b.op(
            f"select i1 {is_head(b, head, turn.index)}, i64 {head}, i64 {each}"
        )
        yield turn, minimum(b, turn.step, b.op(f"sub i64 {length}, {turn.index}"))


def is_head(b: Builder, head: str, index: str) -> str:
    start = b.op(f"icmp eq i64 {index}, 0")
    return b.op(f"and i1 {start}, {b.op(f'icmp ne i64 {head}, 0')}")


def after(b: Builder, place: str, of: Operand) -> str:
    """Where the next 32 k are, packed."""
    return b.op(f"getelementptr i8, ptr {place}, i64 {4 * SIDE // of.group}")


def by_height(b: Builder, call: str, rows: str) -> None:
    """Calls the function of as many rows as there are, or of a few more; `call` has a
    place for how many."""
    lower = 0
    for height in HEIGHTS:
        above = b.op(f"icmp sgt i64 {rows}, {lower}")
        within = b.op(f"icmp sle i64 {rows}, {height}")
        with b.when(b.op(f"and i1 {above}, {within}")):
            b(call.format(height))
        lower = height


def emit_write(
    b: Builder, name: str, c: Operand, order: Sequence[int] | None = None
) -> None:
    """``NAME_write``: sums of some rows and up to 32 columns, of which the first `over`
    are others'.

    order: where columns are among sums, if not in their order.
    """
    with b.function(
        f"define internal void @{name}_write(ptr %args, ptr %sums, i64 %b0, i64 %b1, "
        "i64 %row, i64 %rows, i64 %n, i64 %count, i64 %over)"
    ):
        args, floats = Args(b), f"<{SIDE} x float>"
        sums = skipped(b, "%sums", "%over", 4)
        with b.loop("0", "%rows") as i:
            place = skipped(b, sums, i, SUMS_ROW)
            value = b.op(f"load {floats}, ptr {place}, align 4")
            if order is not None:
                picks = ", ".join(f"i32 {lane}" for lane in order)
                value = b.op(
                    f"shufflevector {floats} {value}, {floats} poison, "
                    f"<{SIDE} x i32> <{picks}>"
                )
            row = b.op(f"add i64 {i}, %row")
            c.write(b, value, operand_at(b, c, args, Word.C, row, "%n"), "%count")
        b("ret void")

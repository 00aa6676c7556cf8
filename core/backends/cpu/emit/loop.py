"""Writes a loop over few numbers as LLVM IR: an iteration's nests in one function.

Sizes, strides and the places of operands within their buffers are constants here, so
that nothing is left of a nest of few numbers but its arithmetic; a row that fits a
vector is one, without loops and, where it can be, masks. Every result has the bits that
the nests have by themselves: elements are computed alike whatever the lanes, and sums
combine the lanes in the same order.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from treadle.backends.cpu.emit.access import Access, Arguments
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.emit.nest import column_blocks, rows_at
from treadle.backends.cpu.emit.row import RowSweeps
from treadle.kernels.lower import schedule
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, PAIRED, Nest


class Reach(NamedTuple):
    """Where an operand is: a root's address, an offset, and a step for each iteration,
    in bytes."""

    root: int
    offset: int = 0
    step: int = 0


class Piece(NamedTuple):
    """A nest with its sizes, and of each operand the place (or an index's start) and
    the strides, as `Nest` has them; and where its scratch is."""

    nest: Nest
    outer: tuple[int, ...]
    mid: tuple[int, ...]
    inner: int
    operands: tuple[tuple[Reach | int, tuple[int, ...]], ...]
    scratch: Reach | None = None


class Move(NamedTuple):
    """A copy of bytes, or zeros if there is no source."""

    to: Reach
    source: Reach | None
    nbytes: int


class NativeLoop(NamedTuple):
    """A loop whose function is ``void (ptr args, i64 task)``. Its arguments are, after
    the number of tasks, that of iterations, and the addresses of `roots` buffers.

    swaps: roots that change places after each iteration. test: what runs before each;
    the loop ends where it leaves 0 at `flag`, and 1 is written there if the number of
    iterations is odd.
    """

    roots: int
    swaps: tuple[tuple[int, int], ...]
    body: tuple[Piece | Move, ...]
    test: tuple[Piece | Move, ...] = ()
    flag: Reach | None = None

    @property
    def key(self) -> str:
        """A name for the structure that is the same in every process."""
        parts = [
            (x.nest.digest, *x[1:]) if isinstance(x, Piece) else x
            for x in (*self.test, *self.body)
        ]
        words = (self.roots, self.swaps, len(self.test), self.flag, parts)
        return "loop " + hashlib.sha256(repr(words).encode()).hexdigest()


def emit(loop: NativeLoop, symbol: str) -> str:
    """The IR text of a module that defines `symbol` for this loop."""
    b = Builder()
    with b.function(
        f'define void @"{symbol}"(ptr %args, i64 %task, i64 %slot) nounwind'
    ):
        count = _word(b, 1, "i64")
        roots = [_word(b, 2 + k, "ptr") for k in range(loop.roots)]
        with _repeating(b, loop, count, roots) as writer:
            for part in loop.body:
                writer.run(part)
        b("ret void")
    return b.text()


def _word(b: Builder, at: int, kind: str) -> str:
    return b.op(f"load {kind}, ptr {b.op(f'getelementptr i64, ptr %args, i64 {at}')}")


@contextmanager
def _repeating(
    b: Builder, loop: NativeLoop, count: str, roots: Sequence[str]
) -> Iterator[_Writer]:
    """Emits the loop around what is emitted meanwhile."""
    index, following = b.name("i"), b.name("i")
    names = list(roots)
    turned = [k for pair in loop.swaps for k in pair]
    for k in turned:
        names[k] = b.name("root")
    before, head, after = b.block, b.fresh_label("head"), b.fresh_label("after")
    b(f"br label %{head}")
    b.label(head)
    slot = len(b.lines)
    b.lines.extend([""] * (1 + len(turned)))
    go, body = b.fresh_label("go"), b.fresh_label("body")
    more = b.op(f"icmp slt i64 {index}, {count}")
    b(f"br i1 {more}, label %{go}, label %{after}")
    b.label(go)
    writer = _Writer(b, names, index)
    for part in loop.test:
        writer.run(part)
    if loop.flag is not None:
        answer = b.op(f"load i8, ptr {writer.address(loop.flag)}")
        goes_on = b.op(f"icmp ne i8 {answer}, 0")
        b(f"br i1 {goes_on}, label %{body}, label %{after}")
        b.label(body)
    yield writer
    b(f"{following} = add nuw nsw i64 {index}, 1")
    b(f"br label %{head}")
    other = {k: j for x, y in loop.swaps for k, j in ((x, y), (y, x))}
    phis = [("i64", index, "0", following)]
    phis += [("ptr", names[k], roots[k], names[other[k]]) for k in turned]
    for at, (kind, name, first, then) in enumerate(phis):
        b.lines[slot + at] = (
            f"  {name} = phi {kind} [{first}, %{before}], [{then}, %{b.block}]"
        )
    b.label(after)
    if loop.flag is not None:
        odd = b.op(f"and i64 {index}, 1")
        b(f"store i8 {b.op(f'trunc i64 {odd} to i8')}, ptr {writer.address(loop.flag)}")


class _Writer:
    """Emits the parts of one iteration."""

    def __init__(self, b: Builder, roots: Sequence[str], index: str) -> None:
        self.b, self.roots, self.index = b, roots, index

    def address(self, reach: Reach) -> str:
        b, at = self.b, self.roots[reach.root]
        if reach.offset:
            at = b.op(f"getelementptr i8, ptr {at}, i64 {reach.offset}")
        if reach.step:
            moved = b.op(f"mul i64 {self.index}, {reach.step}")
            at = b.op(f"getelementptr i8, ptr {at}, i64 {moved}")
        return at

    def run(self, part: Piece | Move) -> None:
        if isinstance(part, Move):
            self._move(part)
        elif part.nest.axis == "inner":
            self._rows(part)
        else:
            column_blocks(self.b, part.nest, self._arguments(part), host_lanes())

    def _rows(self, piece: Piece) -> None:
        arguments, inner = self._arguments(piece), piece.inner
        lanes = min(host_lanes(), 1 << (inner - 1).bit_length())
        plan = schedule(piece.nest)
        sweeps = RowSweeps(self.b, plan, arguments, lanes, one=inner <= lanes)
        with rows_at(self.b, arguments, math.prod(piece.outer)) as positions:
            sweeps.row(positions, "0", str(inner))

    def _arguments(self, piece: Piece) -> Arguments:
        nest, accesses = piece.nest, []
        for operand, (where, strides) in zip(
            nest.operands, piece.operands, strict=True
        ):
            words = iter(map(str, strides))
            base = self.address(where) if isinstance(where, Reach) else str(where)
            outer = [next(words) for _ in piece.outer]
            mid = [next(words) for _ in piece.mid]
            along = {BROADCAST: "0", CONTIGUOUS: "1", PAIRED: "2"}.get(operand.inner)
            along = along or next(words)
            accesses.append(Access(operand, base, outer, mid, along, list(words)))
        outer, mid = [list(map(str, sizes)) for sizes in (piece.outer, piece.mid)]
        scratch = "null" if piece.scratch is None else self.address(piece.scratch)
        return Arguments("1", outer, mid, str(piece.inner), scratch, "0", accesses)

    def _move(self, move: Move) -> None:
        b = self.b
        to = self.address(move.to)
        if move.source is None:
            b.declare("void @llvm.memset.p0.i64(ptr, i8, i64, i1)")
            call = f"@llvm.memset.p0.i64(ptr {to}, i8 0, i64 {move.nbytes}, i1 false)"
        else:
            b.declare("void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)")
            source = self.address(move.source)
            call = f"@llvm.memmove.p0.p0.i64(ptr {to}, ptr {source}, "
            call += f"i64 {move.nbytes}, i1 false)"
        b(f"call void {call}")

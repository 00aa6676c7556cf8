"""Elementwise nests with rows that are no longer than a vector: one turn each.

A row needs no loop of its own then. Rows that are as long as a vector, or a half, a
quarter or an eighth of one, need no mask either; others share one, or are pieces, as
are all whose length is known when code is made for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from treadle.backends.cpu.emit.access import Arguments, Word
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.lanes import has_mask_registers, host_lanes
from treadle.backends.cpu.emit.outer import rows_of
from treadle.backends.cpu.emit.row import RowSweeps
from treadle.dims import hint, is_dim
from treadle.fuse.lowering.launches import Launch
from treadle.kernels.lower import cost, is_reduction, is_running, is_store, schedule
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, STRIDED, Nest

_LITTLE_WORK = 16
"""Instructions of a row, above which a loop of its own is a small part of it."""
_FULL_ENOUGH = 4
"""Elements of rows that much work is done on at once, at least."""
_IN_PIECES = 16
"""Rows no longer than this are moved in pieces of powers of two, where it is known how
long they are: also of more than a vector where those are half as long."""


def short_rows(
    b: Builder,
    nest: Nest,
    arguments: Arguments,
    lanes: int,
    span: tuple[str, str, str, str],
    known: int = 0,
) -> str:
    """Runs rows first..last, if low..high is no longer than a vector; returns the last
    row of what is left to do. Rows that are added to the same one follow each other,
    and a load waits until a store with a mask has reached the cache.

    known: how many elements they have, if there is no code for others.
    """
    first, last, low, high = span
    length = b.op(f"sub i64 {high}, {low}")
    for columns in [known] if known else _one_vector(lanes, reads_back(nest)):
        width = 1 << (columns - 1).bit_length()
        sweeps = RowSweeps(b, schedule(nest), arguments, width, one=True)
        part = None
        if columns < width:
            part = sweeps.part(low, high)._replace(few=columns)
        fits = b.op(f"icmp eq i64 {length}, {columns}")
        stop = b.op(f"select i1 {fits}, i64 {last}, i64 {first}")
        with rows_of(b, arguments, arguments.outer, first, stop) as (positions, _):
            sweeps.vector(positions, low, part)
        last = b.op(f"select i1 {fits}, i64 {first}, i64 {last}")
    if known:
        return last
    fits = b.op(f"icmp slt i64 {length}, {lanes}")
    stop = b.op(f"select i1 {fits}, i64 {last}, i64 {first}")
    if has_mask_registers():
        sweeps = RowSweeps(b, schedule(nest), arguments, lanes, one=True)
        part = sweeps.part(low, high)
        with rows_of(b, arguments, arguments.outer, first, stop) as (positions, _):
            sweeps.vector(positions, low, part)
    else:
        pieces = _Pieces(b, nest, arguments, lanes, length)
        with rows_of(b, arguments, arguments.outer, first, stop) as (positions, _):
            pieces.run(positions, low)
    return b.op(f"select i1 {fits}, i64 {first}, i64 {last}")


class _Pieces:
    """Rows of less than a vector as pieces of powers of two, where masks are dear."""

    def __init__(
        self, b: Builder, nest: Nest, arguments: Arguments, lanes: int, length: str
    ) -> None:
        self.b, self.accesses = b, arguments.accesses
        self.pieces: list[tuple[str, str, RowSweeps]] = []
        size = lanes // 2
        while size:
            bit = b.op(f"and i64 {length}, {size}")
            before = b.op(f"and i64 {length}, {-2 * size}")
            has = b.op(f"icmp ne i64 {bit}, 0")
            sweeps = RowSweeps(b, schedule(nest), arguments, size, one=True)
            self.pieces.append((has, before, sweeps))
            size //= 2

    def run(self, positions: Sequence[Word | str], low: str) -> None:
        """Emits a row that begins at `low`."""
        b = self.b
        for has, before, sweeps in self.pieces:
            with b.when(has):
                at = b.op(f"add i64 {low}, {before}")
                sweeps.vector(self._moved(positions, at), "0")

    def _moved(self, positions: Sequence[Word | str], at: str) -> Sequence[Word | str]:
        """Positions `at` elements further on: a single element has no index."""
        found = list(positions)
        for k, access in enumerate(self.accesses):
            inner = access.operand.inner
            if inner != BROADCAST:
                step = "1" if inner == CONTIGUOUS else access.inner
                offset = self.b.op(f"mul i64 {at}, {step}")
                found[k] = access.moved(self.b, positions[k], offset)
        return found


def _one_vector(lanes: int, waits: bool) -> list[int]:
    """The lengths of rows that have code without masks. waits: whether a row reads what
    the one before has stored: masks take longest then."""
    halves = [lanes >> k for k in range(4) if lanes >> k > 1]
    return [*halves, 3, 1] if waits else halves


def short_entry(launch: Launch) -> str:
    """The entry of `emit` for short rows, if this launch is worth their code; else
    nothing. No result depends on it, so sizes that are open count as in the trace, but
    where rows are added to others, which take long without."""
    nest, length = launch.nest, hint(launch.inner)
    if not has_short_rows(nest):
        return ""
    if not (_is_light(nest) or reads_back(nest) or takes_rows(launch)):
        return ""
    if is_dim(launch.inner):
        some = reads_back(nest) or 0 < length <= host_lanes()
        return "few" if some else ""
    if _is_in_pieces(length):
        return f"few{length}"
    return "few" if 0 < length <= host_lanes() else ""


def _is_in_pieces(columns: int) -> bool:
    """Whether rows of so many elements have code of their own, without masks: these
    take longer than three pieces, and without mask registers than any number."""
    most = 3 if has_mask_registers() else 4
    if columns > _IN_PIECES or columns.bit_count() > most:
        return False
    return columns.bit_count() > 1 or columns > host_lanes()


def takes_rows(launch: Launch) -> bool:
    """Whether what is read at places that data say is whole rows that are better taken
    in one instruction each than by vectors from row to row, element by element: where
    much is done with them, these have fuller vectors."""
    nest = launch.nest
    if not has_short_rows(nest) or not _reads_rows(nest):
        return False
    return hint(launch.inner) >= _FULL_ENOUGH or _is_light(nest)


@lru_cache(maxsize=4096)
def has_short_rows(nest: Nest) -> bool:
    """Whether there is such code for a nest: of elementwise work along rows, which
    takes little, or which waits for what the row before has stored, or for rows that
    lie anywhere."""
    plan = schedule(nest)
    if nest.axis != "inner" or not nest.outer or len(plan.sweeps) > 1:
        return False
    if any(is_reduction(i) or is_running(i) for i in nest.body):
        return False
    if any(is_store(nest.body[i]) for part in plan.held for i in part):
        return False
    if any(o.inner == STRIDED and o.kind == "array" for o in nest.operands):
        return False
    return _is_light(nest) or reads_back(nest) or _reads_rows(nest)


def _is_light(nest: Nest) -> bool:
    (sweep,) = schedule(nest).sweeps
    return sum(cost(nest.body[i]) for i in sweep.body) <= _LITTLE_WORK


def _reads_rows(nest: Nest) -> bool:
    """Whether places that data say are those of whole rows."""
    varying = schedule(nest).varying
    return any(
        instr.name == "load"
        and nest.operands[instr.attr].gathers > 0
        and nest.operands[instr.attr].inner == CONTIGUOUS
        and not any(varying[a] for a in instr.args)
        for instr in nest.body
    )


@lru_cache(maxsize=4096)
def reads_back(nest: Nest) -> bool:
    """Whether a nest adds rows to others, or combines them otherwise: what a row reads
    may have been written by the one before."""
    plan = schedule(nest)
    return any(
        is_store(instr)
        and instr.name != "store"
        and nest.operands[instr.attr].inner == CONTIGUOUS
        and not any(plan.varying[a] for a in instr.args[1:])
        for instr in nest.body
    )

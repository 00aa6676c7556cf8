"""Loops over the rows of a nest: where its operands stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from treadle.backends.cpu.emit.access import Access, Arguments, Word, read
from treadle.backends.cpu.emit.apart import rounds
from treadle.backends.cpu.emit.builder import Builder


def positions_at(
    b: Builder, arguments: Arguments, indices: list[str]
) -> list[Word | str]:
    """Where each operand stands at these leading outer indices."""
    positions: list[Word | str] = [a.base for a in arguments.accesses]
    for dim, index in enumerate(indices):
        positions = stepped(b, arguments, positions, dim, index)
    return positions


def stepped(
    b: Builder,
    arguments: Arguments,
    positions: Sequence[Word | str],
    dim: int,
    index: str,
) -> list[Word | str]:
    moved: list[Word | str] = []
    for access, position in zip(arguments.accesses, positions, strict=True):
        if _moves(access, dim):
            step = read(b, access.outer[dim])
            offset = b.op(f"mul i64 {index}, {step}")
            position = access.moved(b, position, offset)
        moved.append(position)
    return moved


def _moves(access: Access, dim: int) -> bool:
    return dim < len(access.outer) and not access.operand.fixed


class Segment(NamedTuple):
    """Rows that differ in their innermost index only: first..last of it.

    start: where the operands stand at index 0.
    """

    start: Sequence[Word | str]
    first: str
    last: str


@contextmanager
def rows_of(
    b: Builder,
    arguments: Arguments,
    sizes: list[str],
    first: str,
    last: str,
    apart: str | None = None,
) -> Iterator[tuple[list[Word | str], str]]:
    """Runs the body for collapsed indices first..last of dimensions `sizes`.

    Gives the positions of the operands and the innermost index. apart: whether
    neighbours don't follow each other (`apart.py`).
    """
    if not sizes:
        once = (first, last) == ("0", "1")
        with nullcontext() if once else b.loop(first, last):
            yield [read(b, a.base) for a in arguments.accesses], "0"
        return
    dim = len(sizes) - 1
    with (
        segments(b, arguments, sizes, first, last) as segment,
        rows_between(b, arguments, segment, dim, apart) as (positions, index),
    ):
        yield positions, index


@contextmanager
def rows_between(
    b: Builder,
    arguments: Arguments,
    segment: Segment,
    dim: int,
    apart: str | None = None,
) -> Iterator[tuple[list[Word | str], str]]:
    """Runs the body for the rows of a segment, whose index is that of dimension `dim`.
    Positions are added to from row to row: short rows would wait for products."""
    accesses = arguments.accesses
    moving = [k for k, access in enumerate(accesses) if _moves(access, dim)]
    kinds = ["i64" if a.operand.kind == "index" else "ptr" for a in accesses]
    with rounds(b, segment.first, segment.last, apart) as (first, step):
        if any(isinstance(access.base, Word) for access in accesses):
            with b.loop(first, segment.last, step) as index:
                yield stepped(b, arguments, segment.start, dim, index), index
            return
        positions = stepped(b, arguments, segment.start, dim, first)
        begin = [(kinds[k], read(b, positions[k])) for k in moving]
        steps = [read(b, accesses[k].outer[dim]) for k in moving]
        if step != "1":
            steps = [b.op(f"mul i64 {each}, {step}") for each in steps]
        with b.carrying(first, segment.last, step, begin) as turn:
            for k, name in zip(moving, turn.values, strict=True):
                positions[k] = name
            yield positions, turn.index
            turn.next = [
                b.op(f"freeze {kinds[k]} {accesses[k].moved(b, name, each)}")
                for k, name, each in zip(moving, turn.values, steps, strict=True)
            ]


@contextmanager
def segments(
    b: Builder, arguments: Arguments, sizes: list[str], first: str, last: str
) -> Iterator[Segment]:
    """Runs the body for the segments of collapsed indices first..last.

    Their starts are computed from the indices, which an odometer keeps: there is one
    division per dimension and task.
    """
    if len(sizes) == 1:
        yield Segment([a.base for a in arguments.accesses], first, last)
        return
    indices = _digits(b, sizes, first)
    with b.carrying(first, last, "", [("i64", i) for i in indices]) as turn:
        *leading, at = turn.values
        left = b.op(f"sub i64 {last}, {turn.index}")
        end = b.least(b.op(f"add i64 {at}, {left}"), sizes[-1])
        yield Segment(positions_at(b, arguments, leading), at, end)
        turn.step = b.op(f"sub i64 {end}, {at}")
        turn.next = [*_advanced(b, sizes[:-1], leading), "0"]


def _digits(b: Builder, sizes: list[str], number: str) -> list[str]:
    """The index of every dimension, of the collapsed index `number`."""
    digits = []
    for size in reversed(sizes[1:]):
        # A size of zero means an empty range: nothing will be run.
        empty = b.op(f"icmp eq i64 {size}, 0")
        divisor = b.op(f"select i1 {empty}, i64 1, i64 {size}")
        digits.append(b.op(f"urem i64 {number}, {divisor}"))
        number = b.op(f"udiv i64 {number}, {divisor}")
    return [number, *reversed(digits)]


def _advanced(b: Builder, sizes: list[str], digits: list[str]) -> list[str]:
    """The odometer's digits one step on."""
    result, carry = [], "1"
    for size, digit in zip(reversed(sizes), reversed(digits), strict=True):
        raised = b.op(f"add i64 {digit}, {carry}")
        full = b.op(f"icmp eq i64 {raised}, {size}")
        result.append(b.op(f"select i1 {full}, i64 0, i64 {raised}"))
        carry = b.op(f"zext i1 {full} to i64")
    return result[::-1]

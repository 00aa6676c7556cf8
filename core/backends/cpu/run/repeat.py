"""Loops whose iterations only call kernels, as one command.

Commands are decoded each time that they run, which takes longer than a kernel of a few
numbers. Here the arguments of all kernels of an iteration are laid out once; from one
iteration to the next, only the words change that differ: rows move on by their size,
and the two buffers of what is carried change places.

A loop in strands has as many tasks in each call, and what a task needs of other calls
the task of the same number has made. So each thread goes through all iterations of a
strand, and waits for no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from treadle.backends.cpu.run.executor import (
    GROUP_WORDS,
    Function,
    Indirect,
    Operand,
    ProgramBuilder,
    Recorded,
    Slot,
)
from treadle.backends.cpu.run.executor_ir import OPCODES
from treadle.dims import is_dim

ENDLESS = (1 << 63) - 1

_HEAD = 8
"""Words before the entries: iterations, entries of the test, entries, the address of
the test's answer, words that step, words that turn, pairs of slots; then the strands,
and above 32 bits the words of all."""


class _Block(NamedTuple):
    """What an entry calls: a function or the number of a command, how many tasks (0 if
    they are yet to be counted), and the arguments."""

    function: int | Function
    tasks: Operand
    words: Sequence[Operand]


def repeat(
    count: Operand,
    index: int | None,
    body: Sequence[Recorded],
    swaps: Sequence[tuple[int, int]],
    test: Sequence[Recorded] = (),
    flag: Operand = 0,
    strands: int = 1,
) -> list[Operand] | None:
    """The operands of a command that repeats others, or None if they are too many, or
    others than calls, or of operands that may change places.

    index: the slot that holds the iteration. swaps: slots that are exchanged after
    each. test, flag: what runs before each iteration, and where it leaves its answer.
    strands: the number of tasks of each call, if they go through all iterations alone.
    """
    blocks = [_block(command) for command in (*test, *body)]
    if not blocks or None in blocks:
        return None
    calls = [block for block in blocks if block is not None]
    turned = {a: (a, b) for a, b in swaps} | {b: (b, a) for a, b in swaps}
    entries, words = list[Operand](), list[Operand]()
    steps, turns = list[tuple[int, int]](), list[tuple[int, int]]()
    for function, tasks, operands in calls:
        entries += [function, len(words), tasks]
        for operand in operands:
            if isinstance(operand, Slot):
                if is_dim(operand.index):
                    return None  # whether it is one that turns is not known yet
                here = len(words)
                steps += [(here, d.scale) for d in operand.dynamic if d.slot == index]
                if operand.index in turned:
                    turns.append((here, _pair(*turned[operand.index])))
                others = [d for d in operand.dynamic if d.slot != index]
                operand = operand._replace(dynamic=tuple(others))
            words.append(operand)
    first = _HEAD + len(entries) + 2 * len(steps) + 2 * len(turns) + len(swaps)
    if first + len(words) > GROUP_WORDS:
        return None
    for at in range(1, len(entries), 3):
        entries[at] += first  # type: ignore[operator]  # a number of words
    apart = strands | (first + len(words)) << 32
    counts = [len(steps), len(turns), len(swaps), apart]
    return [
        *(count, len(test), len(calls), flag, *counts),
        *entries,
        *[word for at, scale in steps for word in (first + at, scale)],
        *[word for at, pair in turns for word in (first + at, pair)],
        *[_pair(a, b) for a, b in swaps],
        *words,
    ]


def _block(command: Recorded) -> _Block | None:
    """A command as a call."""
    name, operands = command
    if any(isinstance(x, Indirect) for x in operands):
        return None
    if name == "call":
        function, *words = operands
        assert isinstance(function, int | Function)
        return _Block(function, words[0], words)
    if name == "group":
        return _Block(OPCODES[name], 0, operands)
    if name in ("copy", "zero"):
        return _Block(OPCODES[name], operands[0], operands)
    return None


def _pair(a: int, b: int) -> int:
    return a | b << 32


@contextmanager
def repeating(builder: ProgramBuilder, only_calls: bool) -> Iterator[list[Any]]:
    """The commands of a loop; if they are only calls, then in a run that is not
    profiled one command instead, of the operands that the function gives which is left
    in the list."""
    made: list[Any] = []
    if not only_calls:
        yield made
        return
    start, short, end = [builder.label() for _ in range(3)]
    builder.shortcut(short)
    builder.place(start)
    yield made
    operands = made[0]()
    if operands is None:
        builder.place(short, start)
        return
    builder.jump(end)
    builder.place(short)
    builder.repeat(operands)
    builder.place(end)

"""Programs: command buffers that one compiled function walks without Python.

A program works on *slots*, an array of 64-bit words that the caller fills before each
run: addresses of buffers and plain numbers. Commands name slots by index::

    p = ProgramBuilder(slots=2)
    with p.loop(10) as i:
        row = Slot(0, dynamic=(Scaled(i, 4096),))
        p.call(kernel_address, [1024, row, Slot(1)], tasks=4)
    program = p.build()
    slots = numpy.zeros(program.slot_count, numpy.int64)
    status = program.run(slots.ctypes.data)

A kernel is ``void kernel(ptr arguments, i64 task, i64 slot)``. Word 0 of its arguments
is the number of tasks; the arguments given to `call` begin at word 1. The slot is the
number of the thread that runs the task: what memory of its own a thread has.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from treadle.backends.cpu.run import native, threads
from treadle.backends.cpu.run.executor_ir import (
    HEADER_WORDS,
    OPCODES,
    PROGRAM_WORDS,
    executor_ir,
)
from treadle.dims import Dim, hint, is_dim
from treadle.late import number
from treadle.records import record

GROUP_WORDS = 6144
"""A longer group is split: its block lives on the stack."""

PARALLEL_BYTES = 1 << 20
"""From this size on, copies and fills use several threads."""


ANY_THREADS = 1 << 30
"""No pool has as many."""

LOGGED_EVENTS = 1 << 16
"""How many events a profiled run logs, of 40 bytes each; sums go on behind them."""

_logs: list[np.ndarray] = []
"""Those that no run uses: to touch fresh memory while a program runs would be seen."""


@record(frozen=True, slots=True)
class Scaled:
    """``slots[slot] * scale``: a dynamic part of an address, in bytes."""

    slot: int
    scale: int


class Slot(NamedTuple):
    """``slots[index] + offset``, plus each of `dynamic`."""

    index: int  # type: ignore[assignment]  # a tuple's method, of no use here
    offset: int = 0
    dynamic: tuple[Scaled, ...] = ()


@record(frozen=True, slots=True)
class Indirect:
    """The number in memory at `address` when the command runs.

    dtype: "i32" or "i64" (signed), or "bool" (one byte).
    """

    address: Slot
    dtype: str = "i64"


class Function(NamedTuple):
    """The address of a kernel, by its key: known when the program is built."""

    key: str


Operand = int | Slot | Indirect | Function
Call = tuple[int | Function, Sequence[Operand], Operand]
"""Kernel, arguments, number of tasks."""


class Recorded(NamedTuple):
    """A command as it was given."""

    name: str
    operands: Sequence[Operand]


_WIDTHS = {"bool": 1, "i32": 4, "i64": 8}


class Label:
    """A place in a program. Made by `ProgramBuilder.label`."""

    __slots__ = ("offset",)

    def __init__(self) -> None:
        self.offset: int | None = None


@record(frozen=True, slots=True)
class Command:
    """Where a command begins in the program's words, and what it is."""

    start: int
    name: str
    note: str


class ProgramBuilder:
    """Collects commands. `build` gives the program."""

    def __init__(self, slots: int = 0) -> None:
        self.slot_count = slots
        self._words: list[int] = []
        self._block_words = 8
        self._commands: list[Command] = []
        self._jumps: list[tuple[int, Label]] = []
        self._functions: list[tuple[int, str]] = []
        self._keep: list[Any] = []
        self._recorded: list[Recorded] | None = None

    @property
    def command_count(self) -> int:
        return len(self._commands)

    def slot(self) -> int:
        """The index of a new slot. The caller of the program need not fill it."""
        self.slot_count += 1
        return self.slot_count - 1

    # Work

    def call(
        self,
        kernel: int | Function,
        arguments: Sequence[Operand],
        tasks: Operand = 1,
        note: str = "",
    ) -> None:
        """Runs a kernel for every task from 0 to `tasks`, on several threads if > 1."""
        self._command("call", [kernel, tasks, *arguments], note)

    def group(self, calls: Sequence[Call], note: str = "") -> None:
        """Runs kernels that don't depend on each other as one parallel region."""
        part: list[Call] = []
        words = 0
        for call in calls:
            size = 4 + len(call[1])
            if part and words + size > GROUP_WORDS:
                self._group(part, note)
                part, words = [], 0
            part.append(call)
            words += size
        if len(part) == 1:
            self.call(*part[0], note=note)
        elif part:
            self._group(part, note)

    def _group(self, calls: Sequence[Call], note: str) -> None:
        where = 2 + 3 * len(calls)
        table: list[Operand] = [len(calls), 0]
        blocks: list[Operand] = []
        for kernel, arguments, tasks in calls:
            table += [0, kernel, where + len(blocks)]
            blocks += [tasks, *arguments]
        self._command("group", table + blocks, note)

    def host(
        self, callback: int, arguments: Sequence[Operand] = (), note: str = ""
    ) -> int:
        """Calls ``i32 callback(ptr arguments)``; not 0 ends the program with that.
        Gives the place of the callback's address among the program's words."""
        self._command("host", [callback, *arguments], note)
        return self._commands[-1].start + HEADER_WORDS

    def copy(
        self, to: Operand, source: Operand, nbytes: Operand, tasks: int = 0
    ) -> None:
        """Copies memory. The two ranges must not overlap, unless they are the same.

        tasks: 0 for as many as that is worth.
        """
        self._command("copy", [tasks or _tasks_for(nbytes), to, source, nbytes])

    def fill_zero(self, to: Operand, nbytes: Operand, tasks: int = 0) -> None:
        self._command("zero", [tasks or _tasks_for(nbytes), to, nbytes])

    # Arithmetic on slots

    def set(self, slot: int, value: Operand) -> None:
        """``slots[slot] = value``, which may be an address, a sum, or read memory."""
        self._command("set", [slot, value])

    def advance(self, slot: int, step: int) -> None:
        self.set(slot, Slot(slot, step))

    def swap(self, a: int, b: int) -> None:
        self._command("swap", [a, b])

    # Control flow

    def label(self) -> Label:
        """A label for `place` and the jumps, in any order."""
        return Label()

    def place(self, label: Label, at: Label | None = None) -> None:
        """Lets `label` name the next command, or the one that another label names."""
        if label.offset is not None:
            raise ValueError("this label has been placed already")
        label.offset = at.offset if at else len(self._words)

    def jump(self, label: Label) -> None:
        self._jump("jump", label)

    def jump_if_less(self, a: Operand, b: Operand, label: Label) -> None:
        self._jump("jump_less", label, a, b)

    def shortcut(self, label: Label) -> None:
        """Jumps, but not in a profiled run."""
        self._jump("shortcut", label)

    def repeat(self, operands: Sequence[Operand]) -> None:
        """What `treadle.backends.cpu.run.repeat` has made of commands."""
        self._command("repeat", operands)

    @contextmanager
    def recording(self) -> Iterator[list[Recorded]]:
        """Gives the commands that are added meanwhile."""
        outer, self._recorded = self._recorded, []
        yield self._recorded
        outer, self._recorded = self._recorded, outer
        if self._recorded is not None:
            self._recorded += outer

    def jump_unless(self, condition: Operand, label: Label) -> None:
        """Jumps if `condition` is zero, as with ``Indirect(Slot(s), "bool")``."""
        self._jump("jump_equal", label, condition, 0)

    @contextmanager
    def loop(self, count: Operand, index: int | None = None) -> Iterator[int]:
        """Runs the body `count` times; gives the slot that holds the iteration.

        The body must not write that slot. `count` is read once, before the loop.
        """
        index = self.slot() if index is None else index
        if not isinstance(count, int):
            held = self.slot()
            self.set(held, count)
            count = Slot(held)
        top, after = self.label(), self.label()
        self.set(index, 0)
        self.jump_if_less(count, 1, after)
        self.place(top)
        yield index
        self.advance(index, 1)
        self.jump_if_less(Slot(index), count, top)
        self.place(after)

    def _jump(self, name: str, label: Label, *operands: Operand) -> None:
        self._jumps.append((len(self._words) + HEADER_WORDS, label))
        self._command(name, [0, *operands])

    # Encoding

    def _command(self, name: str, operands: Sequence[Operand], note: str = "") -> None:
        if self._recorded is not None:
            self._recorded.append(Recorded(name, operands))
        template: list[int] = []
        slots: list[int] = []
        scaled: list[int] = []
        loads: list[int] = []
        for i, operand in enumerate(operands):
            if type(operand) is int:
                template.append(_signed(operand) if operand >> 63 else operand)
                continue
            if type(operand) is Slot and not operand.dynamic:
                # (Its index may be an expression of open sizes.)
                slots.append(i + operand.index * (1 << 32))
                template.append(operand.offset)
                continue
            if isinstance(operand, Function):
                place = len(self._words) + HEADER_WORDS + i
                self._functions.append((place, operand.key))
                template.append(0)
                continue
            if isinstance(operand, Indirect):
                loads.append(i | _WIDTHS[operand.dtype] << 32)
                operand = operand.address
            if isinstance(operand, Slot):
                slots.append(i + operand.index * (1 << 32))
                for part in operand.dynamic:
                    scaled += [i | part.slot << 32, part.scale]
                template.append(operand.offset)
            else:
                template.append(_signed(operand))
        template += [0] * (-len(template) % 8)
        size = HEADER_WORDS + len(template) + len(slots) + len(scaled) + len(loads)
        counts = (len(template), len(slots), len(scaled) // 2, len(loads))
        self._commands.append(Command(PROGRAM_WORDS + len(self._words), name, note))
        self._words += [OPCODES[name], size, *counts]
        self._words += [*template, *slots, *scaled, *loads]
        self._block_words = max(self._block_words, len(template))

    def keep(self, thing: Any) -> None:
        """Keeps `thing` (a ctypes callback, a constant's array) with the program."""
        self._keep.append(thing)

    def build(
        self, functions: Mapping[str, int] | None = None, most: int | None = None
    ) -> Program:
        """The finished program. The builder must not be used after.

        functions: the addresses of kernels by key. most: for how many threads there is
          memory, if they need any; a pool of more doesn't help.
        """
        self._command("end", [])
        for position, key in self._functions:
            self._words[position] = _signed((functions or {})[key])
        for position, label in self._jumps:
            if label.offset is None:
                raise ValueError("a jump's label was never placed")
            self._words[position] = label.offset
        pool = threads.pool()
        addresses = map(_signed, (pool.address, pool.fork_join))
        header = [*addresses, self._block_words, most or ANY_THREADS]
        words = header + self._words
        sized = []
        if Dim in set(map(type, words)):
            sized = [(i, w) for i, w in enumerate(words) if is_dim(w)]
            words = list(map(hint, words))
        return Program(
            _integers(words),
            self.slot_count,
            self._commands,
            self._keep,
            pool,
            sized,
        )


def _integers(words: Sequence[int]) -> np.ndarray:
    try:
        return np.array(words, np.int64)
    except OverflowError:
        raise MemoryError("an array has more bytes than 64 bits can count") from None


class Measured(NamedTuple):
    """A profiled run.

    status: that of the run. seconds: how long it took.
    rows: for each command clock ticks, and how often it ran.
    events: the log of `executor_ir`, without its head. lost: events beyond it.
    base: an address on the caller's stack.
    """

    status: int
    seconds: float
    rows: list[tuple[Command, int, int]]
    events: np.ndarray
    lost: int
    base: int


class Program:
    """A command buffer ready to run. Any number of threads may run it at once.

    sizes: the words that depend on sizes which are open, with their places: such a
      program is not for running, but for `bind`.
    """

    def __init__(
        self,
        words: np.ndarray,
        slot_count: int,
        commands: list[Command],
        keep: list[Any],
        pool: threads.Pool,
        sizes: list[tuple[int, Any]] | None = None,
    ) -> None:
        self.words = words
        self.slot_count = slot_count
        self.commands = commands
        self._keep = keep
        self._pool = pool
        self._address = words.ctypes.data
        self._execute = _entry_point()
        unique = {size.key: size for _, size in sizes or ()}
        self.sizes = list(unique.values())
        numbers = {key: i for i, key in enumerate(unique)}
        self._sized = np.array([at for at, _ in sizes or ()], np.intp)
        self._layout = struct.Struct(f"{len(unique)}q")
        self._number = np.array([numbers[s.key] for _, s in sizes or ()], np.intp)

    def bind(self, values: Sequence[int], words: dict[int, int], keep: Any) -> Program:
        """The program with numbers for `sizes`, and some other words at their places.

        keep: what must live as long as the program.
        """
        made = self.words.copy()
        made[self._sized] = self._packed(values)[self._number]
        for at, word in words.items():
            made[at] = word
        kept = [keep, self._keep]
        return Program(made, self.slot_count, self.commands, kept, self._pool)

    def _packed(self, values: Sequence[int]) -> np.ndarray:
        # A third of the time that NumPy takes to look at each number.
        try:
            return np.frombuffer(self._layout.pack(*values), np.int64)
        except struct.error:
            return _integers(values)

    def run(self, slots: int) -> int:
        """Runs on the slots at address `slots`; gives 0 or a host function's status."""
        if self._pool.needs_start:
            self._pool.start()
        return self._execute(self._address, slots)

    def native(self) -> tuple[int, int, threads.Pool]:
        """For native callers: the address of ``i64 execute(ptr program, ptr slots)``,
        that of the program, and the pool, which they must start if it needs it."""
        execute = ctypes.cast(self._execute, ctypes.c_void_p).value
        assert execute is not None
        return execute, self._address, self._pool

    def profile(self, slots: int) -> Measured:
        """As `run`, with the time that each command takes."""
        if self._pool.needs_start:
            self._pool.start()
        record = np.zeros(len(self.words) + 2, np.int64)
        log = _logs.pop() if _logs else np.ones(4 + 5 * LOGGED_EVENTS, np.int64)
        log[:3] = (len(log) - 4) // 5, 0, 0
        execute = _profiled_entry_point()
        addresses = record.ctypes.data, log.ctypes.data
        began = time.perf_counter()
        status = execute(self._address, slots, *addresses)
        seconds = time.perf_counter() - began
        rows = [
            (c, int(record[c.start]), int(record[c.start + 1])) for c in self.commands
        ]
        room, count, base = map(int, log[:3])
        events = log[4:].reshape(room, 5)[:count].copy()
        _logs.append(log)
        return Measured(status, seconds, rows, events, count - len(events), base)


SOURCE = native.Source("executor", "execute", executor_ir)
"""The code that walks the commands of programs."""
_PROFILED = native.Source(
    "profiling executor", "execute_profiled", functools.partial(executor_ir, True)
)


@functools.cache
def _entry_point() -> Any:
    return _function(SOURCE, 2)


@functools.cache
def _profiled_entry_point() -> Any:
    return _function(_PROFILED, 4)


def _function(source: native.Source, arguments: int) -> Any:
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_size_t] * arguments)
    return kind(native.load([source])[source.key])


def _tasks_for(nbytes: Operand) -> int:
    if not isinstance(nbytes, int):
        return 1
    return number(_copy_tasks, (nbytes,), low=1)


def _copy_tasks(nbytes: int) -> int:
    return 1 if nbytes < PARALLEL_BYTES else min(8, nbytes * 2 // PARALLEL_BYTES)


def _signed(word: int) -> int:
    """A 64-bit word as NumPy's int64 takes it."""
    if is_dim(word):
        return word
    return word - (1 << 64) if word >= 1 << 63 else word

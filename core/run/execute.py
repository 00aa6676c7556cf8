"""Runs a linked plan: arrays in, arrays out, nothing in Python in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from struct import Struct
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.errors import InternalError
from treadle.ir.filled import filled
from treadle.late import Value
from treadle.plan.calls import Path, Run, Signature
from treadle.plan.steps import Plan
from treadle.plan.target import Linked, Target
from treadle.reading import Reading, reader
from treadle.run.array import Array, Placed, address_of, given_up
from treadle.run.device import common
from treadle.run.explain import explain
from treadle.structure import Structure
from treadle.trace.value import NUMBERS, typeof


class Bound(NamedTuple):
    """What a call of a program needs: that of one whose sizes are open, for given ones.

    arena: bytes of its temporaries.
    room: allocates blocks in which there is room for them; None if nothing does.
    value_of: None if no size is open.
    """

    linked: Linked
    in_types: Sequence[ArrayType]
    results: Sequence[Result]
    arena: int
    room: Any
    value_of: Value | None


Result = tuple[ArrayType, Any, int]
"""Type, what allocates its memory, and the argument whose memory it may take over (-1:
none)."""


def _data(leaf: Any, dtype: np.dtype) -> np.ndarray:
    try:
        return np.asarray(leaf, dtype, order="C")
    except OverflowError:
        dtypes.number(dtype, leaf)
        raise


def result(t: ArrayType, target: Target, taken: int = -1) -> Result:
    """What a result needs."""
    return t.strong(), target.size_class(max(t.nbytes, 1)), taken


def results_of(types: Sequence[ArrayType], plan: Plan, target: Target) -> list[Any]:
    """What a program's results need; nothing yet for those whose sizes are open."""
    taken = plan.shares
    return [
        None if t.is_sized else result(t, target, taken.get(i, -1))
        for i, t in enumerate(types)
    ]


class Executable:
    """A compiled program. Calls from several threads may overlap.

    bound: for a plan whose sizes are open, what it is for given ones.
    better: gives a program that is worth its making if there are many calls.
    """

    def __init__(
        self,
        plan: Plan,
        target: Target,
        donated: Sequence[int] = (),
        bound: Bound | None = None,
    ) -> None:
        outline = plan.outline
        self._plan, self.target, self.name = plan, target, outline.name
        self.program_for: Callable[[str], Executable] = lambda name: self
        self.better: Callable[[], Executable | None] = lambda: None
        if bound is None:
            results = results_of(outline.out_types, plan, target)
            types = outline.in_types
            bound = Bound(target.link(plan), types, results, plan.arena, None, None)
        self.value_of, self.temporaries = bound.value_of, bound.arena
        self.linked, self.in_types = bound.linked, bound.in_types
        self.donated, self._shares = donated, plan.shares
        self._outs = bound.results
        # The slots lie behind the temporaries, in one block: at its end, which was
        # touched before if programs for other sizes used it.
        words = 8 * self.linked.program.slot_count
        self._slots = max(bound.arena, 64)
        self._block = bound.room or target.size_class(self._slots + words)
        if bound.room:
            self._slots = (self._block.size - words) // 64 * 64

    # Where a path is made at once, as for a new size, nobody asks for these.

    @cached_property
    def _in_dtypes(self) -> list[np.dtype]:
        return [t.dtype for t in self.in_types]

    @cached_property
    def _words(self) -> Struct:
        given = len(self.in_types) + len(self._outs) + len(self.linked.constants)
        return Struct(f"{1 + given}q")

    @cached_property
    def plan(self) -> Plan:
        """How it runs."""
        return filled(self._plan, self.value_of) if self.value_of else self._plan

    def __call__(
        self, args: Sequence[Any], run: Callable[[int], int] | None = None
    ) -> list[Array]:
        """The results for arguments of the traced types.

        run: what runs the linked program on its slots, if not that itself.
        """
        held: list[Any] = []
        addresses = []
        for a, dtype in zip(args, self._in_dtypes, strict=True):
            if type(a) is Array:
                addresses.append(a.address())
            elif type(a) is Placed:
                return self._where_placed(args)
            else:
                data = _data(a, dtype)
                held.append(data)
                addresses.append(address_of(data))
        arena = self._block.allocate(self._block.size)
        if self.donated:
            taken = self._taken(args)
            buffers = [
                taken.get(i) or pool.allocate(t.nbytes)
                for i, (t, pool, _) in enumerate(self._outs)
            ]
            held.append(self._give_up(args))
        else:
            buffers = [pool.allocate(t.nbytes) for t, pool, _ in self._outs]
        addresses += [b.address for b in buffers]
        arena.write(
            self._words, self._slots, arena.address, *addresses, *self.linked.constants
        )
        run = run or self.linked.program.run
        if run(arena.address + self._slots):
            self._fail()
        return [
            Array.of_buffer(b, out[0])
            for b, out in zip(buffers, self._outs, strict=True)
        ]

    def path(
        self, captured: Sequence[Array], args: Reading, kwargs: Reading, form: Structure
    ) -> Path:
        """A quick way to call this program: a function of (args, kwargs) that gives the
        result as a pytree, or NotImplemented for arguments that don't read alike or are
        of other types.

        Args:
          captured: what comes before the arguments' leaves.
          args, kwargs: how to read the arguments.
          form: the structure of the result.
        """
        types = self.in_types
        signature = Signature(tuple(captured), args, kwargs, types, as_array)
        placed = any(type(x) is Placed for x in captured)
        quick = None if placed else self.target.caller(signature, self._run(form))
        return quick or self._python_path(signature, form)

    def path_like(self, path: Path, form: Structure) -> Path | None:
        """The path of a program for other sizes, for this one's; None if that can't be
        made quickly."""
        return self.target.caller_like(path, self.in_types, self._run(form))

    def _run(self, form: Structure) -> Run:
        return Run(
            self.linked.program,
            self._block,
            self._slots,
            self._outs,
            self.linked.constants,
            self.donated,
            given_up(self.name),
            self._fail,
            form,
        )

    def _python_path(self, signature: Signature, form: Structure) -> Path:
        """The same where no native code can read Python's objects."""
        captured, types = signature.captured, signature.types
        read_args, read_kwargs = reader(signature.args), reader(signature.kwargs)

        def path(args: tuple, kwargs: dict) -> Any:
            leaves: list[Any] = [*captured]
            if not (read_args(args, leaves) and read_kwargs(kwargs, leaves)):
                return NotImplemented
            for i, (leaf, wanted) in enumerate(zip(leaves, types, strict=True)):
                if type(leaf) is not Array:
                    leaf = leaves[i] = as_array(leaf)
                if leaf is None or leaf.type is not wanted:
                    return NotImplemented
            return form.unflatten(self(leaves))

        return path

    def _where_placed(self, args: Sequence[Any]) -> list[Array]:
        """The results of the program for the device of the arguments."""
        placed = [a for a in args if type(a) is Placed]
        device = common(self.name, [a.device for a in placed])
        plain = [a.unplaced() if type(a) is Placed else a for a in args]
        results = self.program_for(device.name)(plain)
        for i in self.donated:
            if type(args[i]) is Placed:
                args[i].donate(self.name)
        return [Placed.on(device, x) for x in results]

    def _taken(self, args: Sequence[Any]) -> dict[int, Any]:
        """The memory of donated arguments that results may take: only of arrays that
        the library made, that nobody has a view of, and that are passed once."""
        times = Counter(map(id, args))
        found = {}
        for result, argument in self._shares.items():
            a = args[argument]
            buffer = a.owned_buffer() if type(a) is Array else None
            if buffer is not None and times[id(a)] == 1:
                found[result] = buffer
        return found

    def _give_up(self, args: Sequence[Any]) -> list[Any]:
        """Marks the donated arrays, before their memory may change: a call that fails
        or is interrupted leaves none that looks intact. Gives what holds the memory."""
        given = [args[i] for i in self.donated if type(args[i]) is Array]
        memory = [a.memory for a in given]
        for a in given:
            a.donate(self.name)
        return memory

    def _fail(self) -> None:
        error = self.linked.failures.pop(get_ident(), None)
        raise error or InternalError("a compiled program stopped without saying why")

    def expect_sizes(self) -> None:
        """Readies, on other threads, what a program of open sizes may need besides."""
        self.target.expect_sizes(self._plan)

    def explain(self) -> str:
        """The program as a report: kernels, fusion, FLOPs, bytes, memory."""
        return explain(self.plan)


def as_array(leaf: Any) -> Array | None:
    """A leaf whose address is known, of the type that it has in a trace; None if it is
    something else than an array or a number."""
    kind = type(leaf)
    if kind in dtypes.PYTHON_OF:
        leaf = leaf.item()
    if kind is not Array:
        numeric = type(leaf) in NUMBERS or isinstance(leaf, np.generic)
        if kind is not np.ndarray and not numeric:
            return None
        t = typeof(leaf)
        leaf = Array(_data(leaf, t.dtype), t)
    leaf.address()
    return leaf

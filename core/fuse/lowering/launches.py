"""The kernels of a graph: what runs, on which values, in which order.

Nothing here says where a value lies, nor how a device runs a kernel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from treadle.arraytype import ArrayType
from treadle.ir.graph import Atom, Var
from treadle.ir.origin import Origin
from treadle.kernels.contract import Contraction
from treadle.kernels.convolve import ConvSpec
from treadle.kernels.lower import in_place
from treadle.kernels.nest import Nest
from treadle.records import record
from treadle.trace.op import Op
from treadle.trace.routine import Attention, Script, Transform


class Binding(NamedTuple):
    """An operand's run-time words: pointer (or start), then strides as `Nest` says."""

    atom: Atom | None
    offset: int
    strides: tuple[int, ...]
    store: bool


class Launch(NamedTuple):
    """A nest with the sizes and operands of one use; `whole`: its part of its program's
    work (`plan/weight.py`), 0 if not known; `slight`: whether that hardly counts."""

    nest: Nest
    outer: tuple[int, ...]
    mid: tuple[int, ...]
    inner: int
    bindings: tuple[Binding, ...]
    whole: int = 0
    slight: bool = False


def overwrites(launch: Launch, store: int, loads: Sequence[int]) -> bool:
    """Whether the operand that is stored may have the memory of the loaded ones, if it
    begins where they do: each of its elements is written after these are read at the
    same place, and nowhere else."""
    nest, mine = launch.nest, launch.bindings[store]
    return not nest.serial and all(
        launch.bindings[i].strides == mine.strides
        and launch.bindings[i].offset == mine.offset
        and nest.operands[i].dtype.itemsize == nest.operands[store].dtype.itemsize
        and in_place(nest, store, i)
        for i in loads
    )


@record
class ProductKernel:
    """c = a · b: stored values, from an element on; and the nest in its epilogue."""

    contraction: Contraction | ConvSpec
    a: tuple[Atom, int]
    b: tuple[Atom, int]
    c: Var
    epilogue: Launch | None = None
    filter_gradient: bool = False


class Sort(NamedTuple):
    """The first places, as many as the rows of `out` are long, of the order of each row
    of unsigned integers."""

    keys: Atom
    out: Var
    length: int

    @property
    def places(self) -> int:
        return self.out.type.shape[-1]

    @property
    def rows(self) -> int:
        return math.prod(self.out.type.shape[:-1])


class Calls(NamedTuple):
    """Calls of a library for each of some matrices or lines, or of a kernel for each
    head of attention, as a script says; and what these mean, an operation."""

    op: Op
    params: dict[str, Any]
    operands: tuple[Atom, ...]
    results: tuple[Var, ...]
    types: tuple[list[ArrayType], list[ArrayType]]
    script: Script | Transform | Attention

    @property
    def times(self) -> int:
        return self.script.times(self.types[0])


class HostCall(NamedTuple):
    """The reference meaning of an operation, on the host.

    types: of the operands and of the results. reason: why there is nothing better.
    """

    op: Op
    params: dict[str, Any]
    operands: tuple[Atom, ...]
    results: tuple[Var, ...]
    types: tuple[list[ArrayType], list[ArrayType]]
    reason: str


class Copy(NamedTuple):
    """A value's bytes, or zeros if there is no source."""

    source: Atom | None
    target: Var


class Carries(NamedTuple):
    """The values that a loop carries.

    init: what they begin as; a `Lit` without axes is repeated. in_place: whether an
    iteration only writes into one, so that it needs no second memory.
    """

    init: tuple[Atom, ...]
    in_place: tuple[bool, ...]
    results: tuple[Var, ...]


class Repeat(NamedTuple):
    """A body that runs for each row of `rows`, in reverse order if it says so.

    body: from consts, carries and rows to carries and new rows.
    """

    body: Kernels
    length: int
    reverse: bool
    consts: tuple[Atom, ...]
    carries: Carries
    rows: tuple[Atom, ...]
    new_rows: tuple[Var, ...]


class RepeatWhile(NamedTuple):
    """A body that runs while a test holds.

    test: from its consts and the carries to a bool; body: from its and the carries to
    carries.
    """

    test: Kernels
    body: Kernels
    test_consts: tuple[Atom, ...]
    body_consts: tuple[Atom, ...]
    carries: Carries


class Choose(NamedTuple):
    """The branch whose number is in `which`, on `operands`."""

    which: Atom
    branches: tuple[Kernels, ...]
    operands: tuple[Atom, ...]
    results: tuple[Var, ...]


Kernel = (
    Launch
    | ProductKernel
    | Sort
    | Calls
    | HostCall
    | Copy
    | Repeat
    | RepeatWhile
    | Choose
)


class KernelEntry(NamedTuple):
    """One kernel of a program.

    names: of the operations that it does. alone: whether it never shares a parallel
    region with its neighbours. begins: the value that it copies to its result; there is
    nothing to do if both are in one place. origins: where its operations come from.
    """

    kernel: Kernel
    names: tuple[str, ...] = ()
    alone: bool = False
    begins: Atom | None = None
    origins: tuple[Origin, ...] = ()


class Within(NamedTuple):
    """Bytes of another value, from an offset on."""

    atom: Atom
    offset: int = 0


class Kernels(NamedTuple):
    """A program as kernels, in an order in which they can run. All values are in
    row-major order, but for those that only kernels read, which know how they lie.

    results: the values that the program gives. within: those that are part of others'
    memory, or all of it. makers: where values come from.
    """

    inputs: tuple[Var, ...]
    results: tuple[Atom, ...]
    entries: tuple[KernelEntry, ...]
    within: Mapping[Var, Within]
    makers: Mapping[Var, Origin] = MappingProxyType({})

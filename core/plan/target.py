"""What the compiler asks of a device. A backend gives one `Target`; nothing before it
knows of which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from treadle.arraytype import ArrayType
from treadle.fuse.lowering.launches import (
    Calls,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
)
from treadle.ir.graph import Equation, Graph
from treadle.passes.pipeline import Arithmetic
from treadle.plan.calls import Path, Run, Runnable, Signature
from treadle.plan.record import Record
from treadle.plan.steps import Plan
from treadle.trace.lowering import Lowering


class Work(NamedTuple):
    """How a device runs one kernel.

    tasks: into how many parts it is cut.
    scratch_bytes: the memory that these need, all together.
    own_bytes: what a thread needs beside while it runs one of them.
    """

    tasks: int = 1
    scratch_bytes: int = 0
    own_bytes: int = 0


class Strands(NamedTuple):
    """A loop in parts that don't depend on each other.

    number: how many. how: how each kernel of the body runs, in as many tasks.
    """

    number: int
    how: tuple[Any, ...]


class Launched(Protocol):
    """What a device chose for a launch of a matrix kernel: the same as `Work`, and what
    is its own business."""

    @property
    def tasks(self) -> int: ...

    @property
    def scratch_bytes(self) -> int: ...

    @property
    def own_bytes(self) -> int: ...


class Linked(Protocol):
    """A plan made executable.

    constants: the addresses of the plan's.
    failures: why calls of host functions failed, by thread.
    sizes: what it holds that is found for each size; none if sizes are not open.
    """

    @property
    def program(self) -> Runnable: ...

    @property
    def sizes(self) -> Sequence[Any]: ...

    constants: list[int]
    failures: dict[int, BaseException]

    def bind(
        self, values: Sequence[int], constants: Mapping[int, np.ndarray]
    ) -> Linked:
        """The same program with numbers for `sizes`, and with some other constants."""


class Target(Arithmetic, Protocol):
    """A device, as the compiler sees it."""

    @property
    def name(self) -> str: ...

    @property
    def identity(self) -> str:
        """What of the device plans depend on: equal ones may use each other's."""

    @property
    def threads(self) -> int:
        """How many run tasks at once, at most."""
        return 1

    @property
    def chosen(self) -> int:
        """The least bytes of elements that it chooses of a register in any order."""
        return 4

    def described(self) -> dict[str, str]:
        """What a report of a fault should say of the device, by name."""
        return {}

    def lowering(self, eq: Equation) -> Lowering:
        """What becomes of an equation: what its op says, or `Host`."""

    def nest(self, launch: Launch) -> Work:
        """How a loop nest runs."""
        return Work()

    def order(self, rows: int, length: int, itemsize: int) -> Work:
        """How the order of rows of unsigned integers is found."""
        return Work()

    def calls(self, calls: Calls) -> Work:
        """How a library is called for matrices or lines."""
        return Work()

    def contraction(self, product: ProductKernel) -> Sequence[Launched]:
        """How a product runs: launches, one after the other, on the same scratch, of
        which each says how much all of them need. What threads need beside is for one
        of them."""
        return [Work()]

    def strands(self, repeat: Repeat) -> Strands | None:
        """How a loop runs in parts that go through all iterations alone; None if some
        part needs what another one makes, or if that is no quicker."""
        return None

    def begin(self) -> None:
        """Readies what every program needs, while the first one is still traced."""
        return

    def foresee(self, graph: Graph, optimised: bool) -> None:
        """Readies what a graph needs, while it is still optimised, or planned."""
        return

    def ready(self, kernels: Kernels) -> None:
        """Readies what kernels need, while it is still settled how they run and where
        values lie."""
        return

    def expect_sizes(self, plan: Plan) -> None:
        """Readies what the same program needs of other sizes, while it is traced for
        them."""
        return

    def link(self, plan: Plan) -> Linked:
        """Makes a plan executable."""

    def text(self, plan: Plan) -> str:
        """The code of a plan's kernels; nothing if the device makes none."""
        return ""

    def profile(self, linked: Linked, slots: int) -> Record | None:
        """Runs a program once (see `Runnable`), with the time of each step; None if the
        device can't, and nothing has run."""
        return None

    def size_class(self, nbytes: int) -> Any:
        """What allocates blocks of memory of this size on the device."""

    def room(self, nbytes: int) -> Any:
        """The same for programs that need this much for given sizes, and more or less
        for others: they share the blocks, which have a `size`."""

    def caller(self, signature: Signature, run: Run) -> Path | None:
        """A quick path for repeated calls; None if there is no quicker one than that
        of `Executable`."""
        return None

    def caller_like(
        self, path: Path, types: Sequence[ArrayType], run: Run
    ) -> Path | None:
        """The same path for arguments and a program of other sizes; None if that is not
        quicker than to make one."""
        return None

"""Loops that fall into strands: parts of a batch that go through all iterations alone.

The rows of a recurrent network's state don't depend on each other. If each kernel of an
iteration is cut at the same rows, a task needs only what tasks of its own number have
made, and threads meet once in a loop instead of after each kernel. What is computed in
which order stays the same, and so do all bits.

All that an iteration writes is looked at: it has to be cut into equal blocks of bytes,
of which each kernel touches one with each task.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from treadle.backends.cpu.cost import nanoseconds
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.emit.row import COPIES, is_whole
from treadle.backends.cpu.emit.tasks import scratch_bytes, scratch_rows, split_axis
from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.gemm.arguments import Scheduled
from treadle.backends.cpu.gemm.schedule import in_strands
from treadle.dims import hint, is_dim
from treadle.fuse.lowering.launches import (
    Binding,
    Copy,
    Kernel,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
)
from treadle.ir.graph import Atom, Var
from treadle.kernels.contract import Contraction
from treadle.kernels.lower import is_store
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, PAIRED, Operand
from treadle.plan.target import Strands, Work

_LINE = 64
"""Bytes: blocks of strands share no cache line."""
_WORTH_NS = 60_000
"""Of a whole loop, on one thread: less is not worth waking another one."""
_LONG_NS = 400_000
"""Of an iteration and strand: what threads wait for each other is little then."""
_MATRICES_BYTES = 1 << 20
"""Of what an iteration multiplies with: each strand reads all of it, from its cache."""


def strands_of(repeat: Repeat, threads: int) -> Strands | None:
    """How a loop runs in as many strands as threads, if it can and is quicker so."""
    if threads == 1 or not _is_fixed(repeat.body):
        return None
    loop = _Loop(repeat, threads)
    kernels = [entry.kernel for entry in repeat.body.entries]
    how = []
    for kernel in kernels:
        found = loop.way(kernel)
        if found is None:
            return None
        how.append(found)
    if not all(map(loop.is_even, loop.owned)) or not _is_worth(repeat, threads):
        return None
    return Strands(threads, tuple(how))


def _is_fixed(body: Kernels) -> bool:
    """Whether no size is open."""
    values = [*body.inputs, *body.makers]
    return not any(is_dim(n) for v in values for n in v.type.shape)


def _is_worth(repeat: Repeat, threads: int) -> bool:
    time, matrices = 0.0, 0
    for entry in repeat.body.entries:
        kernel = entry.kernel
        if isinstance(kernel, ProductKernel):
            what = kernel.contraction
            assert isinstance(what, Contraction)
            time += what.flops / (6 * gemm.tile(what.dtype).lanes)
            matrices += what.k * what.n * what.dtype.itemsize
        elif isinstance(kernel, Launch):
            time += nanoseconds(kernel)
    whole = time * hint(repeat.length)
    return (
        whole >= _WORTH_NS
        and time <= _LONG_NS * threads
        and matrices <= _MATRICES_BYTES
    )


class _Space(NamedTuple):
    """The loops of a kernel as its tasks cut them.

    rows: how many are cut; 0 if one row is. sizes: of the loops within a row.
    """

    rows: int
    sizes: Sequence[int]


class _Loop:
    """A loop that is looked at. owned: the values whose memory iterations write."""

    def __init__(self, repeat: Repeat, count: int) -> None:
        self.body, self.count = repeat.body, count
        first = len(repeat.consts)
        carried = self.body.inputs[first : first + len(repeat.carries.init)]
        inputs = set(self.body.inputs)
        made = [v for v in (*self.body.makers, *self._stored()) if v not in inputs]
        results = [a for a in self.body.results if isinstance(a, Var)]
        values = (*carried, *made, *results)
        self.owned = dict.fromkeys(self._root(v)[0] for v in values)

    def _stored(self) -> list[Var]:
        found: list[Atom | None] = []
        for kernel in [entry.kernel for entry in self.body.entries]:
            if isinstance(kernel, ProductKernel):
                found.append(kernel.c)
                kernel = kernel.epilogue  # type: ignore[assignment]
            if isinstance(kernel, Launch):
                found += [b.atom for b in kernel.bindings if b.store]
            elif isinstance(kernel, Copy):
                found.append(kernel.target)
        return [a for a in found if isinstance(a, Var)]

    def _root(self, a: Atom) -> tuple[Atom, int]:
        """The value that holds another one, and from which byte on."""
        offset = 0
        while isinstance(a, Var) and a in self.body.within:
            a, more = self.body.within[a]
            offset += more
        return a, offset

    def is_even(self, a: Atom) -> bool:
        """Whether a value falls into equal blocks of whole cache lines."""
        return a.type.nbytes % (_LINE * self.count) == 0

    def way(self, kernel: Kernel) -> Work | list[Scheduled] | None:
        """How a kernel runs in tasks each of which has a block of all that is owned."""
        if isinstance(kernel, Launch):
            space = self._cut(kernel)
            if space is None or not self._keeps(kernel, space):
                return None
            scratch = scratch_rows(kernel.nest) and scratch_bytes(
                kernel.nest, kernel.inner
            )
            return Work(self.count, self.count * scratch)
        if isinstance(kernel, ProductKernel):
            return self._product(kernel)
        return Work(self.count) if isinstance(kernel, Copy) else None

    def _cut(self, launch: Launch) -> _Space | None:
        """What tasks cut of a nest: its rows, at equal parts of the outermost loop, or
        its only row, where its kernel does: at whole vectors, or at groups of them."""
        split, outer, inner = split_axis(launch.nest), launch.outer, launch.inner
        if split == "none" or launch.nest.serial:
            return None
        if outer and outer[0] and outer[0] % self.count == 0 and split != "inner":
            return _Space(outer[0], (*outer[1:], *launch.mid, inner))
        if split not in ("inner", "either") or prod(outer) != 1:
            return None
        lanes = host_lanes()
        unit = COPIES * lanes if is_whole(launch.nest, inner, lanes) else lanes
        if inner % (unit * self.count):
            return None
        return _Space(0, (*outer, *launch.mid, inner))

    def _keeps(self, launch: Launch, space: _Space, first: int = 0) -> bool:
        """Whether tasks touch only their blocks of what is owned.

        first: the number of the stride between rows.
        """
        if any(is_store(i) and len(i.args) > 1 for i in launch.nest.body):
            return False
        return all(
            self._touches_own(binding, operand, space, first)
            for binding, operand in zip(
                launch.bindings, launch.nest.operands, strict=True
            )
        )

    def _touches_own(
        self, binding: Binding, operand: Operand, space: _Space, first: int
    ) -> bool:
        if binding.atom is None:
            return True
        root, start = self._root(binding.atom)
        if root not in self.owned:
            return True
        width = operand.dtype.itemsize
        length, offset = root.type.nbytes // width, start // width + binding.offset
        fixed = {BROADCAST: 0, CONTIGUOUS: 1, PAIRED: 2}
        steps = list(binding.strides)
        if operand.inner in fixed:
            steps.append(fixed[operand.inner])
        if operand.gathers or any(step < 0 for step in steps) or offset < 0:
            return False
        if not space.rows:
            return steps[-1] == 1 and not offset and length == space.sizes[-1]
        within = zip(space.sizes, steps[first + 1 :], strict=True)
        reach = offset + sum([(n - 1) * step for n, step in within])
        return steps[first] * space.rows == length and reach < steps[first]

    def _product(self, kernel: ProductKernel) -> list[Scheduled] | None:
        what = kernel.contraction
        if not isinstance(what, Contraction) or what.packed or what.short:
            return None
        if (what.b0, what.b1) != (1, 1) or self._root(kernel.b[0])[0] in self.owned:
            return None
        width, ends = what.dtype.itemsize, []
        a, c = (kernel.a[0], what.a, kernel.a[1], what.k), (kernel.c, what.c, 0, what.n)
        for value, strides, offset, columns in (a, c):
            root, start = self._root(value)
            ends.append(
                root not in self.owned
                or (
                    strides.row * what.m * width == root.type.nbytes
                    and strides.column >= 0
                    and start // width + offset + (columns - 1) * strides.column
                    < strides.row
                )
            )
        launch = kernel.epilogue
        if launch is not None:
            space = _Space(what.m, [launch.inner])
            # Its loops are two over batches, one over rows, and that over columns.
            ends.append(launch.nest.outer == 3 and self._keeps(launch, space, 2))
        if not all(ends):
            return None
        found = in_strands(what, gemm.tile(what.dtype), self.count, launch is not None)
        return None if found is None else [found]

"""Runs a linked plan: arrays in, arrays out, nothing in Python in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.backends.cpu.memory import allocate, size_class
from treadle.errors import InternalError
from treadle.ir.graph import Graph
from treadle.plan.steps import Plan
from treadle.run.array import Array
from treadle.run.explain import explain


class Executable:
    """A compiled program. Calls from several threads may overlap."""

    def __init__(self, graph: Graph, plan: Plan, linked: Any) -> None:
        self.graph, self.plan, self.linked = graph, plan, linked
        self._types = graph.in_types
        self._shares = plan.shares
        self._outs = [
            (t.strong(), size_class(max(t.nbytes, 1))) for t in graph.out_types
        ]

    def __call__(self, args: Sequence[Any]) -> list[Array]:
        """The results for arguments of the traced types."""
        slots = self.linked.template.copy()
        n = len(args)
        held, addresses = [], []
        for a, t in zip(args, self._types, strict=True):
            if type(a) is not Array:
                a = Array(np.ascontiguousarray(np.asarray(a, t.dtype)))
                held.append(a)
            addresses.append(a.address())
        taken = self._taken(args) if self._shares else {}
        buffers = [
            taken.get(i) or pool.allocate(t.nbytes)
            for i, (t, pool) in enumerate(self._outs)
        ]
        addresses += [b.address for b in buffers]
        arena = allocate(max(self.plan.arena, 64))
        slots[0] = arena.address
        slots[1 : 1 + n + len(buffers)] = addresses
        status = self.linked.program.run(slots.ctypes.data)
        if status:
            # What they held may have been overwritten in part.
            for result in taken:
                args[self._shares[result]].donate("a call that failed while it ran")
            self._fail()
        return [
            Array.of_buffer(b, t) for b, (t, _) in zip(buffers, self._outs, strict=True)
        ]

    def _taken(self, args: Sequence[Any]) -> dict[int, Any]:
        """The memory of donated arguments that results may take: only of arrays that
        the library made, that nobody has a view of, and that are passed once."""
        if len(set(map(id, args))) < len(args):
            return {}
        found = {}
        for result, argument in self._shares.items():
            a = args[argument]
            buffer = a.owned_buffer() if type(a) is Array else None
            if buffer is not None:
                found[result] = buffer
        return found

    def _fail(self) -> None:
        failures = self.linked.failures
        if not failures:
            raise InternalError("a compiled program stopped without saying why")
        raise failures.pop()

    def explain(self) -> str:
        """The program as a report: kernels, fusion, FLOPs, bytes, memory."""
        return explain(self.graph, self.plan)

"""Where it matters to a kernel whether its rows have one element.

A program for rows of one element reduces what lies around them instead; one for rows of
any length is another

- where that rounds otherwise: a sum over several axes is one over the last, then one
  over the others. With one element in the last, the others are added up in the kernel
  that makes the terms, and how that rounds depends on the kernel (unless terms are only
  loaded);
- where it is much slower: there are very many rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from treadle.dims import is_dim, is_one, settled
from treadle.fuse.dataflow import Dataflow
from treadle.fuse.lowering.launches import Launch
from treadle.ir.graph import Equation
from treadle.kernels.lower import is_reduction
from treadle.trace.lowering import Reduction

_MANY_ROWS = 1 << 15
"""To begin one takes about 100 ns."""


def settle_rows(launch: Launch, equations: Sequence[Equation], flow: Dataflow) -> None:
    """Asks whether the rows of a nest whose length is open have one element, if that
    matters."""
    if launch.nest.axis != "inner" or not is_dim(launch.inner):
        return
    body = launch.nest.body
    reductions = [i for i in body if is_reduction(i)]
    if not reductions:
        return
    sizes = math.prod(launch.outer), launch.inner
    settled(_many_rows_of_one, sizes)
    computed = any(body[i.args[0]].name != "load" for i in reductions)
    sums = [eq for eq in equations if computed and _sums(eq)]
    if any(_sums(r) for eq in sums for r in flow.final_readers(eq.outputs[0])):
        is_one(launch.inner)


def _many_rows_of_one(rows: int, length: int) -> int:
    return int(length == 1 and rows >= _MANY_ROWS)


def _sums(eq: Equation) -> bool:
    how = eq.op.lowering
    return isinstance(how, Reduction) and how.sums

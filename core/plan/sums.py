"""Where the order of a sum depends on whether a size is 1.

A sum over several axes is one over the last, then one over the others. Where the last
has one element, a program for that size adds up the others first, in the kernel that
makes the terms; how that rounds depends on the kernel, unless terms are only loaded.
"""

from __future__ import annotations

from collections.abc import Sequence

from treadle.dims import is_dim
from treadle.fuse.nests import Launch
from treadle.fuse.program import Program
from treadle.ir.graph import Equation
from treadle.kernels.lower import is_reduction
from treadle.late import is_one
from treadle.trace.lowering import Reduction


def settle_order(
    launch: Launch, equations: Sequence[Equation], program: Program
) -> None:
    """Asks whether rows have one element, if it matters to sums of them."""
    body = launch.nest.body
    if not is_dim(launch.inner) or not any(
        is_reduction(i) and body[i.args[0]].name != "load" for i in body
    ):
        return
    sums = [eq for eq in equations if _sums(eq)]
    if any(_sums(r) for eq in sums for r in program.final_readers(eq.outputs[0])):
        is_one(launch.inner)


def _sums(eq: Equation) -> bool:
    how = eq.op.lowering
    return isinstance(how, Reduction) and how.sums

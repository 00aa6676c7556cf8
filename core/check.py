"""The checker that tests run between the stages of the compiler."""

from __future__ import annotations

from treadle.compile import Stages
from treadle.dims import hint
from treadle.fuse.check import check_groups
from treadle.fuse.lowering.check import check_kernels
from treadle.ir.check import check as check_graph
from treadle.ir.filled import filled
from treadle.plan.check import check_schedule
from treadle.plan.liveness import check_plan


def check(made: Stages) -> None:
    """Verifies what each stage made of a program; of one of open sizes, for those that
    it was traced for.

    Raises:
      InternalError: at the first violation.
    """
    check_graph(made.graph)
    check_groups(made.groups)
    check_kernels(made.kernels)
    check_schedule(made.schedule)
    check_plan(filled(made.plan, hint))

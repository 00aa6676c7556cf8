"""The CPU as the compiler sees it: what is native, and what each kernel needs."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from treadle.arraytype import ArrayType
from treadle.backends import installed
from treadle.backends.capable import lowering_of
from treadle.backends.cpu import families, first, routines
from treadle.backends.cpu.bfloat.unit import BYTES, INTEGERS, Dtypes
from treadle.backends.cpu.cost import nest_tasks
from treadle.backends.cpu.emit.nest import supported
from treadle.backends.cpu.emit.tasks import scratch_bytes, scratch_rows
from treadle.backends.cpu.emit.windows import can_choose
from treadle.backends.cpu.fourier import library as fourier_library
from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.gemm import schedule as gemm_schedule
from treadle.backends.cpu.gemm.arguments import Scheduled
from treadle.backends.cpu.lapack.library import library
from treadle.backends.cpu.link import Linked
from treadle.backends.cpu.order.schedule import order_scratch, order_tasks
from treadle.backends.cpu.run import callpath, kept, native, threads
from treadle.backends.cpu.run.profile import profile
from treadle.backends.cpu.sources import (
    for_other_sizes,
    foreseen,
    lowered,
    sources_of,
)
from treadle.backends.cpu.strands import strands_of
from treadle.backends.cpu.target import (
    bfloat_unit,
    cpu_count,
    host,
    integer_unit,
    multiplies_singles,
)
from treadle.backends.memory import room, size_class
from treadle.dtypes import bfloat16, float16, float32
from treadle.fuse.lowering.launches import (
    Calls,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
)
from treadle.ir.graph import Equation, Graph
from treadle.kernels.contract import Contraction
from treadle.late import number
from treadle.plan.calls import Path, Run, Signature
from treadle.plan.steps import (
    Plan,
)
from treadle.plan.target import Strands, Work
from treadle.trace.lowering import Lowering, Multiplied

_supported = functools.cache(supported)


def _has_lapack() -> bool:
    return library() is not None


def _found() -> tuple[bool, bool]:
    """Which libraries there are."""
    return _has_lapack(), fourier_library.available()


class CPUTarget:
    """The CPU (see `treadle.plan.target`)."""

    name = "cpu"
    widens_halves = True

    @property
    def identity(self) -> str:
        machine = host()
        parts = machine.triple, machine.cpu, machine.features, machine.vector_bytes
        return repr(
            (
                self.name,
                parts,
                threads.num_threads(),
                *_found(),
                bfloat_unit(),
                integer_unit(),
            )
        )

    @property
    def threads(self) -> int:
        return threads.num_threads()

    @property
    def chosen(self) -> int:
        return next((n for n in (1, 2) if can_choose(np.dtype(f"i{n}"))), 4)

    @property
    def multiplied(self) -> Multiplied:
        pairs = (bfloat16,) if bfloat_unit() else ()
        if not multiplies_singles():
            return Multiplied(pairs, pairs, pairs, BYTES)
        halves = *pairs, float16
        return Multiplied(halves, pairs, (*halves, float32), BYTES)

    @property
    def integers(self) -> Sequence[np.dtype]:
        return INTEGERS if integer_unit() else ()

    def described(self) -> dict[str, str]:
        return {
            "CPU": f"{host().cpu} ({host().triple}, {host().vector_bytes} bytes wide)",
            "threads": f"{threads.num_threads()} of {cpu_count()} CPUs",
            "LAPACK": "NumPy's" if _has_lapack() else "not found",
            "installed kernels": str(installed.count(kept.environment())),
        }

    def lowering(self, eq: Equation) -> Lowering:
        found = _has_lapack, fourier_library.available
        return lowering_of(eq, _supported, *found, self.multiplied)

    def nest(self, launch: Launch) -> Work:
        tasks = nest_tasks(launch, threads.num_threads())
        if not scratch_rows(launch.nest):
            return Work(tasks)
        return Work(tasks, tasks * scratch_bytes(launch.nest, launch.inner))

    def order(self, rows: int, length: int, itemsize: int) -> Work:
        args = rows, length, threads.num_threads()
        tasks = number(order_tasks, args)
        scratch = number(order_scratch, (length, itemsize))
        return Work(tasks, tasks * scratch)

    def calls(self, calls: Calls) -> Work:
        return routines.work(calls, threads.num_threads())

    def contraction(self, product: ProductKernel) -> Sequence[Scheduled]:
        """Chooses blocks and tasks."""
        what = product.contraction
        count = threads.num_threads()
        if isinstance(what, Contraction) and what.packed is not None:
            speed = families.bfloat.unit_for(Dtypes(*what.dtypes)).speed
            return families.bfloat_schedule.schedule(what, speed, count)
        if isinstance(what, Contraction) and what.short:
            speed = families.integers.unit(*what.dtypes[:2]).speed
            return families.bfloat_schedule.schedule(what, speed, count)
        if isinstance(what, Contraction):
            tile = gemm.tile(what.dtype)
            hooked = product.epilogue is not None
            return [gemm_schedule.schedule(what, tile, count, hooked)]
        tile = gemm.tile(what.sums)
        return families.conv.schedule(what, product.filter_gradient, tile, count)

    def strands(self, repeat: Repeat) -> Strands | None:
        return strands_of(repeat, threads.num_threads())

    def begin(self) -> None:
        first.begin()

    def foresee(self, graph: Graph, optimised: bool) -> None:
        native.begin(foreseen(graph, self.lowering, optimised))

    def ready(self, kernels: Kernels) -> None:
        # What further calls need can wait the longest.
        native.begin([*lowered(kernels), callpath.SOURCE], cpu_count())

    def expect_sizes(self, plan: Plan) -> None:
        native.begin(for_other_sizes(plan.steps))

    def link(self, plan: Plan) -> Linked:
        return Linked(plan)

    def text(self, plan: Plan) -> str:
        return "\n".join([source.emit() for source in sources_of(plan.steps)])

    profile = staticmethod(profile)
    size_class = staticmethod(size_class)
    room = staticmethod(room)

    def caller(self, signature: Signature, run: Run) -> Path | None:
        return callpath.caller(signature, run)

    def caller_like(
        self, path: Path, types: Sequence[ArrayType], run: Run
    ) -> Path | None:
        return callpath.caller_like(path, types, run)

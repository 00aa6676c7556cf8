"""What a whole program has to do, beside the work of one kernel: a device may have code
that makes a kernel faster, which is worth its compilation only if that matters."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from treadle.dims import hint
from treadle.fuse.lowering.launches import (
    Calls,
    Choose,
    Copy,
    Kernel,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
    Sort,
)
from treadle.kernels.lower import cost
from treadle.kernels.nest import Nest
from treadle.plan.cost import points
from treadle.plan.schedule import programs
from treadle.trace.routine import Attention

START = 3000
"""What it takes to begin a kernel."""
_PER_FLOP = 0.25
"""Of products, which do several at once."""
_PER_BYTE = 1.5
_PER_PLACE = 30
"""Of an element that finds its place in an order."""
_HOST = 300_000
_TURNS = 32
"""Of a loop of which nobody knows how often it runs."""
_FEW = 64
"""Rows of more elements take long enough by themselves."""
_LONG = 90_000_000
"""What is much of a program of 3 ms is as much in a longer one."""


def weighed(kernels: Kernels) -> Kernels:
    """The kernels, where nests with rows of few elements know what the whole program
    has to do: of that, in instructions on an element, the part that their rows are of
    all rows of equal nests. Estimated, of the sizes that were traced."""
    rows: dict[Nest, float] = {}
    _count(kernels, 1, rows)
    if not rows:
        return kernels
    return _with(kernels, min(_work_of(kernels), _LONG), rows)


def _count(kernels: Kernels, times: int, rows: dict[Nest, float]) -> None:
    """Adds how many rows the nests of a program have that runs so many times."""
    for kernel in [entry.kernel for entry in kernels.entries]:
        if _is_short(kernel):
            assert isinstance(kernel, Launch)
            rows[kernel.nest] = rows.get(kernel.nest, 0) + _rows(kernel) * times
        for inner in programs(kernel):
            _count(inner, times * turns(kernel), rows)


def _is_short(kernel: Kernel) -> bool:
    if not isinstance(kernel, Launch) or not kernel.outer:
        return False
    return kernel.nest.axis == "inner" and hint(kernel.inner) <= _FEW


def _rows(launch: Launch) -> int:
    return math.prod([hint(n) for n in (*launch.outer, *launch.mid)])


def turns(kernel: Kernel) -> int:
    """How often a kernel runs the programs in it."""
    if isinstance(kernel, Repeat):
        return hint(kernel.length)
    return _TURNS if isinstance(kernel, RepeatWhile) else 1


def _with(kernels: Kernels, whole: float, rows: dict[Nest, float]) -> Kernels:
    """The kernels with the parts of a program's work that are their rows' parts among
    the rows of equal nests: these are compiled once."""

    def weighed(launch: Launch) -> Launch:
        if not _is_short(launch) or launch.nest not in rows:
            return launch
        part = _rows(launch) / max(rows[launch.nest], 1)
        return launch._replace(whole=max(1, int(whole * part)))

    return relaunched(kernels, weighed)


def relaunched(
    kernels: Kernels, change: Callable[[Launch], Launch], epilogues: bool = True
) -> Kernels:
    """The kernels with other launches for some, wherever they are in a program.

    epilogues: whether those of products are changed, too.
    """
    entries = []
    for entry in kernels.entries:
        kernel = _relaunched(entry.kernel, change, epilogues)
        same = kernel is entry.kernel
        entries.append(entry if same else entry._replace(kernel=kernel))
    return kernels._replace(entries=tuple(entries))


def _relaunched(
    kernel: Kernel, change: Callable[[Launch], Launch], epilogues: bool
) -> Kernel:
    if isinstance(kernel, Launch):
        return change(kernel)
    if isinstance(kernel, ProductKernel) and epilogues and kernel.epilogue is not None:
        launch = change(kernel.epilogue)
        same = launch is kernel.epilogue
        return kernel if same else replace(kernel, epilogue=launch)
    if isinstance(kernel, Repeat):
        return kernel._replace(body=relaunched(kernel.body, change, epilogues))
    if isinstance(kernel, RepeatWhile):
        test, body = (relaunched(p, change, epilogues) for p in programs(kernel))
        return kernel._replace(test=test, body=body)
    if isinstance(kernel, Choose):
        branches = [relaunched(p, change, epilogues) for p in kernel.branches]
        return kernel._replace(branches=tuple(branches))
    return kernel


@lru_cache(maxsize=4096)
def instructions(nest: Nest) -> int:
    """The instructions of a nest at each point."""
    return sum([max(1, cost(i)) for i in nest.body])


def _work_of(kernels: Kernels) -> float:
    """In instructions on an element, as nests have them."""
    return sum([START + work(e.kernel) for e in kernels.entries])


def work(kernel: Kernel) -> float:
    """What a kernel does, in instructions on an element, as nests have them."""
    if isinstance(kernel, Launch):
        return hint(points(kernel)) * instructions(kernel.nest)
    if isinstance(kernel, ProductKernel):
        own = hint(kernel.contraction.flops) * _PER_FLOP
        return own + (work(kernel.epilogue) if kernel.epilogue else 0)
    if isinstance(kernel, Sort):
        return hint(kernel.rows * kernel.length) * _PER_PLACE
    if isinstance(kernel, Copy):
        return _moved([kernel.target.type])
    if isinstance(kernel, Repeat | RepeatWhile):
        return sum(map(_work_of, programs(kernel))) * turns(kernel)
    if isinstance(kernel, Choose):
        return max(map(_work_of, kernel.branches))
    moved = _moved([t for types in kernel.types for t in types])
    if not isinstance(kernel, Calls):
        return _HOST + moved
    script = kernel.script
    flops = hint(script.flops) if isinstance(script, Attention) else 0
    return moved + flops * _PER_FLOP


def _moved(types: list[Any]) -> float:
    return sum([hint(t.nbytes) for t in types]) * _PER_BYTE

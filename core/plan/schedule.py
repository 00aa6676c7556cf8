"""Kernels to a schedule: how a device runs each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from treadle.fuse.lowering.launches import (
    Calls,
    Choose,
    Kernel,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
    Sort,
)
from treadle.plan.target import Target


class Schedule(NamedTuple):
    """Kernels, and for each entry how it runs: `Work` for a nest, an order or calls,
    launches for a product, a schedule for each of the programs in it.

    strands: into how many independent parts a loop falls whose body this is.
    threads: how many run tasks at once, at most.
    """

    kernels: Kernels
    how: tuple[Any, ...]
    strands: int = 1
    threads: int = 1


def schedule(kernels: Kernels, target: Target) -> Schedule:
    """Asks a device how it runs each kernel of a program."""
    how = tuple([_how(entry.kernel, target) for entry in kernels.entries])
    return Schedule(kernels, how, threads=target.threads)


def _how(kernel: Kernel, target: Target) -> Any:
    if isinstance(kernel, Launch):
        return target.nest(kernel)
    if isinstance(kernel, ProductKernel):
        return target.contraction(kernel)
    if isinstance(kernel, Sort):
        itemsize = kernel.keys.type.dtype.itemsize
        return target.order(kernel.rows, kernel.length, itemsize)
    if isinstance(kernel, Calls):
        return target.calls(kernel)
    if isinstance(kernel, Repeat) and (found := target.strands(kernel)):
        return [Schedule(kernel.body, found.how, found.number, target.threads)]
    return [schedule(inner, target) for inner in programs(kernel)]


def programs(kernel: Kernel) -> Sequence[Kernels]:
    """The programs that a kernel runs."""
    if isinstance(kernel, Repeat):
        return [kernel.body]
    if isinstance(kernel, RepeatWhile):
        return [kernel.test, kernel.body]
    return kernel.branches if isinstance(kernel, Choose) else []

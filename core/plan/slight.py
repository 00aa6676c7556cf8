"""Which nests do so little of a program's work that their code need not be good.

LLVM takes two to three times as long for code that runs 1.1 to 1.5 times as fast. That
is a waste where the sizes of one use say that a nest hardly counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable

from treadle.dims import is_dim
from treadle.fuse.lowering.launches import (
    Choose,
    Kernel,
    Kernels,
    Launch,
    ProductKernel,
    Repeat,
    RepeatWhile,
)
from treadle.kernels.nest import Nest
from treadle.plan.schedule import programs
from treadle.plan.weight import START, relaunched, turns, work

_PART = 500
"""What part of a program's work all slight nests may be together, as a divisor."""
_PART_OF_ALIKE = 60
"""The same of all nests that compute the same of operands that lie otherwise: where one
does nearly all of it, as the inside of an array does beside its borders."""
_READS = ("load", "const")
_MOST = 3_000_000_000
"""The program's work that counts, of a tenth of a second: what is lost in a longer one
is not made up for by what LLVM does not do until it has run thousands of times."""
_BEGUN = 100
"""What beginning a nest takes of it, in instructions on an element."""


def marked(kernels: Kernels) -> Kernels:
    """The kernels, where launches know that all of their nest's work, here and in other
    places, is a slight part of what the program does, estimated.

    Only of known sizes: what runs often for others must not have poor code. Nor is it
    known how often a loop runs that waits for something, or which branch is taken: a
    nest in these is compared with what else they do, and others with all but these.
    """
    parts: dict[Nest, float] = {}
    _program(kernels, parts)
    slight = _least(parts, 1 / _PART)
    done: dict[Hashable, dict[Nest, float]] = defaultdict(dict)
    for nest, part in parts.items():
        done[_computed(nest)][nest] = part
    for alike in done.values():
        if len(alike) > 1:
            slight |= _least(alike, sum(alike.values()) / _PART_OF_ALIKE)
    if not slight:
        return kernels
    return relaunched(
        kernels, lambda x: x._replace(slight=True) if x.nest in slight else x
    )


def _least(parts: dict[Nest, float], left: float) -> set[Nest]:
    """Those that do least, and not more than what is left together."""
    found = set()
    for nest, part in sorted(parts.items(), key=lambda item: item[1]):
        left -= part
        if left < 0:
            break
        found.add(nest)
    return found


def _computed(nest: Nest) -> Hashable:
    """What is computed, from wherever it is read."""
    return tuple(sorted([i.name for i in nest.body if i.name not in _READS]))


def _program(kernels: Kernels, parts: dict[Nest, float]) -> None:
    """Adds what part of a program's work each nest does to what it does elsewhere."""
    found: list[tuple[Nest, float]] = []
    whole = min(_collect(kernels, 1, found, parts), _MOST)
    for nest, mine in found:
        parts[nest] = parts.get(nest, 0) + mine / whole


def _collect(
    kernels: Kernels,
    times: int,
    found: list[tuple[Nest, float]],
    parts: dict[Nest, float],
) -> float:
    """The work of a program that runs so many times, and that of its nests."""
    whole = 0.0
    for kernel in [entry.kernel for entry in kernels.entries]:
        if isinstance(kernel, Repeat):
            whole += _collect(kernel.body, times * turns(kernel), found, parts)
            continue
        if isinstance(kernel, RepeatWhile | Choose):
            for inner in programs(kernel):
                _program(inner, parts)
            continue
        whole += times * (START + work(kernel))
        for launch in _launches(kernel):
            mine = float("inf") if _is_open(launch) else work(launch) + _BEGUN
            found.append((launch.nest, times * mine))
    return whole


def _launches(kernel: Kernel) -> Iterable[Launch]:
    if isinstance(kernel, Launch):
        return [kernel]
    if isinstance(kernel, ProductKernel) and kernel.epilogue is not None:
        return [kernel.epilogue]
    return []


def _is_open(launch: Launch) -> bool:
    return any(map(is_dim, (*launch.outer, *launch.mid, launch.inner)))

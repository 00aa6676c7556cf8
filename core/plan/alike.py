"""One kernel for launches whose nests differ in how many loops they have.

What is computed at the borders of an array is what is computed inside, along fewer
axes: the loops that it lacks have one turn. So it runs on the kernel of what has them,
which is compiled anyway; every element is computed as before.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from functools import lru_cache

from treadle.dims import is_dim
from treadle.fuse.lowering.launches import Kernels, Launch
from treadle.kernels.lower import is_reduction, is_running, is_store
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, Instr, Nest, Operand
from treadle.plan.schedule import programs
from treadle.plan.weight import relaunched

Key = Callable[[Nest], Hashable]

_NEVER = 1 << 62
"""A program so large that no code for short rows is worth its compilation."""


def joined(kernels: Kernels) -> Kernels:
    """The kernels, where launches of fewer loops use others' nests.

    Only of known sizes, and if the others' rows are as many and as long: how work is
    shared among threads depends on the loops.
    """
    for key, may_be in ((_loops, _any), (_columns, _is_one)):
        kernels = _joined(kernels, key, may_be)
    return kernels


def _joined(kernels: Kernels, key: Key, may_be: Callable[[Launch], bool]) -> Kernels:
    alike: dict[Hashable, dict[Nest, list[Launch]]] = defaultdict(dict)
    for launch in _launches(kernels):
        alike[key(launch.nest)].setdefault(launch.nest, []).append(launch)
    others: dict[Nest, Nest] = {}
    for nests in alike.values():
        ranked = sorted(nests, key=lambda nest: -_size(nests[nest][0]))
        for nest in ranked[1:]:
            launches = nests[nest]
            if all(may_be(x) and _fits(x, nests[ranked[0]][0]) for x in launches):
                others[nest] = ranked[0]
    if not others:
        return kernels

    def changed(x: Launch) -> Launch:
        # One of open sizes was not compared.
        return _as(x, others[x.nest]) if x.nest in others and _is_plain(x) else x

    # The loops of what ends a product are those of the product.
    return relaunched(kernels, changed, epilogues=False)


def _launches(kernels: Kernels) -> Iterator[Launch]:
    for entry in kernels.entries:
        kernel = entry.kernel
        if isinstance(kernel, Launch) and _is_plain(kernel):
            yield kernel
        for inner in programs(kernel):
            yield from _launches(inner)


def _is_plain(launch: Launch) -> bool:
    known = not any(map(is_dim, (*launch.outer, launch.inner)))
    return known and _is_plain_nest(launch.nest)


@lru_cache(maxsize=4096)
def _is_plain_nest(nest: Nest) -> bool:
    rows = nest.axis == "inner" and not (nest.mid or nest.serial)
    return rows and not any(map(_sees_more, nest.body))


def _sees_more(instr: Instr) -> bool:
    """Whether an instruction sees more than one element."""
    adds = is_store(instr) and instr.name != "store"
    return adds or is_reduction(instr) or is_running(instr)


def _size(launch: Launch) -> int:
    return math.prod((*launch.outer, launch.inner))


def _fits(launch: Launch, other: Launch) -> bool:
    pairs = zip(launch.nest.operands, other.nest.operands, strict=True)
    return (
        launch.nest.outer <= other.nest.outer
        and launch.inner <= other.inner
        and math.prod(launch.outer) <= math.prod(other.outer)
        and all(mine.fixed or not theirs.fixed for mine, theirs in pairs)
    )


def _as(launch: Launch, nest: Nest) -> Launch:
    """The launch with the loops of another nest."""
    more = nest.outer - launch.nest.outer
    bindings = [b._replace(strides=(*[0] * more, *b.strides)) for b in launch.bindings]
    outer = (*[1] * more, *launch.outer)
    found = launch._replace(nest=nest, outer=outer, bindings=tuple(bindings))
    return found if launch.whole else found._replace(whole=_NEVER)


@lru_cache(maxsize=4096)
def _loops(nest: Nest) -> Hashable:
    return nest.body, tuple([x._replace(fixed=False) for x in nest.operands])


def _any(launch: Launch) -> bool:
    return True


@lru_cache(maxsize=4096)
def _columns(nest: Nest) -> Hashable:
    """The same for rows of one element, which may be those of longer rows."""
    return nest.body, tuple([_column(x) for x in nest.operands])


def _column(x: Operand) -> Operand:
    inner = BROADCAST if x.inner == CONTIGUOUS else x.inner
    return x._replace(inner=inner, fixed=False)


def _is_one(launch: Launch) -> bool:
    return launch.inner == 1

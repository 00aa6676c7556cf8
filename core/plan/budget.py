"""Which values are given up and computed again, so that less memory is alive at once.

A value is alive from the node that makes it to the last one that reads it. Where most
is alive, those that nobody reads there are candidates: each is given up after its last
reader before, and computed again for the next one, from what is in memory then. The
cheapest for the bytes that it gives back goes first. Many are equally dear (layers are
alike), and which of them go decides what all cost: there are several orders to try.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from math import isqrt, prod
from typing import Any, NamedTuple

import numpy as np

from treadle.dims import hint
from treadle.fuse.groups import Groups
from treadle.fuse.lowering.launches import Kernels
from treadle.fuse.lowering.overwriting import writes
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.records import record
from treadle.trace.lowering import (
    Blocked,
    Contraction,
    Convolution,
    Elementwise,
    Gather,
    Index,
    Join,
    Lowering,
    Reduction,
    Same,
    View,
    Window,
)

_FLOPS: dict[type[Lowering], int] = dict.fromkeys(
    (Gather, Join, Reduction, Window), 30
) | {Elementwise: 4, Index: 1, Blocked: 500, View: 0, Same: 0}
"""What one element costs, as multiplications of a matrix product. What is not fused
pays for its way through memory. Products are counted; what is not here (loops,
branches, Python) is not computed again."""
_SMALL = 8
"""What is that much smaller than a value (the statistics of its rows) stays in memory
to compute it from."""
_AT_ONCE = 2
"""Values of a chain that are in memory together."""
_MOST_EQUATIONS = 200
"""That compute one value again."""


@record
class Life:
    """When a stored value is in memory: it is made at the first of these times, and
    read at the others."""

    nbytes: int
    times: list[int]


class Repeat(NamedTuple):
    """How a value would be computed again at a time.

    gain: the bytes that are free in between. stays: what is in memory until then only
    for that. reads: all that it is computed from. between: what it is computed over.
    """

    cut: int
    time: int
    cost: int
    gain: int
    stays: list[Var]
    reads: list[Var]
    between: list[Var]

    @property
    def price(self) -> float:
        return self.cost / self.gain


def _first(repeat: Repeat) -> Any:
    return repeat.price


def _alone(repeat: Repeat) -> Any:
    return repeat.price, len(repeat.stays), len(repeat.between), -repeat.time


def _long(repeat: Repeat) -> Any:
    return repeat.price / (repeat.time - repeat.cut)


ORDERS: tuple[Callable[[Repeat], Any], ...] = _first, _alone, _long
"""In which orders values may be given up, the least first: by their price, the first
that was made of equally dear ones, or the one that needs the fewest others; and by the
price for each moment that the bytes are free. No one is the best for all programs."""


class Budget:
    """What is in memory when, and what is given up.

    maker: the graph's equations by their results. time_of: the node of each of these.
    lives: of stored values that may be given up. cut, next: of those that are, the time
    of the last reader before, and of the first after.
    """

    def __init__(self, graph: Graph, groups: Groups, kernels: Kernels) -> None:
        self.flow, self.nodes = groups.flow, groups.nodes
        self.maker = {v: eq for eq in graph.equations for v in eq.outputs}
        number = {node: i for i, node in enumerate(groups.nodes)}
        self.time_of = {v: number[node] for v, node in groups.owner.items()}
        self.lives: dict[Var, Life] = {}
        self.cut: dict[Var, int] = {}
        self.next: dict[Var, int] = {}
        self._costs: dict[Var, int | None] = {}
        self._found: dict[tuple[Var, int, int], Repeat | None] = {}
        written = chain.from_iterable(writes(e.kernel) for e in kernels.entries)
        for v in dict.fromkeys(written):
            if v in self.maker and v not in kernels.within and self._is_known(v):
                self.lives[v] = self._life(v)
        self.alive = np.zeros(len(groups.nodes) + 1)
        for life in self.lives.values():
            self.alive[life.times[0] : life.times[-1] + 1] += life.nbytes

    def _is_known(self, v: Var) -> bool:
        readers = self.flow.final_readers(v)
        return (
            v in self.time_of
            and not self.flow.is_returned(v)
            and all(r.outputs and r.outputs[0] in self.time_of for r in readers)
        )

    def _life(self, v: Var) -> Life:
        times, todo = {self.time_of[v]}, [v]
        for u in todo:
            for eq in self.flow.final_readers(u):
                times.add(self.time_of[eq.outputs[0]])
                if isinstance(eq.op.lowering, Same):
                    todo.append(eq.outputs[eq.inputs.index(u)])
        return Life(hint(v.type.nbytes), sorted(times))

    def there(self, v: Var, time: int) -> bool:
        """Whether a value is in memory at a time, as it was made first."""
        if v not in self.maker or self.flow.is_returned(v):
            return True
        life = self.lives.get(v)
        return life is not None and time <= self.cut.get(v, life.times[-1])

    def operands(self, v: Var) -> Sequence[Atom]:
        """What a value is made of; where several are handed on, the one that it is."""
        eq = self.maker[v]
        if isinstance(eq.op.lowering, Same):
            return (eq.inputs[eq.outputs.index(v)],)
        return eq.inputs

    def choose(self, most: int, order: Callable[[Repeat], Any] = _first) -> None:
        """Gives values up until at most so many bytes are alive, or nothing helps."""
        settled = np.zeros(len(self.alive), bool)
        while True:
            peak = int(np.where(settled, 0, self.alive).argmax())
            if settled[peak] or self.alive[peak] <= most:
                return
            found = sorted(self._candidates(peak), key=lambda pair: order(pair[1]))
            helped = False
            for v, _ in found:
                if self.alive[peak] <= most:
                    break
                # What was given up before it may be what it needs.
                repeat = self._repeat(v, peak, anew=True)
                helped |= repeat is not None and self._give_up(v, repeat, most)
            settled[peak] = not helped

    def _candidates(self, peak: int) -> Iterator[tuple[Var, Repeat]]:
        for v, life in self.lives.items():
            if life.times[0] < peak < life.times[-1] and v not in self.cut:
                repeat = self._repeat(v, peak)
                if repeat is not None:
                    yield v, repeat

    def _repeat(self, v: Var, peak: int, anew: bool = False) -> Repeat | None:
        """How a value that is alive at the peak would be computed again after it; None
        if that can't be, or gains nothing. What was found earlier will do to compare,
        if it is not asked for anew."""
        times = self.lives[v].times
        i = bisect_left(times, peak)
        if times[i] == peak:
            return None
        key = v, times[i - 1], times[i]
        if anew or key not in self._found:
            found = [self._from(*key, stays) for stays in (True, False)]
            worth = [r for r in found if r is not None and r.gain > 0]
            self._found[key] = min(worth, key=lambda r: r.price, default=None)
        return self._found[key]

    def _from(self, v: Var, cut: int, time: int, stays: bool) -> Repeat | None:
        """How a value would be computed again; from what made it, where `stays`, even
        if that stays in memory for it alone, else from what is in memory anyway."""
        cost, gain = 0, self.lives[v].nbytes
        kept: dict[Var, None] = {}
        reads: dict[Var, None] = {}
        between: dict[Var, None] = {}
        todo = [v]
        for u in todo:
            if u not in self._costs:
                self._costs[u] = _cost(self.maker[u])
            price = self._costs[u]
            if price is None or len(todo) > _MOST_EQUATIONS:
                return None
            cost += price
            for a in self.operands(u):
                if isinstance(a, Lit) or a in reads or a in between:
                    continue
                if self.there(a, time):
                    reads[a] = None
                    continue
                life = self.lives.get(a)
                small = life is not None and life.nbytes * _SMALL <= gain
                if life is not None and a not in self.cut and (stays or small):
                    reads[a] = kept[a] = None
                    gain -= life.nbytes if life.times[-1] <= cut else 0
                    continue
                between[a] = None
                todo.append(a)
        return Repeat(cut, time, cost, gain, list(kept), list(reads), list(between))

    def _give_up(self, v: Var, repeat: Repeat, most: int) -> bool:
        """Gives a value up, unless more would be alive elsewhere than is to be."""
        change = np.zeros(len(self.alive))
        change[repeat.cut + 1 : repeat.time] -= self.lives[v].nbytes
        read = [self.lives[u] for u in repeat.reads if u in self.lives]
        for life in read:
            change[life.times[-1] + 1 : repeat.time + 1] += life.nbytes
        # Of a chain of values each is made of the one before, which then is free.
        sizes = [self.lives[u].nbytes for u in repeat.between if u in self.lives]
        change[repeat.time] += _AT_ONCE * max(sizes, default=0)
        if ((change > 0) & (self.alive + change > most)).any():
            return False
        self.alive += change
        self.cut[v], self.next[v] = repeat.cut, repeat.time
        for life in read:
            if repeat.time not in life.times:
                insort(life.times, repeat.time)
        return True


def _cost(eq: Equation) -> int | None:
    """About how many multiplications an equation is worth; None if it can't run twice.

    For a product of m·k by k·n numbers, m k · k n · m n is the square of m n k; of a
    batch of b of them it is b³ times as much.
    """
    how, size = eq.op.lowering, hint(eq.outputs[0].type.size)
    sizes = [hint(a.type.size) for a in eq.inputs]
    if isinstance(how, Contraction):
        shape, batch = eq.inputs[0].type.shape, eq.params["batch"][0]
        times = max(1, prod([hint(shape[i]) for i in batch]))
        return isqrt(sizes[0] * sizes[1] * size // times)
    if isinstance(how, Convolution):
        return size * sizes[1] // max(1, hint(eq.inputs[1].type.shape[-1]))
    for kind, flops in _FLOPS.items():
        if isinstance(how, kind):
            return flops * max([size, *sizes]) if flops else 0
    return None

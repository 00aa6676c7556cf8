"""One arena for all temporaries: buffers that are not alive together share bytes."""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from treadle.dims import hint, is_dim, same_shape
from treadle.fuse.lowering.launches import overwrites
from treadle.late import number, numbers
from treadle.plan.steps import Buffer, NestStep, Plan, Step
from treadle.records import record

_ALIGN = 64
_WORTH_PACKING = 1.05
"""How much more than the least memory may be used without trying for less."""


def assign(plan: Plan, order: list[Step]) -> None:
    """Gives every arena buffer its offset, and the plan its arena's size.

    An elementwise result takes over the memory of an operand that dies with it. If
    sizes are open, offsets are found for each, and what is good for those that were
    traced decides which buffer lies above which.

    Args:
      order: all steps, those in loops too, by position.
    """
    blocks = _blocks(plan, order)
    different = list(dict.fromkeys(blocks.values()))
    sizes = [block.nbytes for block in different]
    packing = Packing([(block.first, block.last) for block in different])
    starts: Sequence[int] = packing.anew(*map(hint, sizes))
    if any(map(is_dim, sizes)):
        packing.order(starts)
        starts = numbers(packing, sizes)
    *starts, plan.arena = starts
    start_of = dict(zip(different, starts, strict=True))
    for b, block in blocks.items():
        b.offset = start_of[block]


def needed(plan: Plan, order: list[Step]) -> int:
    """The bytes that an arena would have, for the sizes that were traced."""
    different = list(dict.fromkeys(_blocks(plan, order).values()))
    packing = Packing([(block.first, block.last) for block in different])
    return packing.anew(*[hint(block.nbytes) for block in different])[-1]


def _blocks(plan: Plan, order: list[Step]) -> dict[Buffer, _Block]:
    """The memory of each buffer of the arena."""
    born: dict[int, list[Buffer]] = {}
    for b in plan.buffers:
        if b.home == "arena" and b.first >= 0:
            born.setdefault(b.first, []).append(b)
    steps: dict[int, list[Step]] = {}
    for s in order:
        steps.setdefault(s.position, []).append(s)
    blocks: dict[Buffer, _Block] = {}
    for position in sorted(born):
        taken: set[Buffer] = set()
        for b in born[position]:
            old = _predecessor(b, steps.get(position, []), position, taken)
            if old is not None:
                taken.add(old)
                blocks[b] = blocks[old]
                blocks[b].last = b.last
            else:
                blocks[b] = _Block(_rounded(b.nbytes), b.first, b.last)
    return blocks


@record(eq=False)
class _Block:
    """Memory of one buffer, or of several one after the other."""

    nbytes: int
    first: int
    last: int


class Packing:
    """Where blocks of memory lie that are alive from one position to another.

    `anew` finds good places for given sizes. A call is much quicker: it lets blocks
    that are alive together lie above each other in the order that was given. `better`
    is for sizes that are used often.
    """

    def __init__(
        self,
        lives: Sequence[tuple[int, int]],
        below: Sequence[tuple[int, list[int]]] = (),
    ) -> None:
        self._lives, self._below = lives, below
        self._events: dict[int, tuple[list[int], list[int]]] = {}
        for i, (first, last) in enumerate(lives):
            self._events.setdefault(first, ([], []))[0].append(i)
            self._events.setdefault(last, ([], []))[1].append(i)
        self._positions = sorted(self._events)

    def anew(self, *sizes: int) -> list[int]:
        """The blocks' places, and the bytes that all of them take: each is placed as it
        is born, in the best-fitting hole that dead ones left."""
        arena = _Arena()
        starts = [0] * len(sizes)
        for position in self._positions:
            born, dying = self._events[position]
            for i in born:
                starts[i] = arena.take(sizes[i])
            for i in dying:
                arena.give(starts[i], sizes[i])
        return [*starts, arena.size]

    def order(self, starts: Sequence[int]) -> None:
        """Takes the order that blocks have at these places."""
        lives = self._lives
        ranked = sorted(range(len(lives)), key=lambda i: (starts[i], lives[i]))
        # Sets of blocks are whole numbers, a bit for each, in this order.
        born, living = dict.fromkeys(self._positions, 0), 0
        gone = dict(born)
        for n, i in enumerate(ranked):
            born[lives[i][0]] |= 1 << n
            gone[lives[i][1]] |= 1 << n
        dead = 0
        for position in self._positions:
            living |= born[position]
            born[position], gone[position], dead = living, dead, dead | gone[position]
        # Of what lies below a block, that matters on which nothing else below it lies.
        below: list[tuple[int, list[int]]] = []
        reach: list[int] = []
        for n, i in enumerate(ranked):
            first, last = lives[i]
            under = left = born[last] & ~gone[first] & ((1 << n) - 1)
            visible = []
            while left:
                top = left.bit_length() - 1
                visible.append(ranked[top])
                under |= reach[top]
                left &= ~(reach[top] | 1 << top)
            below.append((i, visible))
            reach.append(under)
        self._below = below

    def __reduce__(self) -> Any:
        return Packing, (self._lives, self._below)

    def better(self, *sizes: int) -> list[int]:
        """The places of a call, or of `anew` where these would take less memory."""
        found = self(*sizes)
        if found[-1] <= _WORTH_PACKING * self._least(sizes):
            return found
        return min(found, self.anew(*sizes), key=lambda starts: starts[-1])

    def _least(self, sizes: Sequence[int]) -> int:
        """The bytes that are alive together at most: less memory can't do."""
        alive = most = 0
        for position in self._positions:
            born, dying = self._events[position]
            alive += sum([sizes[i] for i in born])
            most = max(most, alive)
            alive -= sum([sizes[i] for i in dying])
        return most

    def __call__(self, *sizes: int) -> list[int]:
        return self._written(*sizes)

    @cached_property
    def _written(self) -> Callable[..., list[int]]:
        """A call, written out: it is most of what a new size costs a large program, and
        reads lists that nobody has touched since the last one."""
        parameters = ", ".join([f"s{i}" for i, _ in enumerate(self._lives)])
        lines = [f"def places({parameters}):"]
        for i, under in self._below:
            lines.append(f" a{i} = {f't{under[0]}' if under else 0}")
            lines += [f" if t{j} > a{i}: a{i} = t{j}" for j in under[1:]]
            lines.append(f" t{i} = a{i} + s{i}")
        covered = {j for _, under in self._below for j in under}
        tops = [f"t{i}" for i, _ in self._below if i not in covered]
        starts = [f"a{i}, " for i, _ in enumerate(self._lives)]
        lines.append(f" return [{''.join(starts)}max({', '.join(tops)}, 0)]")
        names: dict[str, Any] = {}
        exec(compile("\n".join(lines), "<places>", "exec"), names)
        return names["places"]


def _rounded(nbytes: int) -> int:
    if is_dim(nbytes) and not is_dim(nbytes % _ALIGN):
        return nbytes  # divisible, for all sizes
    return number(_round_up, (nbytes,), low=_ALIGN)


def _round_up(nbytes: int) -> int:
    return max(_ALIGN, -(-nbytes // _ALIGN) * _ALIGN)


def _as_large(old: int, new: int) -> bool:
    """Whether two buffers take equally much memory, for all sizes."""
    if is_dim(old) or is_dim(new):
        return same_shape((old,), (new,))
    return _rounded(old) == _rounded(new)


def _predecessor(
    b: Buffer, steps: list[Step], position: int, taken: set[Buffer]
) -> Buffer | None:
    """A dying operand whose memory a nest may overwrite with this result."""
    if len(steps) != 1 or not isinstance(steps[0], NestStep):
        return None
    step = steps[0]
    stores = [k for k, p in enumerate(step.places) if p and p.buffer is b]
    if len(stores) != 1:
        return None
    (k,) = stores
    # In their order, not that of a set: equal programs have equal plans.
    for old in dict.fromkeys(p.buffer for p in step.reads):
        if old in taken or old.home != "arena" or old.last != position:
            continue
        if old.first == position or not _as_large(old.nbytes, b.nbytes):
            continue
        loads = [i for i, p in enumerate(step.places) if p and p.buffer is old]
        begin = {step.places[i].offset for i in (k, *loads)}  # type: ignore[union-attr]
        if loads and begin == {0} and overwrites(step.launch, k, loads):
            return old
    return None


class _Arena:
    """Free holes by offset; grows at its end."""

    def __init__(self) -> None:
        self.size = 0
        self.holes: list[tuple[int, int]] = []

    def take(self, nbytes: int) -> int:
        best = None
        for i, (_, size) in enumerate(self.holes):
            if size >= nbytes and (best is None or size < self.holes[best][1]):
                best = i
        if best is not None:
            offset, size = self.holes.pop(best)
            if size > nbytes:
                insort(self.holes, (offset + nbytes, size - nbytes))
            return offset
        if self.holes and sum(self.holes[-1]) == self.size:
            offset, size = self.holes.pop()
            self.size = offset + nbytes
            return offset
        offset = self.size
        self.size += nbytes
        return offset

    def give(self, offset: int, nbytes: int) -> None:
        i = bisect(self.holes, (offset, nbytes))
        if i < len(self.holes) and self.holes[i][0] == offset + nbytes:
            nbytes += self.holes.pop(i)[1]
        if i and sum(self.holes[i - 1]) == offset:
            offset, size = self.holes.pop(i - 1)
            nbytes += size
        insort(self.holes, (offset, nbytes))

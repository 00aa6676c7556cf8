"""One arena for all temporaries: buffers that are not alive together share bytes."""

from __future__ import annotations

from bisect import bisect, insort

from treadle.dims import hint, is_dim
from treadle.kernels.lower import in_place
from treadle.plan.steps import Buffer, NestStep, Plan, Step

_ALIGN = 64


def assign(plan: Plan, order: list[Step]) -> None:
    """Gives every arena buffer its offset, and the plan its arena's size.

    Buffers are placed as they are born, in the best-fitting hole that dead ones left;
    an elementwise result takes over the memory of an operand that dies with it.

    Args:
      order: all steps, those in loops too, by position.
    """
    born: dict[int, list[Buffer]] = {}
    dying: dict[int, list[Buffer]] = {}
    for b in plan.buffers:
        if b.home == "arena" and b.first >= 0:
            born.setdefault(b.first, []).append(b)
            dying.setdefault(b.last, []).append(b)
    steps: dict[int, list[Step]] = {}
    for s in order:
        steps.setdefault(s.position, []).append(s)
    arena = _Arena()
    blocks: dict[Buffer, _Block] = {}
    for position in sorted(born.keys() | dying.keys()):
        taken: set[Buffer] = set()
        waiting = born.get(position, [])
        for b in waiting:
            old = _predecessor(b, steps.get(position, []), position, taken)
            if old is not None:
                b.offset = old.offset
                taken.add(old)
                blocks[b] = blocks[old]
                blocks[b].last = b.last
            else:
                b.offset = arena.take(hint(_rounded(b.nbytes)))
                blocks[b] = _Block(b)

        for b in dying.get(position, []):
            if b not in taken:
                arena.give(b.offset, hint(_rounded(b.nbytes)))
    plan.arena = arena.size
    _for_all_sizes(plan, blocks)


class _Block:
    """Memory of one buffer, or of several one after the other."""

    def __init__(self, b: Buffer) -> None:
        self.nbytes, self.offset = _rounded(b.nbytes), b.offset
        self.first, self.last = b.first, b.last


def _for_all_sizes(plan: Plan, blocks: dict[Buffer, _Block]) -> None:
    """Lets blocks that are alive together lie above each other in the order that they
    have for the hint, whatever their sizes are."""
    sized = [b for b in blocks.values() if is_dim(b.nbytes)]
    if not sized:
        return
    order = sorted(set(blocks.values()), key=lambda b: (b.offset, b.first))
    number = {b: i for i, b in enumerate(order)}
    below: list[list[int]] = []
    reach: list[set[int]] = []
    for i, b in enumerate(order):
        under = [
            j for j in range(i) if order[j].first <= b.last and b.first <= order[j].last
        ]
        hidden: set[int] = set()
        for j in under:
            hidden |= reach[j]
        below.append([j for j in under if j not in hidden])
        reach.append(set(under) | hidden)

    def offsets(*sizes: int) -> list[int]:
        tops: list[int] = []
        starts: list[int] = []
        for n, under in zip(sizes, below, strict=True):
            start = 0
            for j in under:
                if tops[j] > start:
                    start = tops[j]
            starts.append(start)
            tops.append(start + n)
        starts.append(max(tops))
        return starts

    sizes = tuple(b.nbytes for b in order)
    hints = offsets(*[hint(n) for n in sizes])
    parts = sized[0].nbytes.scope.vector("arena", offsets, sizes, hints)
    for b, block in blocks.items():
        b.offset = parts[number[block]]
    plan.arena = parts[-1]


def _rounded(nbytes: int) -> int:
    rounded = -(-nbytes // _ALIGN) * _ALIGN
    if is_dim(rounded):
        low = rounded.range()[0]
        if low is not None and low >= _ALIGN:
            return rounded
        return rounded + _ALIGN  # at least so much, also for sizes that are 0
    return max(_ALIGN, rounded)


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
    mine = step.launch.bindings[k]
    # In their order, not that of a set: equal programs have equal plans.
    for old in dict.fromkeys(p.buffer for p in step.reads):
        if old in taken or old.home != "arena" or old.last != position:
            continue
        if old.first == position or _rounded(old.nbytes) != _rounded(b.nbytes):
            continue
        loads = [i for i, p in enumerate(step.places) if p and p.buffer is old]
        if loads and all(
            step.launch.bindings[i].strides == mine.strides
            and step.places[i].offset == step.places[k].offset == 0  # type: ignore[union-attr]
            and step.launch.bindings[i].offset == mine.offset
            and step.launch.nest.operands[i].dtype.itemsize
            == step.launch.nest.operands[k].dtype.itemsize
            and not step.launch.nest.serial
            and in_place(step.launch.nest, k, i)
            for i in loads
        ):
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

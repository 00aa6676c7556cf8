"""Column nests: accumulators held in registers while ``mid`` runs innermost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from treadle.backends.cpu.emit.access import Arguments, Word, read
from treadle.backends.cpu.emit.body import Body, Frame, carried, limit, renamed
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.ending import Ending
from treadle.backends.cpu.emit.lanes import Value
from treadle.backends.cpu.emit.reduce import BLOCK_TURNS, Reduction, combined
from treadle.backends.cpu.emit.running import carried_first, rounds, settled, step
from treadle.kernels.lower import NestOrder, Sweep, cost, is_running, is_store

_CHAINS = 4
"""Totals of the last vectors of a row, which are added to one at a time."""
_TURNS_OF_PLACES = 16
"""Turns that are worth several totals of places, which are compared one by one."""
_LITTLE_WORK = 10
"""Instructions of a turn, above which there is enough to do between two additions."""


class ColumnSweeps:
    """Emits blocks of a column nest. Made in the kernel's entry block.

    vectors: how many a block has, if its ending is written once; else 0. whole: whether
    rows are known to be a multiple of the fewest vectors that are summed at once.
    """

    def __init__(
        self,
        b: Builder,
        plan: NestOrder,
        arguments: Arguments,
        lanes: int,
        vectors: int = 0,
        whole: bool = False,
    ) -> None:
        self.b, self.plan, self.lanes, self.whole = b, plan, lanes, whole
        self.arguments = arguments
        self.body = Body(b, plan, arguments, lanes)
        self._ending = Ending(b, plan, self.body, vectors) if vectors else None

    def block(
        self,
        positions: Sequence[Word | str],
        low: str,
        copies: int,
        masked: bool,
        first: str,
    ) -> None:
        """Emits `copies` vectors from `low` on, in full or up to the end of inner, of
        the block that begins at `first`."""
        held, ending = Frame(positions, copies, low), self._ending
        if masked:
            limit(self.b, held, self.arguments.inner, self.lanes, near=True)
        before = ending.before if ending else self.plan.held
        for s, sweep in enumerate(self.plan.sweeps):
            for i in before[s]:
                self.body.run(i, held)
            self._sweep(sweep, held)
        if ending:
            ending.keep(held, self.b.op(f"sub i64 {low}, {first}"))
            return
        for i in self.plan.held[-1]:
            self.body.run(i, held)

    def end(self, positions: Sequence[Word | str], first: str, end: str) -> None:
        """Emits what is left to do for the block of columns first..end."""
        if self._ending:
            self._ending.run(positions, first, end, self.whole)

    def _sweep(self, sweep: Sweep, held: Frame) -> None:
        self.body.prepare(sweep, held)
        reductions = [self.body.reduction(i) for i in sweep.reductions]
        start = self._start(sweep, held)
        totals = iter(self._loops(0, "0", sweep, held, held.positions, start))
        for i, r in zip(sweep.reductions, reductions, strict=True):
            copies, _ = self.shape(i, held)
            mine = [[next(totals) for _ in range(r.width)] for _ in range(copies)]
            held.values[i] = [self.body.settled(i, m[-1]) for m in mine]

    def _start(self, sweep: Sweep, held: Frame) -> list[Value]:
        """What the sweep's reductions, and the running ones, start from."""
        parts = []
        for i in sweep.reductions:
            r = self.body.reduction(i)
            copies, lanes = self.shape(i, held)
            for _ in range(copies):
                parts += r.identity_of_each(self.b, lanes)
        for i in sweep.body:
            if is_running(self.plan.nest.body[i]):
                parts += (
                    carried_first(self.b, *self.body.running(i), self.lanes)
                    * held.copies
                )
        return parts

    def shape(self, i: int, held: Frame) -> tuple[int, int]:
        """Copies and lanes of reduction i: one scalar if it is uniform."""
        return (held.copies, self.lanes) if self.plan.varying[i] else (1, 1)

    def _loops(
        self,
        dim: int,
        place: str,
        sweep: Sweep,
        held: Frame,
        positions: Sequence[Word | str],
        totals: list[Value],
    ) -> list[Value]:
        """The loops over mid dimensions from `dim` on; returns the totals after them.

        place: the collapsed index of the mid dimensions before.
        """
        b, sizes = self.b, self.arguments.mid
        if dim == len(sizes):
            return self._turn(sweep, held, positions, place, totals)
        scaled = "0" if place == "0" else b.op(f"mul i64 {place}, {sizes[dim]}")

        def one(index: str, totals: list[Value]) -> list[Value]:
            at = index if scaled == "0" else b.op(f"add i64 {scaled}, {index}")
            moved = self.moved(dim, index, positions, sweep)
            return self._loops(dim + 1, at, sweep, held, moved, totals)

        def turns(first: str, last: str, totals: list[Value]) -> list[Value]:
            if dim == len(sizes) - 1 and self._is_latent(sweep, held):
                chained = self._chains
                if any(r.with_index for r in self._reductions(sweep, held)):
                    chained = self._places
                first, totals = chained(one, first, last, sweep, held, totals)
            with b.carrying(first, last, "1", carried(totals)) as turn:
                after = one(turn.index, renamed(totals, turn.values))
                turn.next = [p.text for p in after]
            return renamed(totals, turn.values)

        reductions = self._reductions(sweep, held)
        running = [i for i in sweep.body if is_running(self.plan.nest.body[i])]
        long = any(r.rounds for r in reductions)
        long = long or any(rounds(*self.body.running(i)) for i in running)
        if dim < len(sizes) - 1 or not long:
            return turns("0", sizes[dim], totals)
        with b.carrying("0", sizes[dim], str(BLOCK_TURNS), carried(totals)) as block:
            end = b.least(b.op(f"add i64 {block.index}, {BLOCK_TURNS}"), sizes[dim])
            before = renamed(totals, block.values)
            self.begin(positions, block.index, end)
            if running:
                after = self._settled(sweep, held, turns(block.index, end, before))
            else:
                added = turns(block.index, end, self._start(sweep, held))
                after = combined(reductions, before, added)
            block.next = [p.text for p in after]
        return renamed(totals, block.values)

    def begin(self, positions: Sequence[Word | str], first: str, end: str) -> None:
        """What there is to do before the turns first..end of a block."""

    def _reductions(self, sweep: Sweep, held: Frame) -> list[Reduction]:
        """The reductions of a sweep, one for each copy."""
        return [
            self.body.reduction(i)
            for i in sweep.reductions
            for _ in range(self.shape(i, held)[0])
        ]

    def is_alone(self, held: Frame) -> bool:
        """Whether one vector is added to at a time."""
        return held.copies == 1

    def _is_latent(self, sweep: Sweep, held: Frame) -> bool:
        """Whether the turns of a loop would wait for each other: one vector is added to
        at a time, and that is most of the work."""
        body = [self.plan.nest.body[i] for i in sweep.body]
        return (
            self.is_alone(held)
            and bool(sweep.reductions)
            and sum(map(cost, body)) <= _LITTLE_WORK
            and not any(map(is_running, body))
            and not any(map(is_store, body))
        )

    def _chains(
        self,
        one: Callable[[str, list[Value]], list[Value]],
        first: str,
        last: str,
        sweep: Sweep,
        held: Frame,
        totals: list[Value],
    ) -> tuple[str, list[Value]]:
        """Most of the turns over first..last, with as many totals as hide latencies.
        Returns where the other turns begin, and the totals so far."""
        b, count = self.b, len(totals)
        span = b.op(f"sub i64 {last}, {first}")
        middle = b.op(f"add i64 {first}, {b.op(f'and i64 {span}, {-_CHAINS}')}")
        parts = [*totals]
        for _ in range(_CHAINS - 1):
            parts += self._start(sweep, held)
        with b.carrying(first, middle, str(_CHAINS), carried(parts)) as turn:
            before, after = renamed(parts, turn.values), []
            for c in range(_CHAINS):
                index = b.op(f"add i64 {turn.index}, {c}")
                after += one(index, before[c * count : (c + 1) * count])
            turn.next = [p.text for p in after]
        parts = renamed(parts, turn.values)
        chains = [parts[c * count : (c + 1) * count] for c in range(_CHAINS)]
        reductions = self._reductions(sweep, held)
        while len(chains) > 1:
            pairs = zip(chains[::2], chains[1::2], strict=True)
            chains = [combined(reductions, x, y) for x, y in pairs]
        return middle, chains[0]

    def _places(
        self,
        one: Callable[[str, list[Value]], list[Value]],
        first: str,
        last: str,
        sweep: Sweep,
        held: Frame,
        totals: list[Value],
    ) -> tuple[str, list[Value]]:
        """`_chains` of places, where there are turns enough."""
        b = self.b
        span = b.op(f"sub i64 {last}, {first}")
        many = b.op(f"icmp sge i64 {span}, {_TURNS_OF_PLACES}")
        times = b.op(f"zext i1 {many} to i64")
        with b.carrying("0", times, "1", carried(totals)) as turn:
            before = renamed(totals, turn.values)
            _, after = self._chains(one, first, last, sweep, held, before)
            turn.next = [p.text for p in after]
        done = b.op(
            f"select i1 {many}, i64 {b.op(f'and i64 {span}, {-_CHAINS}')}, i64 0"
        )
        return b.op(f"add i64 {first}, {done}"), renamed(totals, turn.values)

    def moved(
        self, dim: int, index: str, positions: Sequence[Word | str], sweep: Sweep
    ) -> list[Word | str]:
        moved = list(positions)
        for k in self._accessed(sweep):
            access = self.arguments.accesses[k]
            if access.operand.mid:
                step = read(self.b, access.mid[dim])
                offset = self.b.op(f"mul i64 {index}, {step}")
                moved[k] = access.moved(self.b, positions[k], offset)
        return moved

    def _accessed(self, sweep: Sweep) -> list[int]:
        """The operands that a turn of a sweep reads or writes."""
        body = [self.plan.nest.body[i] for i in sweep.body]
        return sorted({i.attr for i in body if i.name == "load" or is_store(i)})

    def _turn(
        self,
        sweep: Sweep,
        held: Frame,
        positions: Sequence[Word | str],
        place: str,
        totals: list[Value],
    ) -> list[Value]:
        here = list(positions)
        for k in self._accessed(sweep):
            here[k] = read(self.b, here[k])
        frame = Frame(
            here, held.copies, held.index, held.mask, held.active, parent=held
        )
        reduced = len(totals)
        for i in sweep.body:
            if is_running(self.plan.nest.body[i]):
                reduced -= held.copies * self._width(i)
        before, so_far = iter(totals[:reduced]), iter(totals[reduced:])
        after: list[Value] = []
        for i in sweep.body:
            if is_running(self.plan.nest.body[i]):
                after += self._running(i, frame, so_far)
            else:
                self.body.run(i, frame)
        result: list[Value] = []
        for i in sweep.reductions:
            r: Reduction = self.body.reduction(i)
            copies, lanes = self.shape(i, held)
            for copy in range(copies):
                old = [next(before) for _ in range(r.width)]
                result += self.body.added(i, frame, copy, lanes, place, old)
        return result + after

    def _running(self, i: int, frame: Frame, before: Iterator[Value]) -> list[Value]:
        """Emits running reduction i in all copies; returns what they carry on."""
        name, dtype = self.body.running(i)
        instr = self.plan.nest.body[i]
        results, after = [], []
        for copy in range(frame.copies):
            state = [next(before) for _ in range(self._width(i))]
            args = [frame.get(a, copy, self.lanes) for a in instr.args]
            result, state = step(name, dtype, state, args)
            results.append(result)
            after += state
        frame.values[i] = [self.body.settled(i, x) for x in results]
        return after

    def _width(self, i: int) -> int:
        """How many values a copy of running reduction i carries."""
        return 1 + rounds(*self.body.running(i))

    def _settled(self, sweep: Sweep, held: Frame, states: list[Value]) -> list[Value]:
        """What the running reductions carry after a block of turns."""
        before, after = iter(states), []
        for i in sweep.body:
            if is_running(self.plan.nest.body[i]):
                for _ in range(held.copies):
                    state = [next(before) for _ in range(self._width(i))]
                    after += settled(*self.body.running(i), state)
        return after

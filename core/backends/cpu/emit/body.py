"""Emits single instructions of a nest: what row and column loops have in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from treadle.backends.cpu.emit.access import (
    Access,
    Arguments,
    Word,
    gather,
    index_value,
    iota,
    load,
    load_back,
    load_paired,
    load_strided,
    pointers,
    read,
    scatter,
    store,
    store_pairs,
    store_strided,
)
from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.half import rounded
from treadle.backends.cpu.emit.lanes import (
    Value,
    constant,
    has_mask_registers,
    lane_numbers,
    multiply_add,
    register_kind,
)
from treadle.backends.cpu.emit.ops import computed, elementwise, rounds
from treadle.backends.cpu.emit.reduce import COMBINING, Parts, Reduction
from treadle.backends.cpu.emit.sometimes import kept_where_not
from treadle.backends.cpu.emit.turns import load_turns, rounded_turns, store_turns
from treadle.dtypes import bfloat16
from treadle.kernels.lower import NestOrder, Sweep, is_reduction, is_store
from treadle.kernels.nest import (
    BROADCAST,
    CONTIGUOUS,
    PAIRED,
    STRIDED,
    Instr,
    Nest,
    is_half,
    rounds_half,
)
from treadle.records import field, record


@record
class Frame:
    """The values in scope at one place of the loops; inner places have a parent.

    A varying instruction has one vector per unrolled copy, a uniform one a scalar.
    index: the place along inner of the first lane. mask: its active lanes (None: all),
    which are the first `active` ones, or all if those are more; `few` of them, if that
    is known. turns: whether every two copies are the even and the odd elements of their
    vectors.
    """

    positions: Sequence[Word | str]
    copies: int = 1
    index: str = "0"
    mask: Value | None = None
    active: str = ""
    few: int = 0
    turns: bool = False
    parent: Frame | None = None
    values: dict[int, list[Value]] = field(default_factory=dict)
    splats: dict[int, Value] = field(default_factory=dict)
    addresses: dict[int, str] = field(default_factory=dict)

    def find(self, i: int) -> list[Value]:
        frame: Frame | None = self
        while frame is not None:
            if i in frame.values:
                return frame.values[i]
            frame = frame.parent
        raise KeyError(i)

    def get(self, i: int, copy: int, lanes: int) -> Value:
        """Instruction i's value for one copy, splat if it is uniform."""
        found = self.find(i)
        value = found[copy] if len(found) > 1 else found[0]
        if lanes == 1 or value.lanes > 1:
            return value
        frame: Frame | None = self
        while frame is not None:
            if i in frame.splats:
                return frame.splats[i]
            frame = frame.parent
        self.splats[i] = value.splat(lanes)
        return self.splats[i]

    def address(self, i: int) -> str | None:
        frame: Frame | None = self
        while frame is not None:
            if i in frame.addresses:
                return frame.addresses[i]
            frame = frame.parent
        return None


class Body:
    """Runs instructions in frames. Made in the kernel's entry block."""

    def __init__(
        self, b: Builder, plan: NestOrder, arguments: Arguments, lanes: int
    ) -> None:
        self.b, self.plan, self.lanes = b, plan, lanes
        self.nest, self.arguments = plan.nest, arguments
        self.numbers = lane_numbers(b, "i64", lanes)
        self.lane_steps = {
            k: self.numbers * Value(b, access.inner, "i64", 1)
            for k, access in enumerate(arguments.accesses)
            if access.operand.inner in (PAIRED, STRIDED)
            and access.operand.kind == "array"
        }
        self.pairs = self._pairs()
        self.kept = kept_where_not(plan)
        self.left_out = {i for kept in self.kept.values() for i in kept.left_out}

    def _pairs(self) -> dict[int, tuple[int, int]]:
        """By store, the two that write the parts of the same numbers, in one turn."""
        found = {}
        for part in (*self.plan.held, *[sweep.body for sweep in self.plan.sweeps]):
            stores = {
                self.nest.body[i].attr: i
                for i in part
                if self.nest.body[i].name == "store"
            }
            for k, i in stores.items():
                if self.nest.operands[k].beside and k - 1 in stores:
                    found[i] = found[stores[k - 1]] = (stores[k - 1], i)
        return found

    def run(self, i: int, frame: Frame) -> None:
        """Emits instruction i in all its copies."""
        instr = self.nest.body[i]
        varying = self.plan.varying[i]
        lanes = self.lanes if varying else 1
        copies = range(frame.copies if varying else 1)
        if i in self.left_out:
            return
        if frame.turns and varying:
            self._run_by_turns(i, frame)
        elif is_store(instr):
            for copy in copies:
                self._store(i, frame, copy, lanes)
        elif instr.name == "load":
            frame.values[i] = [self._load(i, frame, copy, lanes) for copy in copies]
        elif instr.name == "const":
            frame.values[i] = [self._constant(instr)]
        else:
            dtype = self.nest.body[instr.args[0]].dtype if instr.args else instr.dtype
            frame.values[i] = [
                elementwise(
                    instr, dtype, [frame.get(a, copy, lanes) for a in instr.args]
                )
                for copy in copies
            ]

    def _run_by_turns(self, i: int, frame: Frame) -> None:
        """A varying instruction in all its copies, of which every two are turns."""
        instr, lanes, pairs = self.nest.body[i], self.lanes, range(0, frame.copies, 2)
        if is_store(instr):
            for copy in pairs:
                place, _ = self._place(i, frame, copy, lanes)
                value = self._args(i)[0]
                turns = [frame.get(value, copy + n, lanes) for n in (0, 1)]
                with self._sometimes(i, frame):
                    store_turns(self.b, place, *turns)
            return
        if instr.name == "load":
            places = [self._place(i, frame, copy, lanes)[0] for copy in pairs]
            found = [load_turns(self.b, place, lanes) for place in places]
            frame.values[i] = [x for turns in found for x in turns]
            return
        dtype = self.nest.body[instr.args[0]].dtype
        values = [
            computed(instr, dtype, [frame.get(a, copy, lanes) for a in instr.args])
            for copy in range(frame.copies)
        ]
        if rounds(instr, dtype) and instr.dtype == bfloat16:
            found = [rounded_turns(*values[copy : copy + 2]) for copy in pairs]
            values = [x for turns in found for x in turns]
        elif rounds(instr, dtype):
            values = [rounded(x, instr.dtype) for x in values]
        frame.values[i] = values

    def _constant(self, instr: Instr) -> Value:
        kind = register_kind(instr.dtype)
        number = instr.attr
        if kind in ("float", "double"):
            with np.errstate(over="ignore"):
                number = float(instr.dtype.type(number))
        return constant(self.b, number, kind)

    def prepare(self, sweep: Sweep, frame: Frame) -> None:
        """Emits, before a loop, what its turns would otherwise repeat."""
        inside = {*sweep.body, *sweep.restores}
        for i in (*sweep.body, *sweep.reductions):
            if i in self.left_out:
                continue
            instr = self.nest.body[i]
            accesses = instr.name == "load" or is_store(instr)
            indices = [a for a, _ in self._indices(i)] if accesses else []
            if self._varying(i):
                for a in self._args(i):
                    if a not in inside and a not in indices:
                        frame.get(a, 0, self.lanes)
            indices = [a for a in indices if self._scalar(a)]
            movable = accesses and not self.nest.operands[instr.attr].mid
            if indices and movable and not inside.intersection(indices):
                frame.addresses[i] = self.address(i, frame)

    def _args(self, i: int) -> tuple[int, ...]:
        """What an instruction takes, without a choice that is left out."""
        args = self.nest.body[i].args
        return (self.kept[i].value, *args[1:]) if i in self.kept else args

    def _varying(self, i: int) -> bool:
        """Whether instruction i works on vectors: row reductions always do."""
        is_row_reduction = self.nest.axis == "inner" and is_reduction(self.nest.body[i])
        return self.plan.varying[i] or is_row_reduction

    def _scalar(self, i: int) -> bool:
        return not self.plan.varying[i]

    def _indices(self, i: int) -> list[tuple[int, str]]:
        """The gather (or scatter) indices of a load (store), with their strides."""
        instr, gathers = self.nest.body[i], self._access(i).gathers
        args = instr.args[1:] if gathers and is_store(instr) else instr.args
        return list(zip(args, gathers, strict=True)) if gathers else []

    def _access(self, i: int) -> Access:
        return self.arguments.accesses[self.nest.body[i].attr]

    def address(self, i: int, frame: Frame) -> str:
        """The operand's position, moved by the uniform ones among its indices."""
        known = frame.address(i)
        if known is not None:
            return known
        access = self._access(i)
        position = read(self.b, frame.positions[self.nest.body[i].attr])
        for a, stride in self._indices(i):
            if self._scalar(a):
                index = index_value(frame.get(a, 0, 1), self.nest.body[a].dtype)
                offset = (index * Value(self.b, stride, "i64", 1)).text
                position = access.moved(self.b, position, offset)
        return position

    def offsets(self, i: int, frame: Frame, copy: int) -> Value | None:
        """Lane offsets due to indices that vary along inner; None without any."""
        total: Value | None = None
        for a, stride in self._indices(i):
            if not self._scalar(a):
                index = frame.get(a, copy, self.lanes)
                index = index_value(index, self.nest.body[a].dtype)
                moved = index * Value(self.b, stride, "i64", 1)
                total = moved if total is None else total + moved
        return total

    def _element(self, frame: Frame, copy: int, access: Access, position: str) -> str:
        """The position of a copy's first lane."""
        inner = access.operand.inner
        if inner == BROADCAST:
            return position
        at = frame.index
        if inner == CONTIGUOUS:
            position = access.moved(self.b, position, at)
            if copy:
                position = access.moved(self.b, position, str(copy * self.lanes))
            return position
        at = self.b.op(f"add i64 {at}, {copy * self.lanes}") if copy else at
        offset = self.b.op(f"mul i64 {at}, {access.inner}")
        return access.moved(self.b, position, offset)

    def _place(
        self, i: int, frame: Frame, copy: int, lanes: int
    ) -> tuple[str, Value | None]:
        """Address of the first lane, and lane offsets unless lanes are consecutive."""
        access = self._access(i)
        position = self.address(i, frame)
        if lanes == 1:
            if self.lanes == 1:
                position = self._lane_place(i, frame, copy, 0)
            return position, None
        position = self._element(frame, copy, access, position)
        offsets = self.offsets(i, frame, copy)
        inner = access.operand.inner
        if inner in (PAIRED, STRIDED) and access.operand.kind == "array":
            step = self.lane_steps[self.nest.body[i].attr]
            offsets = step if offsets is None else offsets + step
        elif inner == CONTIGUOUS and offsets is not None:
            offsets = offsets + self.numbers
        return position, offsets

    def _one_by_one(self, i: int, frame: Frame, offsets: Value) -> bool:
        """Whether whole vectors of strided elements are better moved without vectors of
        addresses."""
        return frame.mask is None and self._evenly(i, offsets)

    def _evenly(self, i: int, offsets: Value) -> bool:
        """Whether elements are as far apart as the nest says: no index moves them."""
        return offsets is self.lane_steps.get(self.nest.body[i].attr)

    def _load(self, i: int, frame: Frame, copy: int, lanes: int) -> Value:
        access, dtype = self._access(i), self._access(i).operand.dtype
        if access.operand.kind == "index":
            position = self.address(i, frame)
            if lanes > 1:
                position = self._element(frame, copy, access, position)
            start = Value(self.b, position, "i64", 1)
            extra = self.offsets(i, frame, copy) if lanes > 1 else None
            step = Value(self.b, access.inner, "i64", 1)
            return iota(start, step, extra, dtype, lanes)
        position, offsets = self._place(i, frame, copy, lanes)
        if offsets is None:
            mask = frame.mask if lanes > 1 else None
            return load(self.b, position, dtype, lanes, mask, frame.few)
        masks = frame.mask is None or has_mask_registers()
        if masks and self._in_pairs(i, offsets):
            return load_paired(self.b, position, dtype, lanes, frame.mask)
        if masks and access.operand.back and self._evenly(i, offsets):
            last = access.moved(self.b, position, str(1 - lanes))
            return load_back(self.b, last, dtype, lanes, frame.mask)
        if self._one_by_one(i, frame, offsets):
            return load_strided(self.b, position, access, lanes)
        where = pointers(self.b, access.kind, position, offsets)
        return gather(where, dtype, frame.mask)

    def _store(self, i: int, frame: Frame, copy: int, lanes: int) -> None:
        instr = self.nest.body[i]
        access, value = self._access(i), frame.get(self._args(i)[0], copy, lanes)
        dtype = access.operand.dtype
        position, offsets = self._place(i, frame, copy, lanes)
        if i in self.pairs and frame.mask is None and self._in_pairs(i, offsets):
            self._store_pair(*self.pairs[i], i, frame, copy, lanes)
            return
        mask = frame.mask if lanes > 1 else None
        how = instr.name.removeprefix("store").removeprefix("_")
        if offsets is None:
            with self._sometimes(i, frame):
                if how:
                    old = load(self.b, position, dtype, lanes, mask, frame.few)
                    value = _combined(how, dtype, old, value)
                store(self.b, position, value, dtype, mask, frame.few)
            return
        if not how and self._one_by_one(i, frame, offsets):
            store_strided(self.b, position, access.inner, value, dtype)
            return
        where = pointers(self.b, access.kind, position, offsets)
        if not how:
            scatter(where, value, dtype, mask)
            return

        def combine(address: str, term: Value) -> None:
            old = load(self.b, address, dtype, 1, None)
            store(self.b, address, _combined(how, dtype, old, term), dtype, None)

        if frame.mask is None and access.operand.inner == BROADCAST:
            for number in range(lanes):
                place = self._lane_place(i, frame, copy, number)
                combine(place, value.lane(number))
            return
        most = str(self.lanes)
        active = self.b.least(frame.active, most) if frame.active else most
        with self.b.loop("0", active) as lane:
            combine(where.lane(lane).text, value.lane(lane))

    @contextmanager
    def _sometimes(self, i: int, frame: Frame) -> Iterator[None]:
        """What a store does, if it does it."""
        if i not in self.kept:
            yield
            return
        with self.b.when(frame.get(self.kept[i].where, 0, 1).text):
            yield

    def _lane_place(self, i: int, frame: Frame, copy: int, lane: int) -> str:
        """A lane's address in what only indices move along inner."""
        position = self.address(i, frame)
        for a, stride in self._indices(i):
            if not self._scalar(a):
                # One by one: few machines multiply vectors of 64-bit integers.
                index = frame.get(a, copy, self.lanes)
                index = index.lane(lane) if index.lanes > 1 else index
                index = index_value(index, self.nest.body[a].dtype)
                offset = (index * Value(self.b, stride, "i64", 1)).text
                position = self._access(i).moved(self.b, position, offset)
        return position

    def _in_pairs(self, i: int, offsets: Value | None) -> bool:
        """Whether a vector is every second element, from some address on."""
        if offsets is None:
            return False
        k = self.nest.body[i].attr
        paired = self.nest.operands[k].inner == PAIRED
        return paired and offsets is self.lane_steps.get(k)

    def _store_pair(
        self, first: int, second: int, i: int, frame: Frame, copy: int, lanes: int
    ) -> None:
        """Both of two stores of parts of the same numbers, when the second is due."""
        if i == first:
            return
        position, _ = self._place(first, frame, copy, lanes)
        parts = (self.nest.body[k].args[0] for k in (first, second))
        re, im = (frame.get(part, copy, lanes) for part in parts)
        store_pairs(self.b, position, re, im, self._access(i).operand.dtype)

    def settled(self, i: int, value: Value) -> Value:
        """A reduction's result as its readers see it."""
        instr = self.nest.body[i]
        return rounded(value, instr.dtype) if rounds_half(instr) else value

    def reduction(self, i: int) -> Reduction:
        return reduction_of(self.nest, i)

    def running(self, i: int) -> tuple[str, np.dtype]:
        """The name of running reduction i, and its dtype."""
        instr = self.nest.body[i]
        return instr.name.removeprefix("running_"), instr.dtype

    def added(
        self, i: int, frame: Frame, copy: int, lanes: int, index: str, old: Parts
    ) -> Parts:
        """Reduction i after a turn; `index` is the first lane's, for argmax."""
        term, reduction = self.nest.body[self.nest.body[i].args[0]], self.reduction(i)
        if reduction.rounds and self._is_product(term):
            x, y, _ = (frame.get(a, copy, lanes) for a in term.args)
            return [multiply_add(x, y, old[0])]
        return reduction.followed(old, self._parts(i, frame, copy, lanes, index))

    def _is_product(self, term: Instr) -> bool:
        """Whether this is a product that need not be rounded before it is added."""
        if term.name != "multiply_add" or term.attr is not None:
            return False
        zero = self.nest.body[term.args[2]]
        return zero.name == "const" and not zero.attr and not rounds_half(term)

    def _parts(self, i: int, frame: Frame, copy: int, lanes: int, index: str) -> Parts:
        source = self.nest.body[i].args[0]
        value = frame.get(source, copy, lanes)
        reduction = self.reduction(i)
        if reduction.index is None:
            return [value]
        kind = register_kind(reduction.index)
        first = Value(self.b, index, "i64", 1)
        if kind != "i64":
            first = first.cast("trunc", kind)
        if self.nest.axis == "mid":
            return [value, first.splat(lanes)]
        numbers = lane_numbers(self.b, kind, lanes) + copy * self.lanes
        return [value, numbers + first]


def reduction_of(nest: Nest, i: int) -> Reduction:
    """What instruction i of a nest carries and combines."""
    instr = nest.body[i]
    name = instr.name.removeprefix("reduce_")
    source = nest.body[instr.args[0]].dtype
    return Reduction(name, source, instr.dtype if name.startswith("arg") else None)


def _combined(how: str, dtype: np.dtype, old: Value, value: Value) -> Value:
    (new,) = Reduction(COMBINING[how], dtype).combine([old], [value])
    return rounded(new, dtype) if is_half(dtype) else new


def limit(b: Builder, frame: Frame, high: str, lanes: int, near: bool = False) -> None:
    """Masks off the lanes of a frame that are not below `high`.

    near: whether that is known to be less than 2**32 away. The number of active lanes
    may then be more than there are.
    """
    frame.active = b.op(f"sub i64 {high}, {frame.index}")
    if not near:
        frame.active = b.least(frame.active, str(lanes))
    count = Value(b, b.op(f"trunc i64 {frame.active} to i32"), "i32", 1)
    frame.mask = lane_numbers(b, "i32", lanes).compare("ult", count)


def carried(parts: list[Value]) -> list[tuple[str, str]]:
    return [(p.type, p.text) for p in parts]


def renamed(parts: list[Value], names: list[str]) -> list[Value]:
    """The same types under other names: what a loop carries for `parts`."""
    return [
        Value(p.b, name, p.kind, p.lanes) for p, name in zip(parts, names, strict=True)
    ]

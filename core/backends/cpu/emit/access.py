"""Reads the argument block and moves data between memory and registers.

Argument block (an array of 64-bit words; signature ``void k(ptr args, i64 task)``)::

    [0]              number of tasks
    outer sizes      nest.outer words, slowest first
    mid sizes        nest.mid words
    inner size       1 word
    scratch pointer  1 word, then bytes per task 1 word (only if tasks.scratch_rows > 0;
                     tasks.scratch_bytes gives the number)
    per operand:     pointer (or, for kind "index", the start value), then strides:
                     one word per outer dim, per mid dim, then the inner stride if the
                     operand's inner class is STRIDED, then one per gather index.

Strides count elements, may be zero or negative; for "index" they are increments of the
index value.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.half import packed, rounded, widened
from treadle.backends.cpu.emit.lanes import (
    Value,
    constant,
    half_name,
    is_signed,
    lane_numbers,
    mangled,
    memory_kind,
    register_kind,
    type_name,
)
from treadle.backends.cpu.emit.tasks import scratch_rows
from treadle.kernels.nest import BROADCAST, CONTIGUOUS, PAIRED, Nest, Operand
from treadle.records import record

_HELD = 8
"""Operands whose words are read first of all. The registers don't hold those of more:
LLVM would look long for which to put aside, and read them again all the same."""


@record(frozen=True)
class Word:
    """A word of the argument block that is read where it is needed."""

    at: int
    kind: str = "i64"


def read(b: Builder, word: Word | str) -> str:
    """The value of a word, read here, or of what has been read or is a number."""
    if isinstance(word, str):
        return word
    address = b.op(f"getelementptr i64, ptr %args, i64 {word.at}")
    return b.op(f"load {word.kind}, ptr {address}")


@record(frozen=True)
class Access:
    """An operand with its run-time words: base address (or start value) and strides."""

    operand: Operand
    base: Word | str
    outer: Sequence[Word | str]
    mid: Sequence[Word | str]
    inner: str
    gathers: list[str]

    @property
    def kind(self) -> str:
        return memory_kind(self.operand.dtype)

    def moved(self, b: Builder, position: Word | str, offset: str) -> str:
        """The position `offset` elements (or index values) further on."""
        position = read(b, position)
        if self.operand.kind == "index":
            return b.op(f"add i64 {position}, {offset}")
        return b.op(f"getelementptr {self.kind}, ptr {position}, i64 {offset}")


@record(frozen=True)
class Arguments:
    """The argument block, loaded."""

    tasks: str
    outer: list[str]
    mid: list[str]
    inner: str
    scratch: str
    scratch_bytes: str
    accesses: list[Access]


def read_arguments(b: Builder, nest: Nest) -> Arguments:
    """Loads the argument block from %args."""
    cursor = iter(range(1 << 16))

    def word(kind: str = "i64") -> str:
        return read(b, Word(next(cursor), kind))

    def later(kind: str = "i64") -> Word | str:
        return Word(next(cursor), kind) if many else word(kind)

    many = len(nest.operands) > _HELD

    tasks = word()
    outer = [word() for _ in range(nest.outer)]
    mid = [word() for _ in range(nest.mid)]
    inner = word()
    has_scratch = scratch_rows(nest) > 0
    scratch = word("ptr") if has_scratch else "null"
    scratch_bytes = word() if has_scratch else "0"
    accesses = []
    for operand in nest.operands:
        base = later("i64" if operand.kind == "index" else "ptr")
        steps = [later() for _ in range(nest.outer)]
        mid_steps = [later() for _ in range(nest.mid)]
        along = {BROADCAST: "0", CONTIGUOUS: "1", PAIRED: "2"}.get(
            operand.inner
        ) or word()
        gathers = [word() for _ in range(operand.gathers)]
        accesses.append(Access(operand, base, steps, mid_steps, along, gathers))
    return Arguments(tasks, outer, mid, inner, scratch, scratch_bytes, accesses)


def to_register(value: Value, dtype: np.dtype) -> Value:
    """From the memory form of `dtype` to its register form."""
    if dtype.kind == "b":
        return value.compare("ne", 0)
    return widened(value, dtype) if half_name(dtype) else value


def to_memory(value: Value, dtype: np.dtype) -> Value:
    """From the register form of `dtype` to its memory form."""
    if dtype.kind == "b":
        return value.cast("zext", "i8")
    return packed(value, dtype) if half_name(dtype) else value


def index_value(value: Value, dtype: np.dtype) -> Value:
    """An integer index widened to i64."""
    if value.kind == "i64":
        return value
    return value.cast("sext" if is_signed(dtype) else "zext", "i64")


def load(
    b: Builder,
    address: str,
    dtype: np.dtype,
    lanes: int,
    mask: Value | None,
    few: int = 0,
) -> Value:
    """Loads consecutive elements; lanes that are masked off read as zero. few: how many
    are not, if that is known."""
    if few and lanes > 1:
        return load_few(b, address, dtype, lanes, few)
    return to_register(_loaded(b, address, dtype, lanes, mask), dtype)


def load_back(
    b: Builder, address: str, dtype: np.dtype, lanes: int, mask: Value | None
) -> Value:
    """The same with the last element, which comes first. mask: of what comes out."""
    order = [*reversed(range(lanes))]
    mask = None if mask is None else mask.shuffle(order)
    return to_register(_loaded(b, address, dtype, lanes, mask).shuffle(order), dtype)


def _loaded(
    b: Builder, address: str, dtype: np.dtype, lanes: int, mask: Value | None
) -> Value:
    """As they lie in memory."""
    kind, align = memory_kind(dtype), dtype.itemsize
    of = type_name(kind, lanes)
    if mask is None:
        text = b.op(f"load {of}, ptr {address}, align {align}")
    else:
        symbol = f"@llvm.masked.load.{mangled(kind, lanes)}.p0"
        b.declare(f"{of} {symbol}(ptr, <{lanes} x i1>, {of})")
        text = b.op(
            f"call {of} {symbol}(ptr align {align} {address},"
            f" {mask.type} {mask.text}, {of} zeroinitializer)"
        )
    return Value(b, text, kind, lanes)


def load_few(
    b: Builder, address: str, dtype: np.dtype, lanes: int, count: int
) -> Value:
    """Loads the first elements of a vector, the others are zero: in the pieces that
    `store_few` stores. What has been stored so a moment ago is there; loads and stores
    with masks would wait for each other."""
    kind = memory_kind(dtype)
    whole = constant(b, 0, kind, lanes)
    for first, size in _pieces(count):
        at = b.op(f"getelementptr {kind}, ptr {address}, i64 {first}")
        text = b.op(f"load {type_name(kind, size)}, ptr {at}, align {dtype.itemsize}")
        if size == 1:
            into = (
                f"insertelement {whole.type} {whole.text}, {kind} {text}, i64 {first}"
            )
            whole = Value(b, b.op(into), kind, lanes)
            continue
        piece = Value(b, text, kind, size)
        piece = piece.shuffle([i if i < size else 0 for i in range(lanes)])
        inside = range(first, first + size)
        order = [lanes + i - first if i in inside else i for i in range(lanes)]
        whole = whole.shuffle(order, piece)
    return to_register(whole, dtype)


def store_few(
    b: Builder, address: str, value: Value, dtype: np.dtype, count: int
) -> None:
    """Stores the first elements of a vector, in pieces of powers of two."""
    value = to_memory(value, dtype)
    for first, size in _pieces(count):
        at = b.op(f"getelementptr {value.kind}, ptr {address}, i64 {first}")
        lanes = list(range(first, first + size))
        part = value.lane(first) if size == 1 else value.shuffle(lanes)
        b(f"store {part.type} {part.text}, ptr {at}, align {dtype.itemsize}")


def _pieces(count: int) -> list[tuple[int, int]]:
    """Where powers of two begin that add up to a number, the largest first."""
    found, first = [], 0
    for bit in reversed(range(count.bit_length())):
        if count >> bit & 1:
            found.append((first, 1 << bit))
            first += 1 << bit
    return found


def load_paired(
    b: Builder, address: str, dtype: np.dtype, lanes: int, mask: Value | None
) -> Value:
    """Loads every second element, and nothing behind the last of them."""
    last = b.op(f"getelementptr {memory_kind(dtype)}, ptr {address}, i64 {lanes - 1}")
    halves = [
        load(b, at, dtype, lanes, None if mask is None else _paired_mask(mask, half))
        for half, at in enumerate((address, last))
    ]
    return every_second(*halves)


def every_second(low: Value, high: Value) -> Value:
    """Every second element of two vectors, of which the second begins with the last of
    the first."""
    lanes = low.lanes
    return low.shuffle([*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)], high)


def _load_apart(
    b: Builder, address: str, apart: int, dtype: np.dtype, lanes: int
) -> Value:
    """Loads elements that are few others apart, with those between them, and nothing
    behind the last."""
    kind, last = memory_kind(dtype), apart * (lanes - 1) + 1 - lanes
    starts = [min(k * lanes, last) for k in range(apart)]
    whole: Value | None = None
    for k, start in enumerate(starts):
        at = b.op(f"getelementptr {kind}, ptr {address}, i64 {start}")
        text = f"load {type_name(kind, lanes)}, ptr {at}, align {dtype.itemsize}"
        part = Value(b, b.op(text), kind, lanes)
        if whole is None:
            whole = part.shuffle([n * apart % lanes for n in range(lanes)])
            continue
        mine = [n * apart // lanes == k for n in range(lanes)]
        order = [
            lanes + n * apart - start if here else n for n, here in enumerate(mine)
        ]
        whole = whole.shuffle(order, part)
    assert whole is not None
    return to_register(whole, dtype)


def _paired_mask(mask: Value, half: int) -> Value:
    """Which elements are read for half of the lanes: of the second half, the odd
    ones."""
    first = half * mask.lanes // 2
    spread = mask.shuffle([first + k // 2 for k in range(mask.lanes)])
    odd = ", ".join([f"i1 {str(k % 2 == half).lower()}" for k in range(mask.lanes)])
    return spread & Value(mask.b, f"<{odd}>", "i1", mask.lanes)


def store_pairs(
    b: Builder, address: str, first: Value, second: Value, dtype: np.dtype
) -> None:
    """Stores the elements of two vectors in turns."""
    lanes = first.lanes
    order = [i for k in range(lanes) for i in (k, lanes + k)]
    for half in (0, lanes):
        at = b.op(f"getelementptr {memory_kind(dtype)}, ptr {address}, i64 {half}")
        part = first.shuffle(order[half : half + lanes], second)
        store(b, at, part, dtype, None)


def store(
    b: Builder,
    address: str,
    value: Value,
    dtype: np.dtype,
    mask: Value | None,
    few: int = 0,
) -> None:
    """Stores consecutive elements, leaving masked-off lanes alone. few: how many
    are not, if that is known."""
    if few and value.lanes > 1:
        store_few(b, address, value, dtype, few)
        return
    value, align = to_memory(value, dtype), dtype.itemsize
    if mask is None:
        b(f"store {value.type} {value.text}, ptr {address}, align {align}")
        return
    symbol = f"@llvm.masked.store.{mangled(value.kind, value.lanes)}.p0"
    b.declare(f"void {symbol}({value.type}, ptr, <{value.lanes} x i1>)")
    b(
        f"call void {symbol}({value.type} {value.text}, ptr align {align} {address},"
        f" {mask.type} {mask.text})"
    )


def pointers(b: Builder, kind: str, address: str, offsets: Value) -> Value:
    """One address per lane, `offsets` elements from `address`."""
    text = b.op(f"getelementptr {kind}, ptr {address}, {offsets.type} {offsets.text}")
    return Value(b, text, "ptr", offsets.lanes)


_LONG_GATHER = 64
"""Bytes of vectors whose elements are loaded one by one: AVX-512's gather takes up to
1.8 times as long (Zen 4), AVX2's does not."""


def gather(addresses: Value, dtype: np.dtype, mask: Value | None) -> Value:
    b, kind, lanes = addresses.b, memory_kind(dtype), addresses.lanes
    if mask is None and lanes * dtype.itemsize >= _LONG_GATHER:
        places = [addresses.lane(lane).text for lane in range(lanes)]
        return _loaded_one_by_one(b, places, dtype)
    of, mask = type_name(kind, lanes), mask or constant(b, True, "i1", lanes)
    symbol = f"@llvm.masked.gather.{mangled(kind, lanes)}.{mangled('ptr', lanes)}"
    b.declare(f"{of} {symbol}({addresses.type}, {mask.type}, {of})")
    text = b.op(
        f"call {of} {symbol}({addresses.type} align {dtype.itemsize}"
        f" {addresses.text}, {mask.type} {mask.text}, {of} zeroinitializer)"
    )
    return to_register(Value(b, text, kind, lanes), dtype)


def scatter(
    addresses: Value, value: Value, dtype: np.dtype, mask: Value | None
) -> None:
    """Stores one element per lane; where addresses meet, the last lane wins."""
    b, value = addresses.b, to_memory(value, dtype)
    mask = mask or constant(b, True, "i1", addresses.lanes)
    symbol = (
        f"@llvm.masked.scatter.{mangled(value.kind, value.lanes)}"
        f".{mangled('ptr', value.lanes)}"
    )
    b.declare(f"void {symbol}({value.type}, {addresses.type}, {mask.type})")
    b(
        f"call void {symbol}({value.type} {value.text}, {addresses.type}"
        f" align {dtype.itemsize} {addresses.text}, {mask.type} {mask.text})"
    )


def load_strided(b: Builder, address: str, access: Access, lanes: int) -> Value:
    """Loads elements of an operand with a step along inner, one by one unless that is
    small: `gather` has to take apart its vectors of addresses where machines have no
    such instruction, or a slow one."""
    operand = access.operand
    if operand.apart:
        return _load_apart(b, address, operand.apart, operand.dtype, lanes)
    places = _places(b, access.kind, address, access.inner, lanes)
    return _loaded_one_by_one(b, places, operand.dtype)


def _loaded_one_by_one(b: Builder, places: Sequence[str], dtype: np.dtype) -> Value:
    kind, lanes = memory_kind(dtype), len(places)
    of, text = type_name(kind, lanes), "poison"
    for lane, place in enumerate(places):
        element = b.op(f"load {kind}, ptr {place}, align {dtype.itemsize}")
        text = b.op(f"insertelement {of} {text}, {kind} {element}, i64 {lane}")
    return to_register(Value(b, text, kind, lanes), dtype)


def store_strided(
    b: Builder, address: str, step: str, value: Value, dtype: np.dtype
) -> None:
    """Stores elements so; the last one stays where the step is 0."""
    value = to_memory(value, dtype)
    places = _places(b, value.kind, address, step, value.lanes)
    for lane, place in enumerate(places):
        element = b.op(f"extractelement {value.type} {value.text}, i64 {lane}")
        b(f"store {value.kind} {element}, ptr {place}, align {dtype.itemsize}")


def _places(b: Builder, kind: str, address: str, step: str, lanes: int) -> list[str]:
    """The addresses of lanes: by fours, as more steps would not fit the registers."""
    places: list[str] = []
    steps = [b.op(f"mul i64 {step}, {n}") for n in range(1, min(lanes, 5))]
    for lane in range(lanes):
        if lane and lane % 4 == 0:
            address = b.op(f"getelementptr {kind}, ptr {address}, i64 {steps[3]}")
        moved = f"getelementptr {kind}, ptr {address}, i64 {steps[lane % 4 - 1]}"
        places.append(b.op(moved) if lane % 4 else address)
    return places


def iota(
    start: Value, step: Value, extra: Value | None, dtype: np.dtype, lanes: int
) -> Value:
    """start, start + step, ... along the lanes (plus `extra`), converted to `dtype`."""
    b, kind = start.b, register_kind(dtype)
    narrow = kind in ("i8", "i16", "i32") and extra is None
    work = kind if narrow else "i64"
    if narrow:
        start, step = start.cast("trunc", work), step.cast("trunc", work)
    numbers = start
    if lanes > 1:
        numbers = start.splat(lanes) + lane_numbers(b, work, lanes) * step
    if extra is not None:
        numbers = numbers + extra
    if kind == "i1":
        return numbers.compare("ne", 0)
    if kind in ("float", "double"):
        result = numbers.cast("sitofp", kind)
        return rounded(result, dtype) if half_name(dtype) else result
    return numbers if kind == work else numbers.cast("trunc", kind)

"""The micro-kernel: a block of C in registers, multiplied out over k.

There is one for every height and number of vectors, all behind one function::

    void tile(
        i64 index,                        which: see `sizes`
        ptr a, i64 a_row, i64 a_step,     the block's rows of A; from one k to the next
        ptr segments, i64 count,          k runs through `count` segments, which start
                                          at a + segments[i].first, have as many
                                          elements as the target says, and leave out
                                          segments[i].second bytes of B before
        ptr b, i64 b_row,                 rows of B: vectors * lanes elements for each k
        ptr target)                       where C is, as a `TARGET`

Steps are in bytes. A matrix product has one segment at offset 0; a convolution has one
per filter row, so that it reads its image in place.

On x86-64 the function is assembly (`tile_x86`), elsewhere IR (here). LLVM's
loop strength reduction and machine scheduler do not see that the registers are full,
and where they get it wrong the sums spill and the loop is four times slower. Assembly
is also ten times faster to compile.
"""

from __future__ import annotations

from typing import NamedTuple

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.emit.pairs import (
    added_by_model,
    halves,
    rounded_by_instruction,
    rounded_by_model,
)
from treadle.backends.cpu.gemm.arguments import Tile
from treadle.records import record

_KERNEL_PARAMETERS = (
    "ptr noalias readonly %a, i64 %a_row, i64 %a_step, ptr readonly %segments, "
    "i64 %count, ptr noalias readonly %b, i64 %b_row, ptr readonly %target"
)
PARAMETERS = "i64 %index, " + _KERNEL_PARAMETERS

TARGET = "{ ptr, i64, i64, i64, i64 }"
"""C, its row step in bytes, how many columns to write, whether (1) to add to C, and how
long segments are."""


class Stored(NamedTuple):
    """The type of elements in memory, and their size."""

    scalar: str
    itemsize: int


@record(frozen=True)
class Machine:
    """What the emitted code is for.

    scalar: "float", "double" or "i32". assembly: "avx512", "avx2", or "" for IR.
    pairs: whether what A and B hold for a float is two bfloat16, one k after the other,
    whose products are both added (`treadle.backends.cpu.target.multiplies_pairs`); IR
    is a model of it.
    halves: whether operands are bfloat16, of which pairs, or floats, are made as they
    are read.
    short: whether results are stored as bfloat16, and never added to others.
    apart: whether the micro-kernels lie in a module of their own (`sweep.needed`), for
    all that use the same ones.
    """

    scalar: str
    tile: Tile
    assembly: str
    pairs: bool = False
    halves: bool = False
    short: bool = False
    apart: bool = False

    @property
    def operand(self) -> Stored:
        """How operands lie in memory."""
        return Stored("i16", 2) if self.halves else Stored(self.scalar, self.itemsize)

    @property
    def result(self) -> Stored:
        """How results lie in memory."""
        return Stored("i16", 2) if self.short else Stored(self.scalar, self.itemsize)

    @property
    def itemsize(self) -> int:
        return 8 if self.scalar == "double" else 4

    @property
    def is_float(self) -> bool:
        return self.scalar != "i32"

    @property
    def add(self) -> str:
        """The instruction that adds."""
        return "fadd" if self.is_float else "add"

    @property
    def vector(self) -> str:
        return f"<{self.tile.lanes} x {self.scalar}>"

    @property
    def mask(self) -> str:
        return f"<{self.tile.lanes} x i1>"

    @property
    def suffix(self) -> str:
        return f"v{self.tile.lanes}{'f' if self.is_float else 'i'}{8 * self.itemsize}"


def splat(b: Builder, machine: Machine, scalar: str, kind: str) -> str:
    """A vector of `lanes` copies of a scalar of type `kind`."""
    lanes = machine.tile.lanes
    vector = f"<{lanes} x {kind}>"
    first = b.op(f"insertelement {vector} poison, {kind} {scalar}, i64 0")
    zeros = f"<{lanes} x i32> zeroinitializer"
    return b.op(f"shufflevector {vector} {first}, {vector} poison, {zeros}")


def lane_mask(b: Builder, machine: Machine, columns: str, first: int = 0) -> str:
    """Which of the lanes `first`, `first` + 1, ... are below the i64 `columns`."""
    lanes = machine.tile.lanes
    limit = splat(b, machine, b.op(f"trunc i64 {columns} to i32"), "i32")
    numbers = ", ".join(f"i32 {first + lane}" for lane in range(lanes))
    return b.op(f"icmp slt <{lanes} x i32> <{numbers}>, {limit}")


def masked_load(
    b: Builder, machine: Machine, address: str, mask: str, given: Stored | None = None
) -> str:
    """Lanes that the mask leaves out are zero and not read. given: what lies there, if
    it isn't what is summed."""
    vector, kind, suffix = machine.vector, machine.mask, machine.suffix
    align = machine.itemsize
    if given is not None and given.itemsize != align:
        lanes, align = machine.tile.lanes, given.itemsize
        vector, suffix = f"<{lanes} x {given.scalar}>", f"v{lanes}{given.scalar}"
    name = f"@llvm.masked.load.{suffix}.p0"
    b.declare(f"{vector} {name}(ptr, {kind}, {vector})")
    return b.op(
        f"call {vector} {name}(ptr align {align} {address}, {kind} {mask}, "
        f"{vector} zeroinitializer)"
    )


def as_stored(b: Builder, machine: Machine, value: str) -> str:
    """A vector of results, as they are stored: with its type."""
    if not machine.short:
        return f"{machine.vector} {value}"
    lanes = machine.tile.lanes
    by = rounded_by_instruction if machine.assembly else rounded_by_model
    return f"<{lanes} x i16> {by(b, value, lanes)}"


def masked_store(
    b: Builder, machine: Machine, value: str, address: str, mask: str
) -> None:
    """A vector of results."""
    kind, suffix = machine.mask, machine.suffix
    result = as_stored(b, machine, value)
    vector = f"<{machine.tile.lanes} x {machine.result.scalar}>"
    if machine.short:
        suffix = f"v{machine.tile.lanes}i16"
    name = f"@llvm.masked.store.{suffix}.p0"
    b.declare(f"void {name}({vector}, ptr, {kind})")
    align = machine.result.itemsize
    b(f"call void {name}({result}, ptr align {align} {address}, {kind} {mask})")


class Size(NamedTuple):
    """The block of C of one micro-kernel: rows x (vectors * lanes) elements."""

    rows: int
    vectors: int
    lanes: int


def sizes(machine: Machine) -> list[Size]:
    """The micro-kernels: by width, then rows."""
    heights, lanes = range(1, machine.tile.rows + 1), machine.tile.lanes
    few = range(1, wide_rows(machine) + 1)
    return [
        *(Size(rows, vectors, lanes) for vectors in (1, 2) for rows in heights),
        *(Size(rows, 4, lanes) for rows in few),
        *(Size(rows, 1, lanes // 2) for rows in heights if has_halves(machine)),
    ]


def has_halves(machine: Machine) -> bool:
    """Whether there are blocks of half a vector, for few columns. Of AVX-512, some CPUs
    take two turns for a vector, none more than one for half of it."""
    return machine.assembly == "avx512"


def wide_rows(machine: Machine) -> int:
    """Up to so few rows, tiles may be twice as wide: they need more sums at once."""
    return 2 if machine.assembly == "avx2" else 3


def emit_plain_tiles(b: Builder, machine: Machine) -> None:
    """Defines ``tile`` as IR, for machines without assembly ones."""
    kernels = []
    for rows, vectors, _ in sizes(machine):
        kernels.append(f"@tile_{rows}x{vectors}")
        _emit_plain_tile(b, machine, rows, vectors, kernels[-1])
    entries = ", ".join(f"ptr {kernel}" for kernel in kernels)
    count = len(kernels)
    b.lines.append(f"@tiles = internal constant [{count} x ptr] [{entries}]")
    with b.function(f"define internal void @tile({PARAMETERS})"):
        slot = b.op("getelementptr ptr, ptr @tiles, i64 %index")
        kernel = b.op(f"load ptr, ptr {slot}, align 8")
        b(
            f"call void {kernel}(ptr %a, i64 %a_row, i64 %a_step, ptr %segments, "
            "i64 %count, ptr %b, i64 %b_row, ptr %target)"
        )
        b("ret void")


def _emit_plain_tile(
    b: Builder, machine: Machine, rows: int, vectors: int, name: str
) -> None:
    with b.function(f"define internal void {name}({_KERNEL_PARAMETERS})"):
        fields = []
        for i, kind in enumerate(("ptr", "i64", "i64", "i64", "i64")):
            field = b.op(f"getelementptr {TARGET}, ptr %target, i64 0, i32 {i}")
            fields.append(b.op(f"load {kind}, ptr {field}, align 8"))
        c, c_row, columns, accumulate, length = fields
        sums = _plain_loop(b, machine, rows, vectors, length)
        if machine.short:
            _write_short(b, machine, sums, (c, c_row), columns)
            b("ret void")
            return
        full = b.op(f"icmp eq i64 {columns}, {vectors * machine.tile.lanes}")
        with b.when(full):
            _write_vectors(b, machine, sums, (c, c_row, accumulate))
            b("ret void")
            b.label(b.fresh_label("unreachable"))
        _write_elements(b, machine, sums, (c, c_row, accumulate), columns)
        b("ret void")


def _write_short(
    b: Builder,
    machine: Machine,
    sums: list[list[str]],
    target: tuple[str, str],
    columns: str,
) -> None:
    """Rounded, and under masks."""
    row, c_row = target
    lanes = machine.tile.lanes
    masks = [lane_mask(b, machine, columns, j * lanes) for j, _ in enumerate(sums[0])]
    for i, line in enumerate(sums):
        if i:
            row = b.op(f"getelementptr i8, ptr {row}, i64 {c_row}")
        for j, (value, mask) in enumerate(zip(line, masks, strict=True)):
            address = b.op(f"getelementptr i16, ptr {row}, i64 {j * lanes}")
            masked_store(b, machine, value, address, mask)


def _write_vectors(
    b: Builder, machine: Machine, sums: list[list[str]], target: tuple[str, str, str]
) -> None:
    vector, align = machine.vector, machine.itemsize
    row, c_row, accumulate = target
    keep = splat(b, machine, b.op(f"icmp ne i64 {accumulate}, 0"), "i1")
    for i, line in enumerate(sums):
        if i:
            row = b.op(f"getelementptr i8, ptr {row}, i64 {c_row}")
        for j, value in enumerate(line):
            address = b.op(f"getelementptr {vector}, ptr {row}, i64 {j}")
            old = b.op(f"load {vector}, ptr {address}, align {align}")
            new = b.op(f"{machine.add} {vector} {value}, {old}")
            # A select, not a product with 0: what C held may be infinite.
            kinds = f"{machine.mask} {keep}, {vector} {new}, {vector} {value}"
            b(f"store {vector} {b.op(f'select {kinds}')}, ptr {address}, align {align}")


def _write_elements(
    b: Builder,
    machine: Machine,
    sums: list[list[str]],
    target: tuple[str, str, str],
    columns: str,
) -> None:
    """By way of memory, where elements can be told apart."""
    scalar, vector, align = machine.scalar, machine.vector, machine.itemsize
    c, c_row, accumulate = target
    count = len(sums) * len(sums[0])
    buffer = b.op(f"alloca [{count} x {vector}], align 64")
    for number, value in enumerate(value for line in sums for value in line):
        address = b.op(f"getelementptr {vector}, ptr {buffer}, i64 {number}")
        b(f"store {vector} {value}, ptr {address}, align {align}")
    keep = b.op(f"icmp ne i64 {accumulate}, 0")
    with b.loop("0", str(len(sums))) as i:
        offset = b.op(f"mul i64 {i}, {c_row}")
        row = b.op(f"getelementptr i8, ptr {c}, i64 {offset}")
        start = b.op(f"mul i64 {i}, {len(sums[0]) * machine.tile.lanes}")
        line = b.op(f"getelementptr {scalar}, ptr {buffer}, i64 {start}")
        with b.loop("0", columns) as j:
            place = b.op(f"getelementptr {scalar}, ptr {line}, i64 {j}")
            value = b.op(f"load {scalar}, ptr {place}, align {align}")
            address = b.op(f"getelementptr {scalar}, ptr {row}, i64 {j}")
            old = b.op(f"load {scalar}, ptr {address}, align {align}")
            new = b.op(f"{machine.add} {scalar} {value}, {old}")
            result = b.op(f"select i1 {keep}, {scalar} {new}, {scalar} {value}")
            b(f"store {scalar} {result}, ptr {address}, align {align}")


def multiply_add(b: Builder, machine: Machine, x: str, y: str, total: str) -> str:
    vector, lanes = machine.vector, machine.tile.lanes
    if not machine.is_float:
        return b.op(f"add {vector} {total}, {b.op(f'mul {vector} {x}, {y}')}")
    if machine.pairs:
        words = [b.op(f"bitcast {vector} {a} to <{lanes} x i32>") for a in (x, y)]
        of_x, of_y = (halves(b, word, lanes) for word in words)
        return added_by_model(b, total, of_x, of_y, lanes)
    fma = f"@llvm.fmuladd.{machine.suffix}"
    b.declare(f"{vector} {fma}({vector}, {vector}, {vector})")
    return b.op(f"call {vector} {fma}({vector} {x}, {vector} {y}, {vector} {total})")


def _plain_loop(
    b: Builder, machine: Machine, rows: int, vectors: int, length: str
) -> list[list[str]]:
    """Gives the sums."""
    vector, scalar, align = machine.vector, machine.scalar, machine.itemsize
    element_align = 2 if machine.pairs else align
    number = rows * vectors
    first = [("ptr", "%b"), *([(vector, "zeroinitializer")] * number)]
    with b.carrying("0", "%count", "1", first) as segment:
        slot = b.op(f"getelementptr [2 x i64], ptr %segments, i64 {segment.index}")
        offset = b.op(f"load i64, ptr {slot}, align 8")
        start = b.op(f"getelementptr i8, ptr %a, i64 {offset}")
        slot = b.op(f"getelementptr i64, ptr {slot}, i64 1")
        skipped = b.op(f"load i64, ptr {slot}, align 8")
        start_of_b, *totals = segment.values
        start_of_b = b.op(f"getelementptr i8, ptr {start_of_b}, i64 {skipped}")
        kinds = [kind for kind, _ in first]
        inner = list(zip(kinds, [start_of_b, *totals], strict=True))
        with b.carrying("0", length, "1", inner) as turn:
            row_of_b, *sums = turn.values
            lines_of_b = []
            for j in range(vectors):
                address = b.op(f"getelementptr {vector}, ptr {row_of_b}, i64 {j}")
                lines_of_b.append(b.op(f"load {vector}, ptr {address}, align {align}"))
            ahead = b.op(f"mul i64 {turn.index}, %a_step")
            address = b.op(f"getelementptr i8, ptr {start}, i64 {ahead}")
            new = []
            for i in range(rows):
                if i:
                    address = b.op(f"getelementptr i8, ptr {address}, i64 %a_row")
                element = f"load {scalar}, ptr {address}, align {element_align}"
                element = b.op(element)
                factor = splat(b, machine, element, scalar)
                for j, line in enumerate(lines_of_b):
                    old = sums[i * vectors + j]
                    new.append(multiply_add(b, machine, factor, line, old))
            following = b.op(f"getelementptr i8, ptr {row_of_b}, i64 %b_row")
            turn.next = [following, *new]
        segment.next = turn.values
    sums = segment.values[1:]
    return [sums[i * vectors : (i + 1) * vectors] for i in range(rows)]

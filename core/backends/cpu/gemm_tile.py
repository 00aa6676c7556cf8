"""The micro-kernel: a block of C in registers, multiplied out over k.

One function per height and number of vectors::

    void tile_{rows}x{vectors}(
        ptr a, i64 a_row,                 the block's rows of A; k is contiguous
        ptr segments, i64 count,          k runs through `count` segments, which start
        i64 length,                       at a + segments[i] and have `length` elements
        ptr b, i64 b_row,                 rows of B: vectors * lanes elements for each k
        ptr c, i64 c_row, i64 columns,    C; only so many columns are written
        i64 accumulate)                   add to C instead of overwriting it

Steps between rows are in bytes. A matrix product has one segment at offset 0; a
convolution has one per filter row, so that it reads its image in place.

On x86-64 the loop over k is inline assembly. LLVM's loop strength reduction and
machine scheduler know neither of a full register file, and where they get it wrong the
accumulators spill and the loop is four times slower. Assembly is also five times faster
to compile. Elsewhere the loop is plain IR.
"""

from __future__ import annotations

from dataclasses import dataclass

from treadle.backends.cpu.builder import Builder
from treadle.kernels.contract import Tile

PARAMETERS = (
    "ptr noalias readonly %a, i64 %a_row, ptr readonly %segments, i64 %count, "
    "i64 %length, ptr noalias readonly %b, i64 %b_row, ptr noalias %c, i64 %c_row, "
    "i64 %columns, i64 %accumulate"
)


@dataclass(frozen=True)
class Machine:
    """What the emitted code is for.

    scalar: "float" or "double". assembly: the x86-64 loop. wide: 32 registers of 64
    bytes with mask registers (AVX-512), else AVX2's.
    """

    scalar: str
    tile: Tile
    assembly: bool
    wide: bool

    @property
    def itemsize(self) -> int:
        return 4 if self.scalar == "float" else 8

    @property
    def vector(self) -> str:
        return f"<{self.tile.lanes} x {self.scalar}>"

    @property
    def mask(self) -> str:
        return f"<{self.tile.lanes} x i1>"

    @property
    def suffix(self) -> str:
        return f"v{self.tile.lanes}f{8 * self.itemsize}"


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


def masked_load(b: Builder, machine: Machine, address: str, mask: str) -> str:
    """Lanes that the mask leaves out are zero and not read."""
    vector, kind = machine.vector, machine.mask
    name = f"@llvm.masked.load.{machine.suffix}.p0"
    b.declare(f"{vector} {name}(ptr, {kind}, {vector})")
    align = machine.itemsize
    return b.op(
        f"call {vector} {name}(ptr align {align} {address}, {kind} {mask}, "
        f"{vector} zeroinitializer)"
    )


def masked_store(
    b: Builder, machine: Machine, value: str, address: str, mask: str
) -> None:
    vector, kind = machine.vector, machine.mask
    name = f"@llvm.masked.store.{machine.suffix}.p0"
    b.declare(f"void {name}({vector}, ptr, {kind})")
    align = machine.itemsize
    b(
        f"call void {name}({vector} {value}, ptr align {align} {address}, "
        f"{kind} {mask})"
    )


def emit_tile(b: Builder, machine: Machine, rows: int, vectors: int) -> None:
    """Defines ``tile_{rows}x{vectors}``."""
    with b.function(f"define internal void @tile_{rows}x{vectors}({PARAMETERS})"):
        loop = _assembly_loop if machine.assembly else _plain_loop
        sums = loop(b, machine, rows, vectors)
        # Where masks are slow, tiles that are full take a path without them.
        if not machine.wide:
            full = b.op(f"icmp eq i64 %columns, {vectors * machine.tile.lanes}")
            partial, done = b.fresh_label("partial"), b.fresh_label("full")
            b(f"br i1 {full}, label %{done}, label %{partial}")
            b.label(done)
            _write(b, machine, sums, None)
            b("ret void")
            b.label(partial)
        masks = [
            lane_mask(b, machine, "%columns", machine.tile.lanes * j)
            for j in range(vectors)
        ]
        _write(b, machine, sums, masks)
        b("ret void")


def _write(
    b: Builder, machine: Machine, sums: list[list[str]], masks: list[str] | None
) -> None:
    """Stores the sums, after adding C to them if asked for."""
    vector, align = machine.vector, machine.itemsize
    before = b.block
    add, store = b.fresh_label("add"), b.fresh_label("store")
    added: list[list[str]] = []
    wanted = b.op("icmp ne i64 %accumulate, 0")
    b(f"br i1 {wanted}, label %{add}, label %{store}")
    b.label(add)
    for line, addresses in zip(sums, _addresses(b, machine, sums), strict=True):
        added.append([])
        for j, address in enumerate(addresses):
            if masks:
                old = masked_load(b, machine, address, masks[j])
            else:
                old = b.op(f"load {vector}, ptr {address}, align {align}")
            added[-1].append(b.op(f"fadd {vector} {old}, {line[j]}"))
    b(f"br label %{store}")
    b.label(store)
    final = [
        [
            b.op(f"phi {vector} [{old}, %{before}], [{new}, %{add}]")
            for old, new in zip(*pair, strict=True)
        ]
        for pair in zip(sums, added, strict=True)
    ]
    for line, addresses in zip(final, _addresses(b, machine, sums), strict=True):
        for j, address in enumerate(addresses):
            if masks:
                masked_store(b, machine, line[j], address, masks[j])
            else:
                b(f"store {vector} {line[j]}, ptr {address}, align {align}")


def _addresses(b: Builder, machine: Machine, sums: list[list[str]]) -> list[list[str]]:
    """Where the elements of the block are in C."""
    row, result = "%c", []
    for i, line in enumerate(sums):
        if i:
            row = b.op(f"getelementptr i8, ptr {row}, i64 %c_row")
        result.append(
            [
                b.op(f"getelementptr {machine.vector}, ptr {row}, i64 {j}")
                for j in range(len(line))
            ]
        )
    return result


# The loop in assembly


_OPERANDS = (
    ("segments", "count", "b"),  # advanced by the loop
    ("at", "at7", "left", "row3", "row5"),  # temporary
    ("a", "a_row", "length", "b_row"),  # read
)


def _assembly_loop(
    b: Builder, machine: Machine, rows: int, vectors: int
) -> list[list[str]]:
    """Gives the sums. Registers are LLVM's choice, instructions are ours."""
    number = rows * vectors
    advanced, temporary, read = _OPERANDS
    floats = number + vectors + 1
    names = {name: floats + i for i, name in enumerate((*advanced, *temporary))}
    outputs = floats + len(names)
    # The inputs that are tied to the advanced operands get numbers, too.
    names |= {name: outputs + len(advanced) + i for i, name in enumerate(read)}
    text = _assembly_text(machine, rows, vectors, names)
    constraints = [
        *(["=&v" if machine.wide else "=&x"] * floats),
        *(["=&r"] * (len(advanced) + len(temporary))),
        *(str(names[name]) for name in advanced),
        *(["r"] * len(read)),
        "~{memory}",
        "~{flags}",
    ]
    kinds = {"segments": "ptr", "b": "ptr", "a": "ptr"}
    results = [machine.vector] * floats
    results += [kinds.get(name, "i64") for name in (*advanced, *temporary)]
    kind = "{ " + ", ".join(results) + " }"
    inputs = ", ".join(
        f"{kinds.get(name, 'i64')} %{name}" for name in (*advanced, *read)
    )
    result = b.op(
        f'call {kind} asm sideeffect "{text}", "{",".join(constraints)}"({inputs})'
    )
    return [
        [
            b.op(f"extractvalue {kind} {result}, {i * vectors + j}")
            for j in range(vectors)
        ]
        for i in range(rows)
    ]


def _assembly_text(
    machine: Machine, rows: int, vectors: int, names: dict[str, int]
) -> str:
    letter = "s" if machine.scalar == "float" else "d"
    size, width = machine.itemsize, machine.itemsize * machine.tile.lanes
    number = rows * vectors
    lines_of_b = [number + j for j in range(vectors)]
    element = number + vectors

    def step(ahead: bool) -> list[str]:
        """One k: the sums gain the product of a column of A and a row of B."""
        text = []
        index = ",{b_row}" if ahead else ""
        for j, line in enumerate(lines_of_b):
            text.append(f"vmovup{letter} {j * width}({{b}}{index}), ${line}")
        for i in range(rows):
            base = "at" if i < 7 else "at7"
            address = f"{size * ahead}({{{base}}}{_ROW_OF[i % 7]})"
            text.append(f"vbroadcasts{letter} {address}, ${element}")
            for j, line in enumerate(lines_of_b):
                text.append(
                    f"vfmadd231p{letter} ${element}, ${line}, ${i * vectors + j}"
                )
        return text

    clear = "vpxord" if machine.wide else "vxorps"
    steps = [
        *(f"{clear} ${i}, ${i}, ${i}" for i in range(number)),
        "leaq ({a_row},{a_row},2), {row3}",
        "leaq ({a_row},{a_row},4), {row5}",
        "1:",
        "movq ({segments}), {at}",
        "addq {a}, {at}",
        "leaq ({at},{row5}), {at7}",
        "leaq ({at7},{a_row},2), {at7}",
        "movq {length}, {left}",
        "shrq $$1, {left}",
        "jz 3f",
        ".p2align 4",
        "2:",
        *step(False),
        *step(True),
        "leaq ({b},{b_row},2), {b}",
        f"addq $${2 * size}, {{at}}",
        f"addq $${2 * size}, {{at7}}",
        "decq {left}",
        "jnz 2b",
        "3:",
        "btq $$0, {length}",
        "jnc 4f",
        *step(False),
        "addq {b_row}, {b}",
        "4:",
        "addq $$8, {segments}",
        "decq {count}",
        "jnz 1b",
    ]
    return "\\0A".join(steps).format_map(
        {name: f"${number}" for name, number in names.items()}
    )


_ROW_OF = ("", ",{a_row}", ",{a_row},2", ",{row3}", ",{a_row},4", ",{row5}", ",{row3},2")
"""How to reach rows 0..6 from a base with what an x86 address can express."""


# The loop in IR


def _plain_loop(
    b: Builder, machine: Machine, rows: int, vectors: int
) -> list[list[str]]:
    vector, scalar, align = machine.vector, machine.scalar, machine.itemsize
    fma = f"@llvm.fmuladd.{machine.suffix}"
    b.declare(f"{vector} {fma}({vector}, {vector}, {vector})")
    number = rows * vectors
    first = [("ptr", "%b"), *([(vector, "zeroinitializer")] * number)]
    with b.carrying("0", "%count", "1", first) as segment:
        slot = b.op(f"getelementptr i64, ptr %segments, i64 {segment.index}")
        offset = b.op(f"load i64, ptr {slot}, align 8")
        start = b.op(f"getelementptr i8, ptr %a, i64 {offset}")
        kinds = [kind for kind, _ in first]
        inner = list(zip(kinds, segment.values, strict=True))
        with b.carrying("0", "%length", "1", inner) as turn:
            row_of_b, *sums = turn.values
            lines_of_b = []
            for j in range(vectors):
                address = b.op(f"getelementptr {vector}, ptr {row_of_b}, i64 {j}")
                lines_of_b.append(b.op(f"load {vector}, ptr {address}, align {align}"))
            address = b.op(f"getelementptr {scalar}, ptr {start}, i64 {turn.index}")
            new = []
            for i in range(rows):
                if i:
                    address = b.op(f"getelementptr i8, ptr {address}, i64 %a_row")
                element = b.op(f"load {scalar}, ptr {address}, align {align}")
                factor = splat(b, machine, element, scalar)
                for j, line in enumerate(lines_of_b):
                    old = sums[i * vectors + j]
                    arguments = f"{vector} {factor}, {vector} {line}, {vector} {old}"
                    new.append(b.op(f"call {vector} {fma}({arguments})"))
            following = b.op(f"getelementptr i8, ptr {row_of_b}, i64 %b_row")
            turn.next = [following, *new]
        segment.next = turn.values
    sums = segment.values[1:]
    return [sums[i * vectors : (i + 1) * vectors] for i in range(rows)]

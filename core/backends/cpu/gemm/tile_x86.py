"""The micro-kernel (`tile`) in x86-64 assembly, for AVX-512 and AVX2 with FMA.

Vector registers are chosen here: first the sums, row by row, then a row of B, then one
element of A in all lanes, then, of integers, a product. Other registers have names,
written ``%[name]``; LLVM chooses them and obeys the calling convention.
"""

from __future__ import annotations

import functools
import re
from dataclasses import replace

from treadle.backends.cpu.emit.builder import Builder
from treadle.backends.cpu.gemm.tile import PARAMETERS, Machine, Size

_CHANGED = ("segments", "count", "b", "left")  # `left` is the index at first
_TEMPORARY = ("at", "at7", "row3", "row5")
_READ = ("a", "a_row", "a_step", "b_row", "target", "lanes")
_POINTERS = ("segments", "b", "a", "target", "lanes")

_LINE_BYTES = 64

_ROW_OF = (
    "",
    ",%[a_row]",
    ",%[a_row],2",
    ",%[row3]",
    ",%[a_row],4",
    ",%[row5]",
    ",%[row3],2",
)
"""How to reach rows 0..6 from a base with what an x86 address can express."""


def emit_lanes(b: Builder, machine: Machine) -> None:
    """Defines the lane numbers that AVX2 makes masks from."""
    kind = f"i{8 * machine.itemsize}"
    count = 4 * machine.tile.lanes
    numbers = ", ".join(f"{kind} {lane}" for lane in range(count))
    b.lines.append(f"@lanes = internal constant [{count} x {kind}] [{numbers}]")


def emit_x86_tiles(b: Builder, machine: Machine, sizes: list[Size]) -> None:
    """Defines ``tile``: all micro-kernels as one function.

    LLVM takes ten times longer for thirty functions than for this one.
    """
    text = _text(replace(machine, apart=False), tuple(sizes))
    count = 32 if machine.assembly == "avx512" else 16
    masks = [f"k{i}" for i in range(1, 5)] if machine.assembly == "avx512" else []
    clobbered = [*(f"xmm{i}" for i in range(count)), *masks, "memory", "flags"]
    constraints = [
        *(["=&r"] * (len(_CHANGED) + len(_TEMPORARY))),
        *(str(i) for i in range(len(_CHANGED))),
        *(["r"] * len(_READ)),
        *(f"~{{{name}}}" for name in clobbered),
    ]
    kinds = ", ".join(_kind(name) for name in (*_CHANGED, *_TEMPORARY))
    given = {"left": "%index", "lanes": "@lanes"}
    values = ", ".join(
        f"{_kind(name)} {given.get(name, f'%{name}')}" for name in (*_CHANGED, *_READ)
    )
    with b.function(f"define internal void @tile({PARAMETERS}) noinline"):
        b.op(
            f"call {{ {kinds} }} asm sideeffect "
            f'"{text}", "{",".join(constraints)}"({values})'
        )
        b("ret void")


@functools.cache
def _text(machine: Machine, sizes: tuple[Size, ...]) -> str:
    """The assembly, as a string of LLVM's: that of products is that of attention."""
    kernels = [_Kernel(machine, size) for size in sizes]
    table = ".Ltiles"
    text = "\\0A".join(
        [
            f"leaq {table}(%rip), %[at]",
            "movslq (%[at],%[left],4), %[left]",
            "addq %[left], %[at]",
            "jmpq *%[at]",
            *(line for kernel in kernels for line in kernel.lines()),
            ".p2align 2",
            f"{table}:",
            *(f".long {kernel.label} - {table}" for kernel in kernels),
            "9:",
            "vzeroupper",
        ]
    )
    numbers = {name: i for i, name in enumerate((*_CHANGED, *_TEMPORARY))}
    # The inputs tied to the changed operands have numbers of their own.
    inputs = len(numbers) + len(_CHANGED)
    numbers |= {name: inputs + i for i, name in enumerate(_READ)}
    return re.sub(r"%\[(\w+)\]", lambda match: f"${numbers[match[1]]}", text)


def _kind(name: str) -> str:
    return "ptr" if name in _POINTERS else "i64"


class _Kernel:
    """The instructions of one micro-kernel."""

    def __init__(self, machine: Machine, block: Size) -> None:
        rows, vectors, self.lanes = block
        self.masks = machine.assembly == "avx512"
        self.register = "zmm" if self.lanes * machine.itemsize == 64 else "ymm"
        # Integers are moved as if they were floats.
        self.letter = "d" if machine.scalar == "double" else "s"
        self.is_float = machine.is_float
        self.fused = "vdpbf16ps" if machine.pairs else f"vfmadd231p{self.letter}"
        self.add = f"vaddp{self.letter}" if machine.is_float else "vpaddd"
        self.size, self.stored = machine.itemsize, machine.result.itemsize
        self.short = machine.short
        count = rows * vectors
        self.sums = [
            [self._register(i * vectors + j) for j in range(vectors)]
            for i in range(rows)
        ]
        self.line = [self._register(count + j) for j in range(vectors)]
        self.element = self._register(count + vectors)
        self.product = self._register(count + vectors + 1)
        self.label = f".Ltile_{rows}x{vectors * self.lanes}"

    def _register(self, number: int) -> str:
        return f"%{self.register}{number}"

    def lines(self) -> list[str]:
        clear = "vpxord" if self.masks else "vxorps"
        write = self._write_avx512() if self.masks else self._write_avx2()
        return [
            f"{self.label}:",
            *(self._ask() if self.masks and len(self.line) > 1 else ()),
            *(f"{clear} {x}, {x}, {x}" for sums in self.sums for x in sums),
            "leaq (%[a_row],%[a_row],2), %[row3]",
            "leaq (%[a_row],%[a_row],4), %[row5]",
            *self._loops(),
            *write,
            "jmp 9f",
        ]

    def _ask(self) -> list[str]:
        """Asks for the lines of C, which arrive while sums are made: as many as a wide
        tile of AVX-512 has, if they are in no cache, would wait for each other. Where
        there are fewer, asking takes as long as it saves."""
        text = ["movq (%[target]), %[at]", "movq 8(%[target]), %[left]"]
        width = len(self.line) * self.lanes * self.stored
        for i in range(len(self.sums)):
            if i:
                text.append("addq %[left], %[at]")
            text += [f"prefetchw {n}(%[at])" for n in range(0, width, _LINE_BYTES)]
        return text

    def _loops(self) -> list[str]:
        """Over segments and, two at a time, over k."""
        return [
            "1:",
            "movq (%[segments]), %[at]",
            "addq 8(%[segments]), %[b]",
            "addq %[a], %[at]",
            "leaq (%[at],%[row5]), %[at7]",
            "leaq (%[at7],%[a_row],2), %[at7]",
            "movq 32(%[target]), %[left]",
            "shrq $$1, %[left]",
            "jz 3f",
            ".p2align 4",
            "2:",
            *self._step(""),
            *self._step(",%[b_row]"),
            "leaq (%[b],%[b_row],2), %[b]",
            "decq %[left]",
            "jnz 2b",
            "3:",
            "testb $$1, 32(%[target])",
            "jz 4f",
            *self._step(""),
            "addq %[b_row], %[b]",
            "4:",
            "addq $$16, %[segments]",
            "decq %[count]",
            "jnz 1b",
        ]

    def _step(self, ahead: str) -> list[str]:
        """One k: the sums gain the product of a column of A and a row of B, which is
        `ahead` of %[b]."""
        text = []
        for j, register in enumerate(self.line):
            place = f"{j * self.size * self.lanes}(%[b]{ahead})"
            text.append(f"vmovup{self.letter} {place}, {register}")
        for i, sums in enumerate(self.sums):
            place = f"({'%[at]' if i < 7 else '%[at7]'}{_ROW_OF[i % 7]})"
            if self.masks and len(sums) == 1 and self.is_float:
                broadcast = f"{place}{{1to{self.lanes}}}"
                text.append(f"{self.fused} {broadcast}, {self.line[0]}, {sums[0]}")
                continue
            text.append(f"vbroadcasts{self.letter} {place}, {self.element}")
            for register, total in zip(self.line, sums, strict=True):
                text += self._multiply_add(register, total)
        bases = ("at", "at7") if len(self.sums) > 7 else ("at",)
        return text + [f"addq %[a_step], %[{base}]" for base in bases]

    def _multiply_add(self, register: str, total: str) -> list[str]:
        if self.is_float:
            return [f"{self.fused} {self.element}, {register}, {total}"]
        return [
            f"vpmulld {self.element}, {register}, {self.product}",
            f"vpaddd {self.product}, {total}, {total}",
        ]

    def _each(self, *instructions: str) -> list[str]:
        """The instructions for every vector of C: TOTAL, or ROUNDED, which has half
        its width, at PLACE, under MASK."""
        text = ["movq (%[target]), %[at]"]
        for i, sums in enumerate(self.sums):
            if i:
                text.append("addq %[left], %[at]")
            for j, total in enumerate(sums):
                place = f"{j * self.stored * self.lanes}(%[at])"
                rounded = total.replace("ymm", "xmm").replace("zmm", "ymm")
                mask = f"{{%k{j + 1}}}" if self.masks else self.line[j]
                for line in instructions:
                    line = line.replace("TOTAL", total).replace("PLACE", place)
                    line = line.replace("ROUNDED", rounded)
                    text.append(line.replace("MASK", mask))
        return text

    def _write_avx512(self) -> list[str]:
        """Adds C if asked for, then stores, both under masks."""
        making = [
            line
            for j in range(len(self.line))
            for line in (
                f"kmovq %[count], %k{j + 1}",
                f"shrq $${self.lanes}, %[count]",
            )
        ]
        masks = [
            "movq 16(%[target]), %[left]",
            "movq $$-1, %[count]",
            "bzhiq %[left], %[count], %[count]",
            *making,
            "movq 8(%[target]), %[left]",
        ]
        if self.short:
            rounding = "vcvtneps2bf16 TOTAL, ROUNDED"
            return [*masks, *self._each(rounding, "vmovdqu16 ROUNDED, PLACE MASK")]
        return [
            *masks,
            "cmpq $$0, 24(%[target])",
            "je 5f",
            *self._each(f"{self.add} PLACE, TOTAL, TOTAL MASK"),
            "5:",
            *self._each(f"vmovup{self.letter} TOTAL, PLACE MASK"),
        ]

    def _write_avx2(self) -> list[str]:
        """The same; masked stores are slow on some machines, so full tiles use none."""
        letter, lanes = self.letter, self.lanes
        width = "d" if letter == "s" else "q"
        # Row registers of B have done their work and become masks.
        making = [
            f"vpcmpgt{width} {j * self.size * lanes}(%[lanes]), {self.element}, {mask}"
            for j, mask in enumerate(self.line)
        ]
        return [
            "movq 8(%[target]), %[left]",
            f"cmpq $${len(self.line) * lanes}, 16(%[target])",
            "jne 6f",
            "cmpq $$0, 24(%[target])",
            "je 5f",
            *self._each(f"{self.add} PLACE, TOTAL, TOTAL"),
            "5:",
            *self._each(f"vmovup{letter} TOTAL, PLACE"),
            "jmp 9f",
            "6:",
            f"vpbroadcast{width} 16(%[target]), {self.element}",
            *making,
            "cmpq $$0, 24(%[target])",
            "je 7f",
            *self._each(
                f"vmaskmovp{letter} PLACE, MASK, {self.element}",
                f"{self.add} {self.element}, TOTAL, TOTAL",
            ),
            "7:",
            *self._each(f"vmaskmovp{letter} TOTAL, MASK, PLACE"),
        ]

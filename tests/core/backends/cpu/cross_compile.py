"""Emits the kernels of `target_programs` for machines that this one is not.

Prints, a line for each machine, the functions that its code takes from outside. The
names of machines are given; of others it emits only what runs kernels.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import treadle as td
from tests.core.backends.cpu.target_programs import programs
from treadle.backends.cpu import target
from treadle.backends.cpu.run import native, threads_ir
from treadle.backends.cpu.run.executor_ir import executor_ir
from treadle.backends.cpu.run.native import Source
from treadle.backends.cpu.target import Target


def kernels() -> list[Source]:
    """What the programs need. The IR is made when it is asked for, so for any host."""
    found: dict[str, Source] = {}
    load = native.load

    def recorded(sources: Sequence[Source]) -> dict[str, int]:
        found.update({source.key: source for source in sources})
        return load(sources)

    native.load = recorded
    for program in programs().values():
        td.jit(program.function).lower(*program.args).compile()
    return [source for source in found.values() if not source.key.startswith("pool/")]


def pretend(other: Target) -> None:
    """From now on `other` is the host."""
    users = [
        m for m in list(sys.modules.values()) if getattr(m, "host", None) is target.host
    ]
    for module in users:
        vars(module)["host"] = lambda: other


def assembly(text: str, folds: bool = False) -> str:
    module = target.llvm().parse_assembly(text)
    module.verify()
    machine = target.machine()
    native._prepare(text, module, machine, folds)
    return machine.emit_assembly(module)


def outside(text: str) -> set[str]:
    """Functions that AArch64 assembly calls and does not define."""
    defined = set(re.findall(r"^([\w.$]+):", text, re.M))
    return set(re.findall(r"^\s+bl?\s+([\w.$]+)$", text, re.M)) - defined


def exported(sources: Sequence[Source], prefix: str) -> set[str]:
    """Functions that modules take from each other, as assembly names them."""
    needed = [needed for source in sources for needed in source.needs]
    return {prefix + name for source in needed for name in source.symbols}


if __name__ == "__main__":
    sources = kernels()
    target.llvm().initialize_all_targets()
    target.llvm().initialize_all_asmprinters()
    for triple, cpu, sleep, follow_cpu, prefix in (
        ("aarch64-unknown-linux-gnu", "generic", "futex", True, ""),
        ("arm64-apple-darwin23", "apple-m1", "condition", False, "_"),
    ):
        pretend(Target(triple, "aarch64", cpu, "", 16, frozenset()))
        pool = threads_ir.pool_ir("aarch64", sleep, follow_cpu)
        texts = [(pool, False), (executor_ir(), False), (executor_ir(True), False)]
        if triple in sys.argv:
            texts += [(source.emit(), source.folds) for source in sources]
        names = {name for text in texts for name in outside(assembly(*text))}
        print(*sorted(names - exported(sources, prefix)))

"""The CPU that code is generated for: this machine's, or the TREADLE_CPU asked for.

llvmlite loads on first use.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from types import ModuleType
from typing import Any

from treadle.records import record


@record(frozen=True)
class Target:
    """What decides the machine code: two hosts with equal targets share objects.

    arch: "x86_64", "aarch64", or what else the triple begins with.
    cpu, features: as LLVM's TargetMachine takes them.
    vector_bytes: width of the widest vector register that kernels should use.
    flags: the CPU's extensions by LLVM's names ("avx2", "amx-bf16", ...).
    """

    triple: str
    arch: str
    cpu: str
    features: str
    vector_bytes: int
    flags: frozenset[str]


@functools.cache
def llvm() -> ModuleType:
    """llvmlite's binding, imported and initialised once."""
    import llvmlite.binding as binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    return binding


# The levels of x86-64 by LLVM's names, each with what it adds to the one before. Only
# extensions that decide what is generated, or that a CPU of the level surely lacks if
# it lacks the level.
_LEVELS = {
    "x86-64": frozenset[str](),
    "x86-64-v2": frozenset({"sse4.2", "popcnt"}),
    "x86-64-v3": frozenset({"avx2", "fma", "bmi2", "f16c"}),
    "x86-64-v4": frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
}

AMX, AVX512_BF16 = "amx", "avx512-bf16"
AMX_MODEL, AVX512_BF16_MODEL = "amx-model", "avx512-bf16-model"
"""How products of bfloat16 are computed, where not in float32: by the CPU's tiles or
vectors, or, for tests on any CPU, by a model of them, which TREADLE_CPU asks for."""

AVX512_VNNI, AVX512, AVX2 = "avx512-vnni", "avx512", "avx2"
"""How products of small integers are computed, where not in 32 bits."""


@functools.cache
def host() -> Target:
    """The target of this machine, or the other one that TREADLE_CPU names."""
    binding = llvm()
    triple = binding.get_process_triple()
    try:
        found = binding.get_host_cpu_features()
    except RuntimeError:  # LLVM cannot tell on this operating system
        found = {}
    flags = frozenset(name for name, present in found.items() if present)
    arch = triple.split("-")[0].replace("arm64", "aarch64").replace("amd64", "x86_64")
    level = os.environ.get("TREADLE_CPU")
    if level in (AMX_MODEL, AVX512_BF16_MODEL):
        flags, level = flags | {level}, None
    if level:
        cpu, flags, off = level, _level_flags(level, arch, flags), []
        vector_bytes = _choose(arch, flags, level)[1]
    else:
        cpu, vector_bytes = _choose(arch, flags, binding.get_host_cpu_name())
        # A virtual machine may hide extensions that the CPU's name implies.
        off = [f"-{name}" for name, present in sorted(found.items()) if not present]
        # And the name that is chosen for it may not imply all that it has.
        for name in ("avx512bf16", "avx512vnni"):
            off += [f"+{name}"] if name in flags else []
    if vector_bytes == 64:
        off.append("-prefer-256-bit")
    return Target(triple, arch, cpu, ",".join(off), vector_bytes, flags)


def _level_flags(level: str, arch: str, present: frozenset[str]) -> frozenset[str]:
    """The extensions of a level of x86-64, all of which must be `present`."""
    if arch != "x86_64" or level not in _LEVELS:
        known = f"one of {', '.join(_LEVELS)}" if arch == "x86_64" else "unset"
        raise ValueError(f"TREADLE_CPU must be {known} on {arch}, not {level!r}")
    names = list(_LEVELS)
    flags = frozenset[str]().union(
        *(_LEVELS[name] for name in names[: names.index(level) + 1])
    )
    if missing := sorted(flags - present):
        lacks = f"this CPU lacks {', '.join(missing)}"
        raise ValueError(f"TREADLE_CPU is {level!r}, but {lacks}: take a lower level")
    return flags


def _choose(arch: str, flags: frozenset[str], name: str) -> tuple[str, int]:
    """CPU name and vector width. Virtual machines report wrong names: trust flags."""
    if arch == "x86_64":
        if "amx-bf16" in flags:
            return "sapphirerapids", 64
        if "avx512f" in flags and "avx512vl" in flags:
            return "skylake-avx512", 64
        return name, 32 if "avx2" in flags else 16
    return name, 16


def machine(level: int = 2) -> Any:
    """A new TargetMachine for the host: position-independent, small code model.

    LLVM's default for JITs is the large code model, which loads the address of every
    constant into a register of its own. JITLink places an object's sections together,
    so the small one is safe.
    """
    target = host()
    return (
        llvm()
        .Target.from_triple(target.triple)
        .create_target_machine(
            cpu=target.cpu,
            features=target.features,
            opt=level,
            reloc="pic",
            codemodel="small",
            jit=True,
        )
    )


@functools.cache
def bfloat_unit() -> str:
    """What products of bfloat16 are to be made by: a name from above, or nothing."""
    flags = host().flags
    for model in (AMX_MODEL, AVX512_BF16_MODEL):
        if model in flags:
            return model
    if not multiplies_pairs():
        return ""
    return (
        AMX if {"amx-tile", "amx-bf16"} <= flags and _tiles_granted() else AVX512_BF16
    )


def _tiles_granted() -> bool:
    """Asks the operating system for permission, without which the first tile
    instruction would kill the process. Once granted, it holds for all threads, also
    those that run already, and for forked children."""
    if not sys.platform.startswith("linux"):
        return False
    arch_prctl, request_permission, tile_data = 158, 0x1023, 18
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.syscall(arch_prctl, request_permission, tile_data) == 0


def multiplies_pairs() -> bool:
    """Whether vectors of bfloat16 are multiplied, and the products of pairs of them
    added to floats, by one instruction."""
    # Packing and storing need the others, which a virtual machine may hide.
    return {"avx512bf16", "avx512bw", "bmi2"} <= host().flags


def multiplies_singles() -> bool:
    """Whether products of float16 are made of elements that are floats in registers."""
    return host().vector_bytes == 64 and {"avx512bw", "bmi2"} <= host().flags


@functools.cache
def integer_unit() -> str:
    """What products of small integers are to be made by: a name from above, or
    nothing."""
    flags = host().flags
    if {"avx512bw", "avx512vl", "bmi2"} <= flags:
        return AVX512_VNNI if "avx512vnni" in flags else AVX512
    return AVX2 if "avx2" in flags else ""


def cpu_count() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

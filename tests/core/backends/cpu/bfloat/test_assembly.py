"""The instructions that products on tiles become, on any machine."""

from __future__ import annotations

import re

import pytest

from treadle.backends.cpu.bfloat import kernel
from treadle.backends.cpu.bfloat.tile_block import TileUnit
from treadle.backends.cpu.bfloat.tiles import Instructions
from treadle.backends.cpu.bfloat.unit import Dtypes
from treadle.backends.cpu.target import Target, llvm
from treadle.dtypes import float32

TRIPLE = "x86_64-unknown-linux-gnu"
FLAGS = frozenset({"avx512bw", "bmi2", "avx512bf16", "amx-tile", "amx-bf16"})


@pytest.fixture(scope="module")
def functions() -> dict[str, list[str]]:
    """The lines of each function, without directives."""
    with pytest.MonkeyPatch.context() as patch:
        cpu = Target(TRIPLE, "x86_64", "sapphirerapids", "", 64, FLAGS)
        patch.setattr(kernel, "host", lambda: cpu)
        text = kernel.emit_module(Dtypes(a=float32), TileUnit(Instructions()))
    llvm().initialize_all_targets()
    llvm().initialize_all_asmprinters()
    module = llvm().parse_assembly(text)
    module.verify()
    target = llvm().Target.from_triple(TRIPLE)
    machine = target.create_target_machine(cpu=cpu.cpu, reloc="pic", codemodel="small")
    assembly = machine.emit_assembly(module)
    found: dict[str, list[str]] = {}
    for name, body in re.findall(r"^(\w+):\n(.*?)^\.Lfunc_end", assembly, re.M | re.S):
        lines = (line.strip() for line in body.splitlines())
        found[name] = [x for x in lines if x and not re.match(r"\.(cfi|p2)|#", x)]
    return found


def starting(lines: list[str], *names: str) -> list[int]:
    return [i for i, line in enumerate(lines) if line.startswith(names)]


def test_a_step_is_four_products_and_spills_nothing(functions) -> None:
    lines = functions["block"]
    products = starting(lines, "tdpbf16ps")
    loads = starting(lines, "tileloadd")
    assert len(products) == 4
    step = lines[loads[-4] : products[-1] + 1]
    assert len(starting(step, "tileloadd")) == 4
    assert not [line for line in step if "%rsp" in line or "call" in line]
    # Nor is a register saved or restored between two steps, but around a call.
    after = lines[products[-1] :]
    until = next(i for i, line in enumerate(after) if line.startswith("testq"))
    assert not [line for line in after[:until] if "%rsp" in line]


def test_tiles_are_configured_once_a_task(functions) -> None:
    for name, lines in functions.items():
        configured = starting(lines, "ldtilecfg")
        released = starting(lines, "tilerelease")
        if name != "product":
            assert not configured and not released
            continue
        assert len(configured) == len(released) == 1
        # All that works on tiles is between, and every way out passes the release.
        calls = starting(lines, "call")
        assert configured[0] < min(calls) and max(calls) < released[0]
        assert [i > released[0] for i in starting(lines, "ret")] == [True]


def test_floats_are_rounded_by_an_instruction(functions) -> None:
    for name in ("lines_float", "groups_float", "store_rows"):
        assert starting(functions[name], "vcvtneps2bf16")
        assert not starting(functions[name], "call")

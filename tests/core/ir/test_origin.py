"""Where steps and buffers of plans come from, also if another process planned them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends import plans
from treadle.backends.cpu.device import CPUTarget
from treadle.compile import build, stages
from treadle.ir.graph import Equation
from treadle.ir.origin import Origin, Origins
from treadle.ops.arithmetic import neg
from treadle.plan.steps import Plan, walk
from treadle.scopes import Source, in_backward

TARGET = CPUTarget()
SHIFTED = "\n\n\n"
PROGRAM = """
def program(x, w):
    hidden = tnp.tanh(x @ w)
    shifted = hidden - 1.0
    def body(carry, row):
        carry = carry * row
        return carry, tnp.sum(carry)
    last, sums = td.scan(body, tnp.ones(3), shifted)
    return tnp.exp(last), tnp.sort(sums)
"""


def written_at(before: str) -> Any:
    """The program with some lines before it."""
    names: dict[str, Any] = {"td": td, "tnp": tnp}
    exec(compile(before + PROGRAM, "program.py", "exec"), names)
    graph = td.jit(names["program"]).graph(td.ShapeDtype((4, 5)), td.ShapeDtype((5, 3)))
    return graph


def lines(plan: Plan) -> dict[str, set[str]]:
    """The user's lines, by the name of the operation."""
    found: dict[str, set[str]] = {}
    for _, step in walk(plan.steps):
        for name, n in zip(step.names, step.origins, strict=False):
            source = plan.origins[n].source
            found.setdefault(name, set()).add(source.rpartition("/")[2])
    return found


def test_each_step_knows_the_lines_of_its_operations() -> None:
    found = lines(stages(written_at(""), TARGET).plan)
    assert found["dot_general"] == {"program.py:3"}
    assert found["tanh"] == {"program.py:3"}
    assert found["mul"] == {"program.py:6"}
    assert found["reduce_sum"] == {"program.py:7"}
    assert found["scan"] == {"program.py:8"}
    assert found["exp"] == {"program.py:9"}
    assert all(len(v) == 1 for k, v in found.items() if k != "convert")


def test_equal_lines_with_other_names_around_are_apart() -> None:
    one, other = Source("file.py:1", "encoder"), Source("file.py:1", "decoder")
    back = in_backward(one)
    first, second, third, again = [
        Equation(neg, (), {}, (), source) for source in (one, other, back, one)
    ]
    origins = Origins()
    assert origins.of(first) == Origin("file.py:1", "encoder")
    assert origins.of(second) == Origin("file.py:1", "decoder")
    assert origins.of(third) == Origin("file.py:1", "encoder", True)
    assert origins.of(again) is origins.of(first)


def test_buffers_know_what_they_were_made_for() -> None:
    plan = stages(written_at(""), TARGET).plan
    known = [b for b in plan.buffers if b.type is not None]
    assert all(b.nbytes == b.type.nbytes for b in known)  # type: ignore[union-attr]
    (product,) = [b for b in known if b.type.shape == (4, 3)]  # type: ignore[union-attr]
    assert plan.origins[product.origin].source.endswith("program.py:4")


def test_a_plan_from_the_disk_has_the_lines_of_this_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TREADLE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(plans, "WORTH_STORING", 1)
    first = lines(build(written_at(""), TARGET).plan)
    assert list(tmp_path.glob("plan*"))

    def never(*args: Any) -> Any:
        raise AssertionError("it was planned again")

    monkeypatch.setattr("treadle.compile.stages", never)
    graph = written_at(SHIFTED)
    second = lines(build(graph, TARGET).plan)
    assert second == lines_shifted(first, len(SHIFTED))


def lines_shifted(found: dict[str, set[str]], by: int) -> dict[str, set[str]]:
    def moved(line: str) -> str:
        name, _, number = line.partition(":")
        return f"{name}:{int(number) + by}"

    return {k: {moved(line) for line in v} for k, v in found.items()}

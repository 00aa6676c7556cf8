"""The checker that runs between stages: it accepts what the compiler makes, and refuses
each stage if that is changed. The rules of each are tested beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends import by_reference
from tests.core.fuse.random_rules import generate
from treadle import compile as compile_
from treadle.backends.devices import TARGETS
from treadle.check import check
from treadle.compile import Stages, stages
from treadle.errors import InternalError
from treadle.ir.graph import Graph


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("seed", range(300, 330))
def test_random_programs_pass(seed: int, name: str) -> None:
    program = generate(seed)
    graph = td.jit(program.function()).graph(*program.arguments())
    check(stages(graph, TARGETS[name]))


def made() -> Stages:
    graph = td.jit(lambda x: tnp.exp(x) @ x).graph(tnp.ones((3, 3)))
    return stages(graph, TARGETS["reference"])


BROKEN: dict[str, Callable[[Stages], Stages]] = {
    "graph": lambda s: s._replace(
        graph=Graph(s.graph.inputs, s.graph.equations[::-1], s.graph.outputs)
    ),
    "groups": lambda s: s._replace(groups=s.groups._replace(nodes=s.groups.nodes[:1])),
    "kernels": lambda s: s._replace(
        kernels=s.kernels._replace(entries=s.kernels.entries[::-1])
    ),
    "schedule": lambda s: s._replace(
        schedule=s.schedule._replace(how=s.schedule.how[:1])
    ),
    "plan": lambda s: s._replace(plan=replace(s.plan, steps=s.plan.steps[::-1])),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_stage_is_checked(name: str) -> None:
    assert set(BROKEN) == set(Stages._fields)
    check(made())
    with pytest.raises(InternalError):
        check(BROKEN[name](made()))


OPEN: dict[str, Callable[..., td.Array]] = {
    "a half beside the whole": lambda x: tnp.concatenate(
        [x[: x.shape[0] // 2] + 1, tnp.sin(x)]
    ),
    "every other row": lambda x: tnp.concatenate([x[::2] + 1, tnp.sin(x)]),
    "padding by a remainder": lambda x: tnp.pad(x, ((0, x.shape[0] % 3), (0, 0))),
    "complex parts": lambda x: tnp.concatenate([x[: x.shape[0] // 2] * 1j, x]),
    "ordered rows": lambda x: tnp.sort(x[: x.shape[0] // 2], 0),
    "a product of parts": lambda x: tnp.exp(x[::2]) @ tnp.sin(x[::2].T),
}


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes_pass_and_no_guard_is_added(name: str) -> None:
    def traced() -> tuple[td.Array, str]:
        compiled = td.jit(lambda x: OPEN[name](x), dynamic={"x": ("n", None)})
        found = compiled(tnp.arange(24.0).reshape(4, 6))
        lines = str(compiled.report()).splitlines()
        return found, "\n".join(line for line in lines if "holds where" in line)

    wanted, guards = traced()
    with by_reference.checked():
        found, others = traced()
    assert others == guards
    np.testing.assert_array_equal(found, wanted)


def test_what_open_sizes_break_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part that begins one element later leaves its whole."""

    def broken(*args: Any) -> Stages:
        made = stages(*args)
        flow = made.groups.flow
        parts = {v: (w, at + 1, steps) for v, (w, at, steps) in flow.parts.items()}
        flow.parts = MappingProxyType(parts)
        check(made)
        return made

    monkeypatch.setattr(compile_, "stages", broken)
    compiled = td.jit(OPEN["a half beside the whole"], dynamic={"x": ("n", None)})
    with pytest.raises(InternalError, match="leaves its whole"):
        compiled(tnp.ones((4, 6)))

"""The checker that runs between stages: it accepts what the compiler makes, and refuses
each stage if that is changed. The rules of each are tested beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.random_rules import generate
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

"""What the printer of the stages says, and that it says something of every program."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.random_rules import generate
from treadle.backends.devices import TARGETS
from treadle.compile import stages
from treadle.ir.graph import Graph
from treadle.show import show

X, W = tnp.ones((3, 4)), tnp.ones((4, 5))


def shown(function: Any, *args: Any, donated: tuple[int, ...] = ()) -> list[str]:
    """The lines that are printed for a function."""
    graph = td.jit(function).graph(*args)
    return show(stages(graph, TARGETS["reference"], donated)).splitlines()


def stage(lines: list[str], title: str) -> list[str]:
    """The lines below the title of a stage, without its indentation."""
    start = next(i for i, line in enumerate(lines) if line.startswith(title))
    rest = lines[start + 1 :]
    end = next((i for i, line in enumerate(rest) if line[0] != " "), len(rest))
    return [line[2:] for line in rest[:end]]


def test_a_product_a_view_and_a_reduction() -> None:
    lines = shown(lambda x, w: tnp.sum(tnp.maximum(x @ w, 0.5), 1), X, W)
    assert stage(lines, "groups") == [
        "0: alone",
        "  c = dot_general a b",
        "1: cluster over 3 x 5, reducing 5 (inner)",
        "  d = maximum c 0.5",
        "  e = reduce_sum d",
    ]
    kernels = stage(lines, "kernels")
    assert kernels[0] == (
        "0: contraction (dot_general) (1 x 3, 4, 5): a + 0, b + 0 -> c"
    )
    assert kernels[1:3] == [
        "1: nest (maximum, reduce_sum) over [3] [5]",
        "  #0 = c by (5,), #1 = 0.5 (f32[]), #2 = e by (1,)",
    ]
    assert kernels[-1] == "return e"
    assert stage(lines, "schedule") == ["0: 1 task", "1: 1 task"]
    assert lines[-3:] == [
        "plan: an arena of 64 bytes",
        "  1: ProductStep (dot_general): input 0, input 1 -> arena 0:60",
        "  2: NestStep (maximum, reduce_sum): arena 0:60, constant 0 -> output 0",
    ]


def test_parts_scalars_and_donation() -> None:
    def function(x: Any, y: Any, n: Any) -> Any:
        return tnp.concatenate([tnp.exp(x), tnp.sin(y)]) * (n + 1.0), x + 1.0

    lines = shown(function, X, X, 2.0, donated=(0,))
    groups = stage(lines, "groups")
    assert any(line.startswith("computed where they are read: ") for line in groups)
    assert sum("is a part of" in line for line in groups) == 2
    kernels = stage(lines, "kernels")
    assert any(line.endswith("from byte 48 on") for line in kernels)
    assert lines[-1] == "  output 1 may take the memory of input 0"


def test_loops_and_branches_show_their_programs() -> None:
    def function(x: Any) -> Any:
        c, ys = td.scan(lambda c, r: (c + r, c * 2), x[0], x, reverse=True)
        d = td.while_loop(lambda d: d.sum() < 9, lambda d: d + 1, c)
        return td.cond(d.sum() > 0, lambda a: a + 1, tnp.sin, d), ys

    lines = shown(function, X)
    kernels = "\n".join(stage(lines, "kernels"))
    assert "repeat (scan) 3 times in reverse with nothing, rows of a" in kernels
    assert "while (while_loop) with nothing carries" in kernels
    assert "choose (cond) by" in kernels
    assert kernels.count("program 0(") == 3
    plan = "\n".join(lines[-40:])
    for word in ("slot 0 at", "slots 0 and 1 change", "body:", "test:", "branch 1:"):
        assert word in plan
    assert " + -16 a row" in plan


def test_orders_copies_and_host_calls() -> None:
    def function(x: Any) -> Any:
        y = tnp.zeros(3).at[tnp.argsort(x[:, 0])].add(x[:, 1])
        return y, td.pure_callback(np.sort, x, x)

    kernels = "\n".join(stage(shown(function, X), "kernels"))
    assert "order (order) of 1 rows of 3" in kernels
    assert "copy (scatter_add): zeros -> " in kernels
    assert "host (" in kernels


@pytest.mark.parametrize("seed", range(20))
def test_every_equation_and_entry_is_shown(seed: int) -> None:
    program = generate(seed)
    graph: Graph = td.jit(program.function()).graph(*program.arguments())
    made = stages(graph, TARGETS["reference"])
    lines = show(made).splitlines()
    nodes = [line for line in stage(lines, "groups") if line[0].isdigit()]
    assert len(nodes) == len(made.groups.nodes)
    entries = [line for line in stage(lines, "kernels") if line[0].isdigit()]
    assert len(entries) == len(made.kernels.entries) == len(made.schedule.how)
    steps = [line for line in stage(lines, "plan") if line[0].isdigit()]
    assert len(steps) == len(made.plan.steps)

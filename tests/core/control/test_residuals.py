"""What a loop remembers of each iteration, and what it can have otherwise."""

from __future__ import annotations

from typing import Any

import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import lines
from treadle.control.residuals import Residuals, plan_residuals
from treadle.ir.graph import Graph, Var

W, C, X = array(4), array(4), array(4)


def planned(
    function: Any, *wanted: str, n_outs: int = 1, args: Any = (W, C, X)
) -> tuple[Graph, Residuals]:
    """Of a body w, c, x -> c, ...: what to keep for the results of some ops."""
    body = traced(function, *args)
    values = [v for eq in body.equations for v in eq.outputs if eq.op.name in wanted]
    assert len(values) == len(wanted)
    return body, plan_residuals(body, 1, 1, n_outs, values)


def made(body: Graph, kept: list[Var]) -> list[str]:
    """What makes the values that are kept."""
    maker = {v: eq.op.name for eq in body.equations for v in eq.outputs}
    return [
        maker.get(v, f"input {body.inputs.index(v)}" if v in body.inputs else "?")
        for v in kept
    ]


def test_dear_values_are_stored() -> None:
    body, found = planned(lambda w, c, x: tnp.sin(c) + x, "sin")
    assert made(body, found.stored) == ["sin"]
    assert found[:4] == ([], [], [], [])
    assert lines(found.recompute) == ["return a"]


def test_cheap_ones_are_made_of_what_there_is() -> None:
    # w and x are there anyway, and c is no more than what is made of it.
    body, found = planned(lambda w, c, x: -(c - x) * w, "neg")
    assert made(body, found.stored) == ["input 1"]
    assert made(body, found.xs) == ["input 2"]
    assert found.consts == []
    assert lines(found.recompute) == [
        "c:f32[4] = sub b a",
        "d:f32[4] = neg c",
        "return d",
    ]


def test_two_of_the_same_size_are_dearer_than_one() -> None:
    body, found = planned(lambda w, c, x: (tnp.sin(c) - tnp.exp(c)) * 2, "sub")
    assert made(body, found.stored) == ["sub"]


def test_what_does_not_change_is_computed_once_or_read() -> None:
    body, found = planned(lambda w, c, x: tnp.sin(w) * tnp.exp(c), "sin", "exp")
    assert made(body, found.hoisted) == ["sin"]
    assert made(body, found.stored) == ["exp"]
    # A view of what does not change is no more than that.
    body, found = planned(lambda w, c, x: w.reshape(2, 2).sum() * tnp.exp(c), "reshape")
    assert made(body, found.consts) == ["input 0"]
    assert found.hoisted == found.stored == []


def test_what_is_stacked_anyway_is_not_stored_again() -> None:
    def function(w: Any, c: Any, x: Any) -> Any:
        y = tnp.sin(c) * 3
        return tnp.exp(y) + c, y

    body, found = planned(function, "exp", "mul", n_outs=2)
    assert made(body, found.ys) == ["mul"]
    assert made(body, found.stored) == ["exp"]
    # A carry is not there for each iteration.
    body, found = planned(lambda w, c, x: tnp.sin(c), "sin")
    assert made(body, found.stored) == ["sin"]
    assert found.ys == []


def test_index_patterns_are_made_again() -> None:
    def function(w: Any, c: Any, x: Any) -> Any:
        return tnp.where(tnp.arange(4) < 2, c, x)

    _, found = planned(function, "lt")
    assert found.hoisted == found.stored == found.consts == []
    assert found.recompute.inputs == ()


def test_a_view_is_made_of_what_it_is_of() -> None:
    def function(w: Any, c: Any, x: Any) -> Any:
        return (tnp.broadcast_to(tnp.sin(c)[:, None], (4, 9)) * 2).sum(1)

    body, found = planned(function, "broadcast_in_dim")
    assert made(body, found.stored) == ["sin"]
    assert found.recompute.outputs[0].type.shape == (4, 9)

"""Scheduling: levels, sweeps, what is kept in scratch, what may share a buffer."""

from __future__ import annotations

import doctest
from dataclasses import replace

import numpy as np
import pytest

from tests.core.kernels.nests import Maker, softmax
from treadle.errors import InternalError
from treadle.kernels import lower
from treadle.kernels.check import check
from treadle.kernels.lower import (
    Level,
    in_place,
    schedule,
    show,
)
from treadle.kernels.nest import Instr, Nest

F = np.float32


def test_softmax_keeps_the_exponentials_only() -> None:
    nest = softmax().nest()
    plan = schedule(nest)
    names = [nest.body[i].name for i in plan.kept]
    assert names == ["exp"]
    assert [len(s.reductions) for s in plan.sweeps] == [1, 1, 0]
    assert [[nest.body[i].name for i in s.body] for s in plan.sweeps] == [
        ["load"],
        ["load", "sub", "exp"],
        ["div", "store"],
    ]
    (exp,) = plan.kept
    assert [s.saves for s in plan.sweeps] == [(), (exp,), ()]
    assert [s.restores for s in plan.sweeps] == [(), (), (exp,)]


def test_what_is_kept_is_saved_once_and_restored_in_each_sweep_after() -> None:
    m = Maker((4,), 20)
    e = m.op("exp", m.load(np.zeros((4, 20), F)))
    weighed = m.op("mul", e, m.op("reduce_sum", e))
    m.store(np.zeros((4, 20), F), m.op("mul", e, m.op("reduce_max", weighed)))
    plan = schedule(m.nest())
    assert plan.kept == (e,)
    assert [s.saves for s in plan.sweeps] == [(e,), (), ()]
    assert [s.restores for s in plan.sweeps] == [(), (e,), (e,)]


def test_levels_of_a_column_nest() -> None:
    m = Maker((), 6, (5,), "mid")
    x = m.load(np.zeros((5, 6), F))
    weight = m.load(np.broadcast_to(np.zeros((5, 1), F), (5, 6)))
    bias = m.load(np.broadcast_to(np.zeros(6, F), (5, 6)))
    total = m.op("reduce_sum", m.op("mul", x, weight))
    count = m.op("reduce_sum", weight)
    result = m.op("add", m.op("div", total, count), bias)
    m.store(np.broadcast_to(np.zeros(6, F), (5, 6)), result)
    plan = schedule(m.nest())
    assert plan.levels[x] == plan.levels[weight] == Level.MID
    assert plan.levels[bias] == plan.levels[total] == Level.ELEM
    assert not plan.varying[weight] and not plan.varying[count]
    assert plan.varying[total]
    assert len(plan.sweeps) == 1 and bias in plan.held[0]
    assert result in plan.held[1]


def test_in_place() -> None:
    nest = softmax().nest()
    assert in_place(nest, store=1, load=0)
    m = Maker((4,), 20)
    x = m.load(np.zeros((4, 20), F))
    m.store(np.zeros((4, 20), F), m.op("neg", x))
    m.store(np.zeros((4, 20), F), m.op("sub", x, m.op("reduce_sum", x)))
    nest = m.nest()
    assert in_place(nest, store=2, load=0)
    assert not in_place(nest, store=1, load=0)  # read again in the second sweep


def test_show_names_every_step() -> None:
    text = show(softmax().nest())
    assert text.splitlines()[:3] == [
        "for rows (1 outer dimension):",
        "  for inner:",
        "    v0: float32 = load #0 [contiguous]",
    ]
    assert "    scratch = v3" in text and "    v3 = scratch" in text


def test_examples() -> None:
    assert doctest.testmod(lower).failed == 0


def broken(nest: Nest, at: int, **changes: object) -> Nest:
    body = list(nest.body)
    body[at] = body[at]._replace(**changes)
    return replace(nest, body=tuple(body))


@pytest.mark.parametrize(
    "at, changes, message",
    [
        (2, {"args": (0, 7)}, "does not come before"),
        (2, {"dtype": np.dtype(np.float64)}, "the arguments are float32"),
        (0, {"attr": 5}, "not the number of an operand"),
        (0, {"args": (0,)}, "does not come before"),
        (1, {"name": "reduce_and"}, "not defined for float32"),
        (1, {"name": "reduce_median"}, "no such reduction"),
        (6, {"args": ()}, "a store without a value"),
    ],
)
def test_check_names_the_broken_rule(at: int, changes: dict, message: str) -> None:
    nest = softmax().nest()
    check(nest)
    with pytest.raises(InternalError, match=message):
        check(broken(nest, at, **changes))


def test_check_rejects_a_race() -> None:
    m = Maker((4,), 20)
    x = m.load(np.zeros((4, 20), F))
    out = m.operand(np.broadcast_to(np.zeros((4, 1), F), (4, 20)))
    m.body.append(Instr("store", (x,), np.dtype(F), out))
    with pytest.raises(InternalError, match="all of inner share one place"):
        m.nest()

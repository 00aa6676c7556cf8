"""Scheduling: levels, sweeps, what is kept in scratch, what may share a buffer."""

from __future__ import annotations

import doctest
from dataclasses import replace

import numpy as np
import pytest

from tests.core.kernels.nests import Maker
from treadle.errors import InternalError
from treadle.kernels import lower
from treadle.kernels.check import check
from treadle.kernels.lower import (
    Level,
    in_place,
    schedule,
    scratch_bytes,
    scratch_rows,
    show,
    split_axis,
)
from treadle.kernels.nest import Instr, Nest

F = np.float32


def softmax() -> Maker:
    m = Maker((4,), 20)
    x = m.load(np.zeros((4, 20), F))
    e = m.op("exp", m.op("sub", x, m.op("reduce_max", x)))
    m.store(np.zeros((4, 20), F), m.op("div", e, m.op("reduce_sum", e)))
    return m


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
    assert scratch_rows(nest) == 1
    assert scratch_bytes(nest, 20) == 32 * 4


def test_scratch_of_several_types() -> None:
    m = Maker((2,), 5)
    x = m.load(np.zeros((2, 5), np.float16))
    wide = m.op("exp", m.op("convert", x, dtype=np.float64))
    half = m.op("exp", x)
    total = m.op("reduce_sum", wide)
    other = m.op("convert", m.op("reduce_sum", half), dtype=np.float64)
    scaled = m.op("div", wide, m.op("mul", total, other))
    m.store(np.zeros((2, 5)), scaled)
    m.store(np.zeros((2, 5), np.float16), m.op("div", half, m.op("reduce_max", half)))
    nest = m.nest()
    assert scratch_rows(nest) == 2
    assert scratch_bytes(nest, 5) == 16 * (8 + 4)
    assert scratch_bytes(nest, 17) % 64 == 0


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


def test_what_tasks_divide() -> None:
    assert split_axis(softmax().nest()) == "rows"
    m = Maker((), 9)
    m.store(np.zeros(9, F), m.load(np.zeros(9, F)))
    assert split_axis(m.nest()) == "inner"
    wide = Maker((2,), 9)
    wide.store(np.zeros((2, 9), F), wide.load(np.zeros((2, 9), F)))
    assert split_axis(wide.nest()) == "either"
    m.op("reduce_sum", 0)
    assert split_axis(m.nest()) == "none"
    m = Maker((), 9, (3,), "mid")
    m.store(np.broadcast_to(np.zeros(9, F), (3, 9)), m.const(0.0, F))
    assert split_axis(m.nest()) == "blocks"
    m = Maker((), 9, serial=True)
    index = m.load(np.zeros(9, np.int32))
    table = np.broadcast_to(np.zeros(4, F), (9, 4))
    m.store(table, m.const(1.0, F), index, how="add")
    assert split_axis(m.nest()) == "none"


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
    body[at] = replace(body[at], **changes)
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

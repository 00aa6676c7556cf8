"""Checks become branches, of which the one that fails calls Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import equations, untouched
from treadle.control.callback import io_callback
from treadle.control.checks import Failure, error_if
from treadle.control.cond import cond
from treadle.errors import CheckError
from treadle.ir.check import check
from treadle.passes.checks import lower_checks

X = array(3)


def checked(x: Any) -> Any:
    return td.debug.error_if(x, x > 2, "{} is too large")


def test_a_check_is_a_branch() -> None:
    graph = traced(checked, X)
    (old,) = [eq for eq in graph.equations if eq.op is error_if]
    found = lower_checks(graph)
    check(found)
    ops = [eq.op for eq in found.equations]
    assert error_if not in ops
    (branch,) = [eq for eq in found.equations if eq.op is cond]
    passing, failing = branch.params["branches"]
    assert (passing.equations, passing.outputs) == ((), ())
    (call,) = failing.equations
    assert (call.op, call.inputs, call.outputs) == (io_callback, failing.inputs, ())
    assert passing.in_types == failing.in_types == tuple(a.type for a in old.inputs)
    failure = call.params["function"]
    assert isinstance(failure, Failure)
    assert failure.message == "{} is too large"
    assert {eq.source for eq in (call, branch)} == {old.source}
    assert branch.inputs[1:] == old.inputs
    assert str(branch.inputs[0].type) == "i32[]"


def test_one_that_fails_is_enough() -> None:
    names = [eq.op.name for eq in lower_checks(traced(checked, X)).equations]
    assert "reduce_or" in names
    one = traced(lambda x: td.debug.error_if(x, x.sum() > 2, "large"), X)
    assert "reduce_or" not in [eq.op.name for eq in lower_checks(one).equations]
    function = td.jit(checked)
    assert np.array_equal(function(np.ones(3, np.float32)), np.ones(3))
    with pytest.raises(CheckError, match="too large"):
        np.asarray(function(np.array([0, 0, 3], np.float32)))


def test_in_loops_with_the_names_around() -> None:
    def function(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            with td.named_scope("inner"):
                return checked(c) + 1, None

        with td.named_scope("outer"):
            return td.scan(step, x, None, length=2)[0]

    found = lower_checks(traced(function, X))
    check(found)
    every = equations(found)
    assert error_if not in [eq.op for eq in every]
    (call,) = [eq for eq in every if eq.op is io_callback]
    assert call.params["function"].scope == "outer.inner"


def test_in_one_branch_of_several() -> None:
    graph = traced(lambda x: td.cond(x[0] > 0, checked, tnp.cos, x), X)
    every = [eq.op for eq in equations(lower_checks(graph))]
    assert error_if not in every
    assert io_callback in every


def test_others_stay() -> None:
    assert untouched(lower_checks, lambda x: td.cond(x[0] > 0, tnp.sin, tnp.cos, x), X)

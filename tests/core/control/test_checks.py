"""The op `error_if`: when it raises, and what its message tells."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.core.fuse.graphs import traced
from treadle.control.checks import Failure, error_if
from treadle.errors import CheckError
from treadle.scopes import current

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def fails(condition: Any, *values: Any, levels: Any = None) -> Any:
    arrays = (condition, *values)
    return error_if(
        *arrays,
        message="too large",
        names=tuple("xyz"[: len(values)]),
        line="there.py:3",
        levels=levels or ((),) * len(arrays),
    )


def told(condition: Any, *values: Any, levels: Any = None) -> list[str]:
    with pytest.raises(CheckError) as caught:
        fails(condition, *values, levels=levels)
    return str(caught.value).splitlines()


def test_nothing_happens_where_nothing_fails() -> None:
    assert fails(np.bool_(False), X) == []
    assert fails(X > 9, X) == []
    assert fails(np.zeros((0, 3), bool), X) == []
    with pytest.raises(CheckError):
        fails(X > 4, X)


def test_the_message_has_the_line_and_the_values() -> None:
    assert told(np.bool_(True), X, np.int32(3)) == [
        "too large",
        "  at there.py:3",
        "  x: f32[2,3]: [[0., 1., 2.], [3., 4., 5.]]",
        "  y: i32[]: 3",
    ]


def test_it_names_the_first_place_that_fails() -> None:
    # What is of another shape has no element there.
    assert told(X > 3, X, X[0])[2:] == [
        "  fails for 2 of 6 elements, the first at [1, 1]",
        "  x: f32[2,3], 4.0 there: [[0., 1., 2.], [3., 4., 5.]]",
        "  y: f32[3]: [0., 1., 2.]",
    ]


def test_long_values_are_shown_by_their_ends() -> None:
    (line,) = told(np.bool_(True), np.arange(12))[2:]
    assert "11]" in line and "..." not in line
    (line,) = told(np.bool_(True), np.arange(13))[2:]
    assert line == "  x: i64[13]: [ 0, 1, 2, ..., 10, 11, 12]"


def test_the_first_example_that_fails_is_told_apart() -> None:
    """Two vmaps: the condition has axes of both, x of the inner one, y of none."""
    condition = np.zeros((2, 3, 2), bool)
    condition[1, 2, 1] = condition[1, 2, 0] = True
    levels = ((True, True), (False, True), (False, False))
    assert told(condition, X.T, np.float32(7), levels=levels)[2:] == [
        "  in example 1, 2 of vmap",
        "  fails for 2 of 2 elements, the first at [0]",
        "  x: f32[2], 2.0 there: [2., 5.]",
        "  y: f32[]: 7.",
    ]
    # A level that the condition does not have: any of the examples will do.
    levels = ((False, True), (True, True))
    assert told(np.array([False, True]), X[:, :2], levels=levels)[2:] == [
        "  in example 1 of vmap",
        "  x: f32[]: 1.",
    ]


def test_the_place_of_the_program_is_named() -> None:
    failure = Failure("no", (), "a.py:1", "encoder.layers[2]", ((),))
    text = failure.text(np.bool_(True), [])
    assert text == "no\n  at a.py:1, in encoder.layers[2]"
    assert failure.__name__ == "error_if"
    with pytest.raises(CheckError, match="encoder"):
        failure(np.bool_(True))
    before, current.place.path = current.place.path, "head"
    try:
        assert told(np.bool_(True))[1] == "  at there.py:3, in head"
    finally:
        current.place.path = before


def test_the_condition_is_of_bools() -> None:
    with pytest.raises(TypeError, match=r"must be of bools, got f32\[2,3\]"):
        traced(lambda x: (fails(x, x), x)[1], X)


def batched(of: Any, axes: Any, *args: Any) -> Any:
    """The equation that a vmap of the op writes."""

    def each(*xs: Any) -> Any:
        fails(of(*xs), *xs)
        return xs[0]

    graph = traced(td.vmap(each, axes), *args)
    (eq,) = [eq for eq in graph.equations if eq.op is error_if]
    return eq


def test_examples_come_first() -> None:
    eq = batched(lambda x, y: x > y, (1, None), X, np.float32(9))
    assert [a.type.shape for a in eq.inputs] == [(3, 2), (3, 2), ()]
    assert eq.params["levels"] == ((True,), (True,), (False,))
    # The outermost is the first, and what the condition is not made of varies alone.
    inner = lambda x, y: td.vmap(  # noqa: E731
        lambda z: (fails(y > 1, x, z), z)[1]
    )(y.reshape(1) + np.zeros(4, np.float32))
    graph = traced(td.vmap(inner), X, X[:, 0])
    (eq,) = [eq for eq in graph.equations if eq.op is error_if]
    assert eq.params["levels"] == ((True, False), (True, False), (True, True))
    assert [a.type.shape for a in eq.inputs] == [(2,), (2, 3), (2, 4)]


def test_in_a_branch_only_examples_that_take_it_fail() -> None:
    def each(x: Any, limit: Any) -> Any:
        checked = lambda x: (fails(x > limit, x), x.sum())[1]  # noqa: E731
        return td.cond(x[0] > 0, checked, lambda x: x.sum(), x)

    rows = np.float32([[-1, 9], [1, 2], [1, 8]])
    assert np.asarray(td.vmap(each, (0, None))(rows[:2], np.float32(5))).tolist() == [
        8,
        3,
    ]
    with pytest.raises(CheckError, match=r"(?s)in example 2 of vmap.*first at \[1\]"):
        td.vmap(each, (0, None))(rows, np.float32(5))
    scalar = lambda x: td.cond(  # noqa: E731
        x > 0, lambda x: (fails(x > 5, x), x)[1], lambda x: -x, x
    )
    assert np.asarray(td.vmap(scalar)(np.float32([-9, 1]))).tolist() == [9, 1]
    with pytest.raises(CheckError, match="in example 1 of vmap"):
        td.vmap(scalar)(np.float32([-9, 7]))


def test_derivatives_pass_it_by() -> None:
    function = lambda x: (fails(x > 5, x), x * x)[1]  # noqa: E731
    assert float(td.grad(function)(3.0)) == 6
    with pytest.raises(CheckError):
        td.grad(function)(6.0)

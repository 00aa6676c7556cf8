"""The explorer alone: which ways it goes, what it writes, what it finds to differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.arraytype import ArrayType
from treadle.errors import TracerError
from treadle.ir.graph import Graph
from treadle.trace.interpreter import entering
from treadle.trace.repeated import _same, _same_graph
from treadle.trace.ways import (
    Branches,
    Explorer,
    noting,
)

F4 = np.dtype(np.float32)
SCALAR, VECTOR = ArrayType((), F4), ArrayType((3,), F4)


def explored(
    function: Callable[..., Any], *types: ArrayType, closed: bool = False
) -> Explorer:
    writer = Explorer("f", closed)
    with entering(writer):
        arguments = [writer.argument(t) for t in types or (SCALAR,)]
        writer.explore(lambda *a: [function(*a)], arguments, lambda: "form")
    return writer


def taken(writer: Explorer) -> list[list[bool]]:
    return [[d.taken for d in way.decisions] for way in writer.ways]


def names(way: Any) -> list[str]:
    return [eq.op.name for eq in way.equations]


def test_a_function_that_asks_nothing_has_one_way() -> None:
    found = explored(lambda x: x + 1)
    assert taken(found) == [[]]
    assert [eq.op.name for eq in found.equations] == ["add"]
    assert found.ways[0].form == "form"


def test_each_way_has_what_it_did() -> None:
    def f(x: Any) -> Any:
        y = tnp.exp(x)
        if y > 2:
            return tnp.sin(y)
        return tnp.cos(y) if x > 0 else tnp.tan(y)

    found = explored(f)
    assert taken(found) == [[True], [False, True], [False, False]]
    assert [names(way) for way in found.ways] == [
        ["exp", "gt", "sin"],
        ["exp", "gt", "gt", "cos"],
        ["exp", "gt", "gt", "tan"],
    ]
    first, second, third = found.ways
    assert [d.position for d in third.decisions] == [2, 3]
    # What ways have in common is written once, and asked of one value.
    assert first.equations[0] is second.equations[0] is third.equations[0]
    assert first.decisions[0].atom is third.decisions[0].atom
    assert [w.results[0] for w in found.ways] == [
        w.equations[-1].outputs[0] for w in found.ways
    ]
    assert (
        str(second).count("taken as False") == str(second).count("taken as True") == 1
    )
    assert "test_ways.py" in str(second)


def test_known_values_are_no_question() -> None:
    writer = Explorer("f")
    assert writer.decide(np.bool_(True)) is True
    assert writer.decide(np.bool_(False)) is False


def test_a_question_is_asked_once_on_a_way() -> None:
    def f(x: Any) -> Any:
        y = x if x > 0 else -x
        z = y + 1 if x > 0 else y
        return z if x > 1 else -z

    assert taken(explored(f)) == [
        [True, True],
        [True, False],
        [False, True],
        [False, False],
    ]


MOST_WAYS, MOST_DECISIONS = 64, 128
"""As documented."""


def chain(n: int) -> Callable[[Any], Any]:
    """A function that asks n questions as long as the answer is yes."""

    def f(x: Any) -> Any:
        for i in range(n):
            if not x > i:
                return x
        return -x

    return f


def test_how_many_ways_there_may_be() -> None:
    assert len(explored(chain(MOST_WAYS - 1)).ways) == MOST_WAYS
    with pytest.raises(
        TracerError, match=f"more than {MOST_WAYS} ways through"
    ) as error:
        explored(chain(MOST_WAYS))
    assert "test_ways.py" in str(error.value)


def test_how_many_decisions_there_may_be() -> None:
    with pytest.raises(TracerError, match=f"more than {MOST_WAYS} ways"):
        explored(chain(MOST_DECISIONS))
    message = f"more than {MOST_DECISIONS} decisions on one way"
    with pytest.raises(TracerError, match=message) as error:
        explored(chain(MOST_DECISIONS + 1))
    assert f"({MOST_DECISIONS} times)" in str(error.value)


# What differs -------------------------------------------------------------------------


def alternating(first: Callable, then: Callable) -> Callable[..., Any]:
    """A function that begins with `first` in its first run, with `then` in others, and
    goes on with a question."""
    runs: Iterator[Callable] = iter([first])

    def f(x: Any) -> Any:
        y = next(runs, then)(x)
        return y if x.sum() > 0 else -y

    return f


BIG, SMALL = np.arange(60.0, dtype=F4), np.float32([1, 2, 3])

DIFFERENT: dict[str, tuple[Callable, Callable]] = {
    "operation": (tnp.sin, tnp.cos),
    "params": (lambda x: x.sum(0), lambda x: x.max(0) * 0 + x.sum()),
    "only params": (
        lambda x: tnp.cumsum(x),
        lambda x: tnp.flip(tnp.cumsum(tnp.flip(x))),
    ),
    "dtype": (
        lambda x: x.astype("float16").sum(),
        lambda x: x.astype("bfloat16").sum(),
    ),
    "order of operands": (lambda x: x - x[::-1], lambda x: x[::-1] - x),
    "number of operands": (
        lambda x: tnp.concatenate([x, x])[:3],
        lambda x: tnp.concatenate([x, x, x])[:3],
    ),
    "number": (lambda x: x * 2, lambda x: x * 3),
    "type of a number": (lambda x: x * np.float32(2), lambda x: x * np.float16(2)),
    "nothing": (tnp.sin, lambda x: x),
    "more": (tnp.sin, lambda x: tnp.sin(x) + 1),
    "small array": (lambda x: x + SMALL, lambda x: x + SMALL * 2),
    "large array": (lambda x: x + BIG.copy()[:3], lambda x: x + BIG.copy()[1:4]),
}


@pytest.mark.parametrize("what", DIFFERENT)
@pytest.mark.parametrize("closed", [False, True])
def test_what_another_run_does_otherwise_is_found(what: str, closed: bool) -> None:
    with pytest.raises(
        TracerError, match="f did something else when it was traced"
    ) as e:
        explored(alternating(*DIFFERENT[what]), VECTOR, closed=closed)
    assert str(e.value).count("test_ways.py") == 2


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_is_the_same_is_not(what: str) -> None:
    first, _ = DIFFERENT[what]
    assert len(explored(alternating(first, first), VECTOR).ways) == 2


def test_a_run_that_asks_no_more_differs() -> None:
    asks = iter([True])

    def f(x: Any) -> Any:
        y = tnp.sin(x) > 0
        return x if next(asks, False) and y else -x

    with pytest.raises(
        TracerError, match=r"first: *a branch|first:[\s\S]*then: *its end|then: *`neg`"
    ):
        explored(f)


def test_a_run_that_ends_early_differs() -> None:
    runs = iter([True])

    def f(x: Any) -> Any:
        if not next(runs, False):
            return x
        return x if tnp.sin(x) > 0 else -x

    with pytest.raises(TracerError, match=r"first: *`sin`[\s\S]*then: *its end"):
        explored(f)


def test_a_run_that_asks_otherwise_differs() -> None:
    runs = iter([0])

    def f(x: Any) -> Any:
        questions = x > 0, x > 1
        return x if questions[next(runs, 1)] else -x

    with pytest.raises(TracerError, match=r"first: *a branch[\s\S]*then: *another"):
        explored(f)


def test_an_array_that_each_run_makes_anew_is_one() -> None:
    def f(x: Any) -> Any:
        y = x + np.arange(60.0, dtype=F4)
        return y if x.sum() > 0 else y * np.ones(60, F4)

    found = explored(f, ArrayType((60,), F4))
    assert len(found.capture_vars) == 2
    first, second = found.captures()
    np.testing.assert_array_equal(first, np.arange(60))
    np.testing.assert_array_equal(second, np.ones(60))


def test_arrays_of_equal_bytes_and_other_types_are_two() -> None:
    zeros = np.zeros(60, F4)

    def f(x: Any) -> Any:
        y = x + zeros
        return y if x.sum() > 0 else y + zeros.copy().view(np.int32)

    assert len(explored(f, ArrayType((60,), F4)).capture_vars) == 2


def test_a_traced_value_from_around_is_no_array_that_is_known() -> None:
    big, x = np.ones(60, F4), tnp.arange(60.0)

    def outer(y: Any) -> Any:
        return td.jit(lambda x: x + big if x.sum() < 0 else x + y)(x)

    np.testing.assert_array_equal(td.jit(outer)(2 * big), np.arange(60) + 2)


# Errors -------------------------------------------------------------------------------


def fails(error: Callable[[], Any]) -> Callable[[Any], Any]:
    def f(x: Any) -> Any:
        if x > 0:
            error()
        return x

    return f


def raised() -> None:
    raise ValueError("negative")


def asserted() -> None:
    value = 1
    assert value == 2


@pytest.mark.parametrize("error", [raised, asserted])
def test_what_the_user_raises_is_a_way(error: Callable[[], Any]) -> None:
    found = explored(fails(error))
    assert taken(found) == [[True], [False]]
    assert isinstance(found.ways[0].error, ValueError | AssertionError)
    assert found.ways[0].results == [] and found.ways[1].error is None


@pytest.mark.parametrize(
    "error", [lambda: {}["key"], lambda: tnp.ones(3) + tnp.ones(2), lambda: int("x")]
)
def test_what_others_raise_is_an_error(error: Callable[[], Any]) -> None:
    with pytest.raises((KeyError, ValueError)):
        explored(fails(error))

    def second(x: Any) -> Any:
        if x > 0:
            return x
        return error()

    with pytest.raises((KeyError, ValueError)) as found:
        explored(second)
    (note,) = found.value.__notes__
    assert "while tracing the way through f" in note and "taken as False" in note


def test_what_is_raised_before_any_question_is_an_error() -> None:
    with pytest.raises(ValueError, match="negative"):
        explored(lambda x: raised())


# Notes --------------------------------------------------------------------------------


def test_notes_are_of_their_block() -> None:
    branch = lambda x: x if x > 0 else -x  # noqa: E731
    with noting() as outer:
        explored(lambda x: x)
        assert outer == []
        explored(branch)
        with noting() as inner:
            explored(branch)
            explored(chain(2))
        explored(branch)
    explored(branch)
    assert [b.ways for b in outer] == [2, 2]
    assert [b.ways for b in inner] == [2, 3]
    (line,) = outer[0].lines
    assert "test_ways.py" in line
    assert str(outer[0]) == f"2 ways through f, by {line}"
    assert isinstance(outer[0], Branches)


# What counts as the same --------------------------------------------------------------


class Thing:
    def __init__(self, value: Any) -> None:
        self.value = value


def adder(n: int) -> Callable[[int], int]:
    return lambda x: x + n


SAME: list[tuple[Any, Any]] = [
    (1.5, 1.5),
    (float("nan"), float("nan")),
    ((1, (2, "a")), (1, (2, "a"))),
    ([1, 2], [1, 2]),
    (np.arange(3), np.arange(3)),
    (np.float32("nan"), np.float32("nan")),
    (adder(1), adder(1)),
    (Thing(3), Thing(3)),
    (ValueError("a"), ValueError("a")),
    (F4, np.dtype("float32")),
]
OTHER: list[tuple[Any, Any]] = [
    (1.5, 2.5),
    (1, 1.0),
    (float("nan"), 1.0),
    ((1, 2), (1, 2, 3)),
    ((1, 2), [1, 2]),
    ((1, (2, "a")), (1, (2, "b"))),
    (np.arange(3), np.arange(3.0)),
    (np.arange(3), np.arange(1, 4)),
    (np.arange(3), np.arange(4)),
    (np.float32(0.0), np.float32(-0.0)),
    (adder(1), raised),
    (Thing(3), Thing(4)),
    (ValueError("a"), ValueError("b")),
    (ValueError("a"), KeyError("a")),
    (F4, np.dtype("float16")),
    ("a", "b"),
]


@pytest.mark.parametrize(("a", "b"), SAME)
def test_same(a: Any, b: Any) -> None:
    assert _same(a, b) is True


@pytest.mark.parametrize(("a", "b"), OTHER)
def test_not_the_same(a: Any, b: Any) -> None:
    assert _same(a, b) is False
    assert _same(b, a) is False


def graph(function: Callable[..., Any], *types: Sequence[int]) -> Graph:
    return td.trace(function)(*[np.ones(t, F4) for t in types or [(3,)]])


def test_graphs_are_the_same_by_what_they_compute() -> None:
    one = graph(lambda x: tnp.sin(x) * 2)
    assert _same_graph(
        one, graph(lambda x: 2 * tnp.sin(x) if False else tnp.sin(x) * 2)
    )
    others = [
        graph(lambda x: tnp.cos(x) * 2),
        graph(lambda x: tnp.sin(x) * 3),
        graph(lambda x: tnp.sin(x)),
        graph(lambda x: x * 2),
        graph(lambda x: tnp.sin(x) * 2, (4,)),
        graph(lambda x: (tnp.sin(x) * 2, x)),
        graph(lambda x, y: tnp.sin(x) * 2, (3,), (3,)),
    ]
    for other in others:
        assert not _same_graph(one, other) and not _same_graph(other, one)


def test_graphs_of_other_wires_and_params_are_others() -> None:
    pairs = [
        (lambda x, y: x - y, lambda x, y: y - x),
        (lambda x, y: (x + y, x * y), lambda x, y: (x * y, x + y)),
        (lambda x, y: (x, y), lambda x, y: (y, x)),
        (lambda x, y: x.sum(0) + y, lambda x, y: x.sum(0, keepdims=True) + y),
    ]
    for first, second in pairs:
        a, b = graph(first, (3,), (3,)), graph(second, (3,), (3,))
        assert not _same_graph(a, b)
        assert _same_graph(a, graph(first, (3,), (3,)))

"""Ways through functions that branch on traced values, joined to one graph."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.passes.shown import lines
from treadle import tree
from treadle.arraytype import ArrayType
from treadle.control.cond import cond
from treadle.control.ways import branching, explore
from treadle.errors import StructureError, TracerError
from treadle.ir.check import check
from treadle.ir.graph import Equation, Graph, Lit
from treadle.run.eager import evaluate
from treadle.trace.axes import MappedAxis
from treadle.transforms.batch import batch_flat

F4 = np.dtype(np.float32)
S = ArrayType((), F4)

NOTED = threading.local()
"""What traced functions may change: the ways look into objects of users, not here."""


def explored(function: Any, *types: ArrayType, closed: bool = True) -> Graph:
    """The graph of a function that gives one array, or a list of them."""

    def flat(*args: Any) -> list[Any]:
        leaves, NOTED.form = tree.flatten(function(*args))
        return leaves

    with td.disable_branches("statements"):
        form = lambda: NOTED.form  # noqa: E731
        graph, captured = explore(flat, types, form, closed=closed, name="f")
    assert captured == []
    check(graph)
    assert graph.name == "f"
    return graph


def agree(function: Any, graph: Graph, *numbers: float) -> None:
    """The graph gives what the function gives of numbers."""
    for number in numbers:
        x = np.float32(number)
        found = evaluate(graph, [x])
        wanted = tree.leaves(function(x))
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, 1e-6)


def conds(graph: Graph) -> list[Equation]:
    return [eq for eq in graph.equations if eq.op is cond]


def test_a_function_that_goes_one_way_is_its_graph() -> None:
    assert lines(explored(lambda x: tnp.sin(x) * 2.0, S)) == [
        "b:f32[] = sin a",
        "c:f32[] = mul b 2.0",
        "return c",
    ]


def test_what_comes_before_the_question_is_written_once() -> None:
    def function(x: Any) -> Any:
        y = tnp.sin(x)
        if y > 0:
            return tnp.exp(y)
        return tnp.cos(x) * y

    graph = explored(function, S)
    shown = lines(graph)
    assert shown[:2] == ["b:f32[] = sin a", "c:bool[] = gt b 0.0"]
    (eq,) = conds(graph)
    no, yes = eq.params["branches"]
    assert [e.op.name for e in no.equations] == ["cos", "mul"]
    assert [e.op.name for e in yes.equations] == ["exp"]
    # What the sides need goes in once.
    assert len(eq.inputs) == 3
    assert "test_ways.py" in str(eq.source)
    agree(
        lambda x: np.exp(np.sin(x)) if np.sin(x) > 0 else np.cos(x) * np.sin(x),
        graph,
        1,
        -1,
    )


def test_what_is_the_same_on_both_sides_does_not_go_through() -> None:
    def function(x: Any, y: Any) -> Any:
        z = tnp.sin(x)
        if x > 0:
            return z, y, 2.0, tnp.exp(x), y, 3.0
        return z, y, 2.0, tnp.cos(x), z, 4.0

    graph = explored(function, S, S)
    (eq,) = conds(graph)
    assert len(eq.outputs) == 3
    sine = graph.equations[0].outputs[0]
    assert graph.outputs[:2] == (sine, graph.inputs[1])
    assert isinstance(graph.outputs[2], Lit)
    assert graph.outputs[3:] == eq.outputs
    for x in np.float32([1, -1]):
        found = evaluate(graph, [x, np.float32(7)])
        z, up = np.sin(x), x > 0
        wanted = [
            z,
            7,
            2,
            np.exp(x) if up else np.cos(x),
            7 if up else z,
            3 if up else 4,
        ]
        np.testing.assert_allclose(np.asarray(found, F4), wanted, 1e-6)


def test_equal_results_of_both_sides_are_made_there() -> None:
    """The same operation on each side is not what was known before."""

    def function(x: Any) -> Any:
        if x > 0:
            return tnp.sin(x)
        return tnp.sin(x)

    graph = explored(function, S)
    (eq,) = conds(graph)
    assert len(eq.outputs) == 1
    agree(np.sin, graph, 1, -1)


def test_questions_within_questions() -> None:
    def function(x: Any) -> Any:
        if x > 0:
            y = x * 2
            if y > 4:
                return y, tnp.exp(-y)
            return y + 1, x
        if x < -3:
            return -x, x * x
        return x, x + 9

    def plain(x: Any) -> Any:
        if x > 0:
            y = x * 2
            return (y, np.exp(-y)) if y > 4 else (y + 1, x)
        return (-x, x * x) if x < -3 else (x, x + 9)

    graph = explored(function, S)
    agree(plain, graph, 3, 1, -1, -5)
    (eq,) = conds(graph)
    assert [len(conds(g)) for g in eq.params["branches"]] == [1, 1]


def test_python_numbers_take_the_type_of_the_other_side() -> None:
    graph = explored(lambda x: x * 2.5 if x > 0 else 7, S)
    assert graph.out_types == (S,)
    agree(lambda x: x * 2.5 if x > 0 else np.float32(7), graph, 1, -1)
    both = explored(lambda x: 1 if x > 0 else 2.5, S).out_types[0]
    assert (both.dtype, both.weak) == (F4, True)
    # A number beside another is one only as long as both are.
    half = explored(lambda x: x.astype("float16") if x > 0 else 2, S).out_types[0]
    assert (half.dtype, half.weak) == (np.float16, False)


def test_numbers_of_a_statement_act_as_numbers_after_it() -> None:
    """As they do where nothing is traced."""
    half = np.ones(2, "float16")

    def function(x: Any) -> Any:
        y, z = 1 if x > 0 else 2.5, 3.0
        if x > 1:
            z = 4.0
        return y * half, z * half

    for run in (function, td.jit(function)):
        assert [x.dtype for x in run(np.float32(2))] == [np.float16] * 2


@pytest.mark.parametrize(
    ("yes", "no", "text"),
    [
        (lambda x: x, lambda x: x.astype("int32"), r"True:  f32\[\]\n.*False: i32\[\]"),
        (
            lambda x: x,
            lambda x: tnp.stack([x, x]),
            r"True:  f32\[\]\n.*False: f32\[2\]",
        ),
        (lambda x: 1.5, lambda x: tnp.stack([x, x]), r"False: f32\[2\]"),
    ],
)
def test_results_have_one_type(yes: Any, no: Any, text: str) -> None:
    with pytest.raises(TypeError, match=rf"the result must have (?s:.*){text}"):
        explored(lambda x: yes(x) if x > 0 else no(x), S)
    # Which one it is, is said.
    where = r"the result\['b'\] must have"
    with pytest.raises(TypeError, match=where):
        explored(lambda x: {"a": x, "b": yes(x) if x > 0 else no(x)}, S)


def test_results_have_one_structure() -> None:
    with pytest.raises(
        StructureError, match=r"(?s)f branches.*taken as True.*as False"
    ):
        explored(lambda x: (x, x) if x > 0 else [x, x], S)


def test_a_way_that_raises_gives_zeros_and_the_error() -> None:
    def function(x: Any, y: Any) -> Any:
        if x > 0:
            raise ValueError(f"got {x}")
        return tnp.stack([y, y]), tnp.exp(x)

    graph = explored(function, S, S)
    (eq,) = conds(graph)
    no, yes = eq.params["branches"]
    assert [e.op.name for e in yes.equations if e.op.effect] == ["io_callback"]
    assert [e.op.name for e in no.equations if e.op.effect] == []
    found = evaluate(graph, [np.float32(-1), np.float32(2)])
    assert np.asarray(found[0]).tolist() == [2, 2]
    with pytest.raises(ValueError, match=r"got 3\.?0?$"):
        evaluate(graph, [np.float32(3), np.float32(2)])


def test_both_sides_may_raise_within_another() -> None:
    def function(x: Any) -> Any:
        if x > 0:
            if x > 5:
                raise ValueError("large")
            raise KeyError("small")
        return x * 2

    graph = explored(function, S)
    agree(lambda x: x * 2, graph, -4)
    for number, kind in ((7, ValueError), (1, KeyError)):
        with pytest.raises(kind):
            evaluate(graph, [np.float32(number)])
    with pytest.raises(KeyError, match="always"):
        explored(always, S)


def always(x: Any) -> Any:
    if x > 0:
        raise KeyError("always")
    raise KeyError("always")


def test_what_a_message_tells_has_no_derivative() -> None:
    def function(x: Any) -> Any:
        if x > 3:
            raise ValueError(f"got {x}")
        return x * x

    slope = td.jit(td.grad(function))
    assert float(slope(2.0)) == 4
    with pytest.raises(ValueError, match="got 4"):
        slope(4.0)


def test_arrays_from_outside_are_captured() -> None:
    big = np.arange(100, dtype=F4)

    def function(x: Any) -> list[Any]:
        return [(tnp.sum(big) if x > 0 else big[3] * 1.0) + x]

    graph, captured = explore(function, [S], lambda: tree.LEAF, name="f")
    assert len(captured) == 1 and len(graph.inputs) == 2
    assert np.array_equal(captured[0], big)
    (found,) = evaluate(graph, [*captured, np.float32(2)])
    assert float(found) == 4952


def test_a_transform_of_a_function_that_branches_gets_its_graph() -> None:
    axis, xs = MappedAxis(None, 3), np.float32([1, -2, 3])
    NOTED.calls = 0

    def function(x: Any, y: Any) -> list[Any]:
        NOTED.calls += 1
        return [x * y if x > 0 else -x]

    def mapped(f: Any, values: Any, axes: Any, restages: bool = False) -> Any:
        return batch_flat(f, axis, values, axes, restages)

    def run(f: Any) -> Any:
        NOTED.calls = 0
        return branching(
            mapped,
            f,
            [S, S],
            lambda: tree.LEAF,
            [xs, np.float32(2)],
            [0, None],
            name="f",
        )

    (found,), axes = run(function)
    assert axes == [0]
    assert np.asarray(found).tolist() == [2, 2, 6]
    # Once as it is, and each way.
    assert NOTED.calls == 3
    (found,), _ = run(lambda x, y: [x * y])
    assert np.asarray(found).tolist() == [2, -4, 6]


def test_errors_that_may_be_caught_around_what_is_one_operation() -> None:
    def loop(x: Any) -> Any:
        def body(i: Any, x: Any) -> Any:
            if x > 3:
                raise ValueError("large")
            return x + 1

        return td.fori_loop(0, 5, body, x)

    def caught(x: Any) -> Any:
        try:
            return loop(x)
        except ValueError:
            return x

    with pytest.raises(TracerError, match=r"(?s)ValueError is raised.*caught around"):
        td.jit(caught)(1.0)

    # Another one's `except`, or none, is no harm.
    def other(x: Any) -> Any:
        try:
            return loop(x)
        except KeyError:
            return x

    assert float(td.jit(other)(-5.0)) == 0
    with pytest.raises(ValueError, match="large"):
        td.jit(other)(1.0)
    with pytest.raises(ValueError, match="large"):
        td.jit(loop)(1.0)

"""Python's `if`, `and`, `assert`… on traced values, against the plain function."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.branch_programs import INPUTS, MORE, OBJECTS, program
from treadle.errors import MutationError, StructureError, TracerError

# A sample of them, and many with `make test-all`. Those with hundreds of ways through
# take seconds.
SAMPLE = 0, 1, 2, 3, 4, 6, 8, 9
SEEDS = [
    *SAMPLE,
    *(
        pytest.param(seed, marks=pytest.mark.slow)
        for seed in range(500)
        if seed not in SAMPLE
    ),
]
POINTS = np.float32(INPUTS)


def agree(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(
        np.asarray(found), np.asarray(wanted), rtol=1e-4, atol=1e-5
    )


def plain(seed: int, more: Sequence[str] = ()) -> tuple[Callable[..., Any], list[Any]]:
    """A program, and its results where nothing is traced."""
    function, _ = program(seed, more)
    return function, [function(*map(tnp.asarray, point)) for point in POINTS]


_REFUSED = "more than|a loop changed `items`|may be caught around that"


def compiled(function: Any, *args: Any) -> Any:
    """What it gives; skips the test if there are too many ways through, or a loop
    appends to a list."""
    try:
        return function(*args)
    except (TracerError, MutationError) as error:
        refused = re.search(_REFUSED, str(error))
        assert refused, error
        pytest.skip(refused[0])


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed: int) -> None:
    function, wanted = plain(seed)
    jitted = td.jit(function)
    for point, expected in zip(POINTS, wanted, strict=True):
        agree(compiled(jitted, *point), expected)


# Closures that bind names of the function around them, and other words.
MORE_SEEDS = [
    *(9003, 9013, 9020),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(500)),
]
OBJECT_SEEDS = [
    *(2, 4, 5, 8, 11, 17),
    *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 80)),
]


@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_random_programs_of_more_words(seed: int) -> None:
    _agrees(seed, MORE)


@pytest.mark.parametrize("seed", OBJECT_SEEDS)
def test_random_programs_of_objects_and_errors(seed: int) -> None:
    _agrees(seed, OBJECTS)


def _agrees(seed: int, more: Sequence[str]) -> None:
    function, wanted = plain(seed, more)
    jitted = td.jit(function)
    for point, expected in zip(POINTS, wanted, strict=True):
        agree(compiled(jitted, *point), expected)
    if seed % 2:
        agree(compiled(td.vmap(function), *POINTS.T), np.stack(wanted))
        return
    point = POINTS[seed % len(POINTS)]
    wanted = td.grad(lambda x, y: function(x, y) * 1.0, (0, 1))(*point)
    agree(compiled(td.jit(td.grad(function, (0, 1))), *point), wanted)


def scaled_until(x: Any, y: Any) -> Any:
    n = 0
    while (x := x * 0.5) > y:
        n += 1
        if n > 3:
            break
    else:
        x = x + 10
    return x + n


def returned_below_else(x: Any, y: Any) -> Any:
    for i in range(2):
        while x < 3 and y > 0:
            x = abs(x) * 1.5 + 0.1
            if x > 2.5:
                break
        else:
            if y > 1:
                return x * 100
            x = x * 0.1
        y = y - i
    return x + y


@pytest.mark.parametrize("function", [scaled_until, returned_below_else])
def test_loops_with_names_in_tests_and_else(function: Callable[..., Any]) -> None:
    points = [*POINTS, np.float32([9.0, 0.7]), np.float32([2.9, 2.0])]
    for point in points:
        wanted = function(*map(tnp.asarray, point))
        agree(td.jit(function)(*point), wanted)
        slope = td.grad(lambda x, y: function(x, y) * 1.0)(*point)
        agree(td.jit(td.grad(function))(*point), slope)


@pytest.mark.parametrize("seed", SEEDS[::4])
def test_random_programs_of_many_examples(seed: int) -> None:
    function, wanted = plain(seed)
    agree(compiled(td.vmap(function), *POINTS.T), np.stack(wanted))
    agree(compiled(td.jit(td.vmap(function)), *POINTS.T), np.stack(wanted))


@pytest.mark.parametrize("seed", SEEDS[1::4])
def test_gradients_of_random_programs(seed: int) -> None:
    function, _ = plain(seed)
    for point in POINTS[:2]:
        wanted = td.grad(lambda x, y: function(x, y) * 1.0, (0, 1))(*point)
        agree(compiled(td.jit(td.grad(function, (0, 1))), *point), wanted)
        agree(compiled(td.grad(td.jit(function), (0, 1)), *point), wanted)


@pytest.mark.parametrize("seed", SEEDS[2::8])
def test_random_programs_as_loop_bodies(seed: int) -> None:
    function, wanted = plain(seed)

    def loop(points: Any) -> Any:
        return td.scan(lambda c, p: (c, function(p[0], p[1]) * 1.0), 0.0, points)[1]

    agree(compiled(loop, POINTS), np.stack(wanted))
    agree(compiled(td.jit(loop), POINTS), np.stack(wanted))


def steps(x: Any) -> Any:
    if x > 2:
        return x * x
    if x < 0:
        return -x
    return 1.0


@pytest.mark.parametrize(
    "transform",
    [
        td.jit,
        lambda f: td.remat(f),
        lambda f: td.jit(td.remat(f)),
        lambda f: lambda x: td.cond(x > -100, f, lambda x: x, x),
        lambda f: td.jit(lambda x: td.cond(x > -100, f, lambda x: x, x)),
        lambda f: lambda x: td.vmap(f)(tnp.stack([x, x]))[1],
        lambda f: td.jit(lambda x: td.vmap(td.jit(f))(tnp.stack([x, x]))[1]),
        lambda f: (
            lambda x: td.while_loop(
                lambda c: c[1] < 1, lambda c: (f(c[0]), c[1] + 1), (x, 0)
            )[0]
        ),
        lambda f: lambda x: td.fori_loop(0, 1, lambda i, c: f(c), x),
        lambda f: lambda x: td.jvp(td.jit(f), (x,), (1.0,))[0],
        lambda f: td.jit(lambda x: td.linearize(f, x)[0]),
        lambda f: td.jit(lambda x: td.vjp(f, x)[0]),
    ],
)
def test_under_each_transform(transform: Callable[..., Any]) -> None:
    for x in (3.0, -2.0, 1.0):
        agree(transform(steps)(x), steps(x))


def test_a_rule_may_branch() -> None:
    @td.custom_jvp
    def f(x: Any) -> Any:
        return x * x if x > 0 else x

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (dx,) = primals, tangents
        return f(x), 10 * dx if x > 0 else -dx

    for transform in (lambda g: g, td.jit):
        assert [float(transform(td.grad(f))(x)) for x in (2.0, -2.0)] == [10, -1]
    assert td.vmap(td.grad(f))(tnp.array([2.0, -2.0])).tolist() == [10, -1]


def test_each_question_is_asked_once() -> None:
    asked = []

    def f(x: Any) -> Any:
        y = x if x > 0 else -x
        asked.append(1) if False else None
        return y + 1 if x > 0 else y - 1

    with td.disable_branches("statements"):
        graph = td.jit(f).graph(1.0)
    assert [eq.op.name for eq in graph.equations].count("cond") == 1
    assert (float(td.jit(f)(2.0)), float(td.jit(f)(-2.0))) == (3, 1)


def test_each_result_of_an_operation_is_a_question_of_its_own() -> None:
    def f(x: Any) -> Any:
        a, b = td.cond(x > 0, lambda: (x > 1, x < 5), lambda: (x < -1, x > -5))
        y = x if a else -x
        return y + 10 if b else y

    for x in (0.5, 2.0, 7.0, -0.5, -2.0, -7.0):
        agree(td.jit(f)(x), f(tnp.asarray(x)))


def test_a_question_whose_answer_changes_is_asked_again() -> None:
    answers = iter([True, False])

    def f(x: Any) -> Any:
        def ask() -> Any:
            kind = td.ShapeDtype((), bool)
            return td.io_callback(lambda: next(answers), kind)

        first = x + 1 if ask() else x
        return first + 10 if ask() else first

    with td.disable_branches("statements"):
        assert float(td.jit(f)(1.0)) == 2


class Numbered(Exception):
    def __init__(self, number: int) -> None:
        super().__init__("a number")
        self.number = number


def test_errors_that_look_alike_are_not_mixed_up() -> None:
    def raising(number: int) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            if x > 0:
                raise Numbered(number)
            return x if x > -5 else -x

        return td.jit(f)

    for number, function in enumerate([raising(0), raising(1)]):
        with pytest.raises(Numbered) as error:
            function(1.0)
        assert error.value.number == number


def test_what_comes_before_is_written_once() -> None:
    def f(x: Any) -> Any:
        y = tnp.sin(x)
        return y if y > 0 else y * tnp.ones(3).sum()

    names = [eq.op.name for eq in td.jit(f).graph(1.0).equations]
    assert names == ["sin", "gt", "convert", "cond"]


def test_effects_of_the_way_that_is_taken() -> None:
    seen: list[float] = []

    def f(x: Any) -> Any:
        if x > 0:
            td.io_callback(lambda v: seen.append(float(v)), None, x)
            return x
        return -x

    td.jit(f)(-1.0)
    assert seen == []
    td.jit(f)(2.0)
    td.vmap(f)(tnp.array([-1.0, 3.0, -2.0, 4.0]))
    assert seen == [2, 3, 4]


class TooLarge(Exception):
    pass


def root(x: Any) -> Any:
    assert x >= 0, "no real root"
    if x > 100:
        raise TooLarge(f"at most {100}")
    return tnp.sqrt(x)


def test_what_a_way_raises_is_raised_when_it_is_taken() -> None:
    for transform in (
        td.jit,
        lambda f: td.jit(td.grad(f)),
        lambda f: td.grad(td.jit(f)),
    ):
        transform(root)(4.0)
        with pytest.raises(AssertionError, match="no real root"):
            transform(root)(-4.0)
        with pytest.raises(TooLarge, match="at most 100"):
            transform(root)(101.0)
    for rows in (td.vmap(root), td.jit(td.vmap(root))):
        assert rows(tnp.array([4.0, 9.0])).tolist() == [2, 3]
        with pytest.raises(TooLarge):
            rows(tnp.array([4.0, 900.0, 9.0]))


def test_errors_of_the_library_are_raised_at_once() -> None:
    def f(x: Any) -> Any:
        return x if x > 0 else tnp.ones(3) @ tnp.ones(4)

    with pytest.raises(ValueError) as error:
        td.jit(f)(1.0)
    assert "taken as False" in error.value.__notes__[0]


def test_a_function_that_always_raises() -> None:
    def f(x: Any) -> Any:
        if x > 0:
            raise KeyError("positive")
        raise ValueError("not positive")

    with pytest.raises((KeyError, ValueError)):
        td.jit(f)(1.0)


def test_what_differs_from_run_to_run_is_found() -> None:
    def f(x: Any) -> Any:
        y = x * random.random()
        return y if y > 0 else -y

    with pytest.raises(TracerError, match="did something else when") as error:
        td.jit(f)(1.0)
    assert "test_branches.py" in str(error.value)


def loop(x: Any) -> Any:
    while x < 100:
        x = x * 2
    return x


def many(x: Any) -> Any:
    for i in range(7):
        x = x * 2 if x > i else x
        yield_nothing = x > -i
        x = x + 1 if yield_nothing else x
    return x


@pytest.mark.parametrize(("function", "what"), [(loop, "decisions"), (many, "ways")])
def test_too_many(function: Any, what: str) -> None:
    with (
        td.disable_branches("statements"),
        pytest.raises(TracerError, match=f"more than .* {what}") as error,
    ):
        td.jit(function)(1.0)
    assert "test_branches.py" in str(error.value)
    assert "td.while_loop" in str(error.value)


def test_results_must_be_alike() -> None:
    def keys(x: Any) -> Any:
        return {"a": x} if x > 0 else {"b": x}

    def shapes(x: Any) -> Any:
        return x, tnp.ones(2) if x > 0 else tnp.ones(3)

    def stacked(x: Any) -> Any:
        return td.scan(lambda c, _: (c, {"a": c} if c > 0 else (c,)), x, None, length=2)

    for function in (keys, stacked):
        with pytest.raises(StructureError, match=r"(?s)'a'.*taken as True.*taken as"):
            td.jit(function)(1.0)
    with pytest.raises(TypeError, match=r"(?s)result\[1\].*True.*f32\[2\].*f32\[3\]"):
        td.jit(shapes)(1.0)


def test_the_truth_of_many_elements() -> None:
    def f(x: Any) -> Any:
        return 1 if x > 0 else 2

    with pytest.raises(TracerError, match=r"(?s)f32|bool\[3\] is ambiguous.*any"):
        td.jit(f)(tnp.ones(3))
    assert int(td.jit(f)(tnp.ones((1, 1)))) == 1
    assert int(td.jit(lambda x: 1 if x else 2)(tnp.array([0]))) == 2


def test_the_report_names_the_lines() -> None:
    def f(x: Any) -> Any:
        return td.scan(lambda c, _: (steps(c), None), x + 1, None, length=2)[0]

    jitted = td.jit(f)
    jitted(1.0)
    (found,) = jitted.report().programs[0].branches
    assert found.ways == 3 and len(found.lines) == 2
    assert "3 ways through" in str(jitted.report())
    assert "test_branches.py" in str(jitted.report())


def test_it_can_be_turned_off() -> None:
    with td.disable_branches(), pytest.raises(TracerError, match=r"td\.cond"):
        td.jit(lambda x: x if x > 0 else -x)(1.0)
    with td.disable_branches(), pytest.raises(TracerError, match=r"td\.cond"):
        td.vmap(lambda x: x if x > 0 else -x)(tnp.ones(2))


def test_sizes_that_vary() -> None:
    @td.jit
    def f(x: Any) -> Any:
        return x / x.shape[0] if x.sum() > 0 else x[::-1]

    for n in (3, 5, 8, 1, 13):
        x = np.arange(n, dtype="float32") + 1
        agree(f(x), x / n)
        agree(f(-x), -x[::-1])
    assert f.report().traces == 2


def test_dtypes_of_numbers() -> None:
    def f(x: Any) -> Any:
        return 1 if x > 0 else x

    assert td.jit(f)(2.0).dtype == "float32"
    assert td.jit(f)(tnp.asarray(2.0, "bfloat16")).dtype == "bfloat16"
    assert td.jit(f)(tnp.asarray(-2)).dtype == "int32"


def test_a_side_may_give_what_was_there_before() -> None:
    choose = td.jit(lambda c, x, y: x if c > 0 else y)
    x, y = np.float32([1, 2]), np.float32([3, 4])
    np.testing.assert_array_equal(choose(1, x, y), x)
    np.testing.assert_array_equal(choose(-1, x, y), y)


def test_python_s_numbers_take_the_other_side_s_dtype() -> None:
    def function(x: Any) -> Any:
        return 1 if x > 0 else x

    for x in (np.float32(2.5), np.float32(-2.5)):
        found = td.jit(function)(x)
        assert np.asarray(found).dtype == np.float32
        assert float(found) == (1 if x > 0 else x)
        # Nor is it as weak as the number.
        assert (td.jit(function)(x) + np.float16(1)).dtype == np.float32


def test_sides_of_two_dtypes_are_an_error() -> None:
    def function(x: Any) -> Any:
        return x.astype("int32") if x > 0 else x

    with pytest.raises(TypeError, match="must have one type"):
        td.jit(function)(np.float32(1))


def test_what_is_before_the_question_is_done_once() -> None:
    seen: list[float] = []

    def note(v: Any) -> None:
        seen.append(float(v))

    def function(x: Any) -> Any:
        td.io_callback(note, None, x)
        if x > 0:
            x = x + 1
        td.io_callback(note, None, x)
        return x * 2 if x > 5 else x

    assert float(td.jit(function)(np.float32(7))) == 16
    assert seen == [7, 8]


def test_a_function_that_branches_may_take_values_from_around_it() -> None:
    def function(w: Any, x: Any) -> Any:
        def loss(x: Any) -> Any:
            return (x * w).sum() if x[0] > 0 else (x * w * w).sum()

        return td.grad(loss)(x)

    w, x = np.float32(3), np.float32([1, 2])
    np.testing.assert_allclose(td.jit(function)(w, x), [3, 3])
    np.testing.assert_allclose(td.jit(function)(w, -x), [9, 9])

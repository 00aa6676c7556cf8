"""What values are made of: views, constants, choices, bands, beside NumPy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.passes.shown import opened
from treadle.control.spelled_values import (
    Condition,
    Seen,
    above,
    band,
    base,
    choice,
    conditions,
    constant,
    factor,
    origin,
)
from treadle.dims import is_dim
from treadle.ops.arithmetic import add, div
from treadle.trace.value import typeof

X = np.zeros((3, 4), np.float32)
NOTED = threading.local()


def of(function: Any, ask: Any, *args: Any) -> Any:
    """What is known of a value while it is traced."""

    def told(*xs: Any) -> Any:
        value = function(*xs)
        NOTED.answer = ask(value)
        return value

    traced(told, *(args or (X,)))
    return NOTED.answer


def seen(x: Any) -> Seen:
    """A value whose axes are named by letters."""
    return Seen(x, tuple("abcdef"[: typeof(x).ndim]))


def test_the_origin_of_values() -> None:
    op, args, params = of(lambda x: x + 2.0, origin)
    assert op is add and args[1] is not args[0] and params == {}
    assert origin(X) == (None, (), {})
    assert of(tnp.cumsum, origin)[0] is None
    assert seen(X).of(X).axes == ("a", "b")
    assert seen(X).of(np.float32(1)).axes == ()


@pytest.mark.parametrize(
    ("view", "axes"),
    [
        (lambda x: x.T, "ba"),
        (lambda x: tnp.transpose(x[None], (2, 0, 1)), "ca"),
        (lambda x: x[:, None], "ac"),
        (lambda x: x[None, :, :, None], "bc"),
        (lambda x: tnp.broadcast_to(x, (5, 3, 4)), "bc"),
        (lambda x: x, "ab"),
        (lambda x: tnp.expand_dims(x, 0).T[:, :, 0], "ba"),
    ],
)
def test_views_of_the_same_elements(view: Any, axes: str) -> None:
    found = of(view, lambda v: base(seen(v)))
    assert found.axes == tuple(axes)
    assert typeof(found.value).shape == (3, 4)


def test_axes_along_which_a_view_repeats() -> None:
    column = X[:, :1]
    found = of(lambda x: tnp.broadcast_to(x, (3, 4)), lambda v: base(seen(v)), column)
    assert (typeof(found.value).shape, found.axes) == ((3, 1), ("a", None))
    found = of(lambda x: x[:, 0], lambda v: base(seen(v)), column)
    assert found.axes in (("a", None), ("a",))
    # A length of 1 that is no other.
    found = of(lambda x: x.reshape(1, 3, 1), lambda v: above(seen(v)), column)
    assert found is not None and found.axes[0] == "b"
    # Elements in other rows are no view of that kind.
    assert of(lambda x: x.reshape(4, 3), lambda v: above(seen(v))) is None
    assert of(lambda x: x.reshape(12), lambda v: above(seen(v))) is None
    assert of(lambda x: x.reshape(3, 2, 2), lambda v: above(seen(v))) is None
    assert of(lambda x: x.reshape(1, 12), lambda v: above(seen(v))) is None
    assert of(lambda x: x + 1.0, lambda v: above(seen(v))) is None
    one = of(lambda x: x.reshape(1, 1, 3), lambda v: above(seen(v)), X[0, :3])
    assert one is not None and one.axes == ("c",)
    assert of(lambda x: x.reshape(1, 1), lambda v: above(seen(v)), X[0, :1]) is not None


def test_constants_are_one_number() -> None:
    assert constant(3) == 3 and constant(2.5) == 2.5
    assert constant(np.float32(2)) == 2
    assert constant(np.array(7)) == 7 and constant(np.array([7])) is None
    assert constant(tnp.asarray(4.0)) == 4 and constant(tnp.ones(3)) is None
    assert constant("a") is None
    assert of(lambda x: tnp.broadcast_to(tnp.asarray(2.0), (3,)), constant) == 2
    assert of(lambda x: x * 1.0, constant) is None


@pytest.mark.parametrize(
    "compute",
    [
        lambda c: tnp.sqrt(c) * 3 - 1,
        lambda c: 1 / c + -c,
        lambda c: (c / 3).astype("float16").astype("float32"),
        lambda c: (c * 1.9).astype("int32"),
        lambda c: (c - 5) / (c - 5),
    ],
)
def test_constants_are_computed_as_the_program_would(compute: Any) -> None:
    c = tnp.asarray(np.float32(5))
    found, wanted = of(lambda x: compute(c), constant), np.asarray(compute(c))
    assert np.array_equal(found, wanted, equal_nan=True)
    assert found.dtype == wanted.dtype


def test_only_few_steps_are_followed() -> None:
    def added(n: int) -> Any:
        c = tnp.asarray(np.float32(2))
        for _ in range(n):
            c = c + 1.0
        return c

    assert [of(lambda x, n=n: added(n), constant) for n in (1, 5, 6)] == [3, 7, None]


@pytest.mark.parametrize(
    ("number", "product", "quotient"),
    [
        (2.0, 2.0, 0.5),
        (-4, -4.0, -0.25),
        (0.0, None, None),
        (np.inf, None, None),
        (np.nan, None, None),
        (2j, None, None),
    ],
)
def test_factors(number: Any, product: Any, quotient: Any) -> None:
    x = np.asarray(number)[()]
    assert factor(x) == product
    assert factor(x, div) == quotient
    assert factor(X) is None


def chosen(function: Any, *args: Any) -> Any:
    """The numbers that a value is where its condition holds, and where not; and the
    condition as an array."""
    found = of(function, lambda v: choice(seen(v)), *args)
    return None if found is None else (found.yes, found.no)


MASK = np.arange(12).reshape(3, 4) % 2 == 0


@pytest.mark.parametrize(
    ("function", "yes", "no"),
    [
        (lambda m: m, True, False),
        (lambda m: ~m, False, True),
        (lambda m: tnp.where(m, 0.0, -1e9), 0, -1e9),
        (lambda m: tnp.where(~m, 0.0, -1e9), -1e9, 0),
        (lambda m: m.astype("float32"), 1, 0),
        (lambda m: (1.0 - m.astype("float32")) * -3.0, 0, -3),
        (lambda m: m.astype("float32") == 0, False, True),
        (lambda m: m.astype("int32") > 0, True, False),
        (lambda m: m.astype("int32") >= 2, False, False),
        (lambda m: tnp.where(m.astype("float32") < 1, 5.0, 6.0), 6, 5),
        (lambda m: -(m.astype("float32") + 1.0)[None].T, -2, -1),
        (lambda m: m.astype("float32") / 4.0 != 0.25, False, True),
    ],
)
def test_choices_between_two_constants(function: Any, yes: Any, no: Any) -> None:
    assert chosen(function, MASK) == (yes, no)
    found = np.asarray(function(tnp.asarray(MASK)))
    values = np.where(MASK, yes, no)
    assert np.array_equal(
        found.reshape(-1), (values.T if found.ndim == 3 else values).reshape(-1)
    )


@pytest.mark.parametrize(
    "function",
    [
        lambda m: m.astype("float32") + m.astype("float32"),
        lambda m: tnp.where(m, m.astype("float32"), 2.0),
        lambda m: tnp.sin(m.astype("float32")),
        lambda m: tnp.cumsum(m.astype("float32"), 0) + 1.0,
    ],
)
def test_what_is_no_choice(function: Any) -> None:
    assert chosen(function, MASK) is None


def test_a_comparison_is_a_condition_of_its_own() -> None:
    found = of(lambda x: x > 0, lambda v: choice(seen(v)))
    assert (found.yes, found.no) == (True, False)
    assert typeof(found.condition.value).dtype == np.bool_


def held(function: Any, negated: bool, *args: Any) -> list[bool]:
    """How many conditions there are, and which of them must not hold."""
    found = of(function, lambda v: conditions(seen(v), negated), *args)
    return [c.negated for c in found]


def test_conditions_that_must_all_hold() -> None:
    both = lambda a, b: a & b  # noqa: E731
    assert held(both, False, MASK, MASK) == [False, False]
    assert held(both, True, MASK, MASK) == [True]
    assert held(lambda a, b: ~(a & b), True, MASK, MASK) == [False, False]
    assert held(lambda a, b: ~a & b, False, MASK, MASK) == [True, False]
    assert held(lambda a, b: (a & b).astype("float32") == 0, False, MASK, MASK) == [
        True
    ]
    assert (
        held(lambda a, b: (a & b).astype("float32") > 0, False, MASK, MASK)
        == [False] * 2
    )
    assert held(lambda a, b, c: a & (b & ~c), False, *[MASK] * 3) == [
        False,
        False,
        True,
    ]
    assert held(lambda a, b: a | b, False, MASK, MASK) == [False]
    # What is always so says nothing about its condition.
    (always,) = of(
        lambda m: m.astype("float32") > -1, lambda v: conditions(seen(v)), MASK
    )
    assert not always.negated
    assert origin(always.seen.value)[0] is not None


def banded(function: Any, negated: bool = False, rows: int = 6) -> Any:
    """The band of a condition on places."""

    def ask(v: Any) -> Any:
        row, column = (seen(v).axes[i] for i in (0, 1))
        return band(Condition(seen(v), negated), row, column)

    return of(lambda x: function(tnp.arange(rows)[:, None], tnp.arange(5)[None]), ask)


@pytest.mark.parametrize(
    ("function", "found"),
    [
        (lambda i, j: j <= i, (None, 0)),
        (lambda i, j: j < i, (None, -1)),
        (lambda i, j: i >= j, (None, 0)),
        (lambda i, j: i > j, (None, -1)),
        (lambda i, j: j - i <= 2, (None, 2)),
        (lambda i, j: i - j < 3, (2, None)),
        (lambda i, j: i <= j + 1, (1, None)),
        (lambda i, j: -i > -j - 4, (3, None)),
        (lambda i, j: i + 3 >= j, (None, 3)),
        (lambda i, j: 2 - (i - j) > 0, (1, None)),
        (lambda i, j: i.astype("float32") >= j.astype("float32") - 1.0, (None, 1)),
    ],
)
def test_bands(function: Any, found: Any) -> None:
    assert banded(function) == found
    before, after = found
    i, j = np.arange(6)[:, None], np.arange(5)[None]
    wanted = np.ones((6, 5), bool)
    if before is not None:
        wanted &= i - j <= before
    if after is not None:
        wanted &= j - i <= after
    assert np.array_equal(function(tnp.asarray(i), tnp.asarray(j)), wanted)
    # What it is not is the band on the other side.
    other = (-after - 1, None) if before is None else (None, -before - 1)
    assert banded(function, negated=True) == other


@pytest.mark.parametrize(
    "function",
    [
        lambda i, j: j <= 2 * i,
        lambda i, j: (j <= 3) & (i >= 0),
        lambda i, j: j + 0 * i <= 3,
        lambda i, j: j == i,
        lambda i, j: i + j <= 3,
        lambda i, j: j <= i + 0.5,
        lambda i, j: j - i - i <= 2,
        lambda i, j: (j <= i).astype("float32"),
        lambda i, j: tnp.sin(i.astype("float32")) < j,
    ],
)
def test_what_is_no_band(function: Any) -> None:
    assert banded(function) is None


def test_bands_of_open_sizes() -> None:
    answers = []

    def function(x: Any) -> Any:
        n = x.shape[0]
        mask = tnp.arange(n)[:, None] >= tnp.arange(n)[None] - (n - 1)
        answers.append(band(Condition(seen(mask)), "a", "b"))
        return mask

    opened(function, ("n",), n=5)
    assert answers[-1] is not None
    before, after = answers[-1]
    assert before is None and int(after) == 4
    assert is_dim(after)

"""Effects happen exactly where a program comes by: in vectorised control flow too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import close
from tests.core.control.effects import (
    Body,
    Note,
    programs,
    python_notes,
    treadle_notes,
)
from treadle.trace.lowering import Branch, Inline, Scan, While
from treadle.trace.op import registry

WHICH, N = np.arange(5, dtype=np.int32), np.array([0, 3, 1, 5, 2], np.int32)
Y = np.linspace(-1, 1, 5, dtype=np.float32)


def plain(body: Body) -> tuple[list[list[Note]], list[Any]]:
    """What each example notes in Python, and its results."""
    every, outs = [], []
    for state in zip(WHICH.tolist(), N.tolist(), Y.tolist(), strict=True):
        seen: list[Note] = []
        outs.append(body(python_notes(seen), state))
        every.append(seen)
    return every, outs


def check(seen: list[Note], wanted: list[list[Note]]) -> None:
    for i, notes in enumerate(wanted):
        assert [s for s in seen if s[0] == i] == notes
    assert len(seen) == sum(map(len, wanted))


VALUES: dict[str, Callable[[Any], Any]] = {
    "vmap": td.vmap,
    "jit of vmap": lambda f: td.jit(td.vmap(f)),
    "vmap of jit": lambda f: td.vmap(td.jit(f)),
    "vmap in a scan": lambda f: (
        lambda i, n, y: td.tree.map(
            lambda x: x[0],
            td.scan(lambda c, _: (c, td.vmap(f)(i, n, y)), 0, None, 1)[1],
        )
    ),
    "vmap of vmap": lambda f: (
        lambda i, n, y: td.tree.map(
            lambda x: x[:, 0],
            td.jit(td.vmap(td.vmap(f)))(i[:, None], n[:, None], y[:, None]),
        )
    ),
}


@pytest.mark.parametrize("name", VALUES)
@settings(max_examples=20)
@given(body=programs())
def test_each_example_notes_what_it_does_alone(name: str, body: Body) -> None:
    wanted, outs = plain(body)
    seen: list[Note] = []
    lib = treadle_notes(seen)
    found = VALUES[name](lambda *state: body(lib, state))(WHICH, N, Y)
    check(seen, wanted)
    for column, values in zip(found, zip(*outs, strict=True), strict=True):
        np.testing.assert_allclose(column, values, rtol=1e-6)


def _total(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda i, n, y: tnp.sum(td.vmap(f)(i, n, y))


GRADIENTS: dict[str, Callable[[Any], Any]] = {
    "vmap of grad": lambda f: td.vmap(td.grad(f, 2)),
    "jit of vmap of grad": lambda f: td.jit(td.vmap(td.grad(f, 2))),
    "grad of vmap": lambda f: td.grad(_total(f), 2),
    "jit of grad of vmap": lambda f: td.jit(td.grad(_total(f), 2)),
}


@pytest.mark.parametrize("name", GRADIENTS)
@settings(max_examples=20)
@given(body=programs(loops=False))
def test_gradients_note_what_values_do(name: str, body: Body) -> None:
    wanted, _ = plain(body)
    seen: list[Note] = []
    lib = treadle_notes(seen)
    GRADIENTS[name](lambda *state: body(lib, state)[2])(WHICH, N, Y)
    check(seen, wanted)


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])
@settings(max_examples=20)
@given(body=programs(reverse=False))
def test_forward_derivatives_note_what_values_do(wrap: Any, body: Body) -> None:
    wanted, _ = plain(body)
    seen: list[Note] = []
    lib = treadle_notes(seen)
    f = wrap(td.vmap(lambda *state: body(lib, state)[2]))
    td.jvp(f, (WHICH, N, Y), (None, None, np.ones_like(Y)))
    check(seen, wanted)


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])
@settings(max_examples=20)
@given(body=programs(reverse=False))
def test_linearizing_notes_once(wrap: Any, body: Body) -> None:
    wanted, _ = plain(body)
    seen: list[Note] = []
    lib = treadle_notes(seen)

    def f(y: Any) -> Any:
        return td.vmap(lambda *state: body(lib, state)[2])(WHICH, N, y)

    try:
        _, linear = td.linearize(wrap(f), Y)
    except TypeError as error:
        # A loop that asks can't be run again for its linear part.
        assert "uses results of `td.io_callback`" in str(error)
        return
    linear(np.ones_like(Y))
    check(seen, wanted)


@settings(max_examples=20)
@given(body=programs())
def test_compiled_programs_keep_their_order(body: Body) -> None:
    wanted: list[Note] = []
    body(python_notes(wanted), (0, 5, 0.5))
    seen: list[Note] = []
    lib = treadle_notes(seen)
    td.jit(lambda *state: body(lib, state))(np.int32(0), np.int32(5), np.float32(0.5))
    assert seen == wanted


both = pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["eager", "jit"])


def noter(seen: list[Any], tag: str) -> Callable[[Any], None]:
    return lambda x: td.debug.callback(lambda x: seen.append((tag, float(x))), x)


@both
def test_examples_come_in_the_order_of_their_indices(wrap: Any) -> None:
    seen: list[Any] = []
    a, b = noter(seen, "a"), noter(seen, "b")
    f = td.vmap(lambda x: td.cond(x > 0, a, b, x))
    wrap(f)(np.array([1.0, -2.0, 3.0, -4.0], np.float32))
    assert seen == [("b", -2.0), ("b", -4.0), ("a", 1.0), ("a", 3.0)]


@both
def test_a_predicate_that_is_the_same_for_all_runs_one_branch(wrap: Any) -> None:
    """Not even what has no effect is computed in the other."""
    seen: list[Any] = []

    def branch(tag: str) -> Callable[[Any], Any]:
        def host(x: Any) -> Any:
            seen.append(tag)
            return x

        return lambda x: td.pure_callback(host, x, x, vmap_method="broadcast_all")

    def f(flag: Any, xs: Any) -> Any:
        return td.vmap(lambda x: td.cond(flag > 0, branch("a"), branch("b"), x))(xs)

    wrap(f)(1, np.ones(3, np.float32))
    wrap(f)(0, np.ones(3, np.float32))
    assert seen == ["a", "b"]
    seen.clear()

    def step(x: Any, k: Any) -> Any:
        return td.cond(k % 2 == 0, branch("a"), branch("b"), x), None

    g = td.vmap(lambda x: td.scan(step, x, np.arange(3))[0])
    wrap(g)(np.ones(2, np.float32))
    assert seen == ["a", "b", "a"]


@both
@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_rules_act_where_their_branch_is_taken(wrap: Any, kind: str) -> None:
    seen: list[Any] = []

    def double(x: Any) -> Any:
        return 2 * x

    if kind == "custom_jvp":
        g = td.custom_jvp(double)
        g.defjvp(lambda x, dx: (noter(seen, "rule")(x[0]), (2 * x[0], 2 * dx[0]))[1])
    else:
        g = td.custom_vjp(double)
        g.defvjp(
            lambda x: (2 * x, x),
            lambda x, ct: (noter(seen, "rule")(x), (2 * ct,))[1],
        )

    def f(x: Any) -> Any:
        return td.cond(x > 0, g, lambda x: 3 * x, x)

    x = np.array([1.0, -2.0, 3.0], np.float32)
    gradients = {
        "inside": td.vmap(td.grad(f)),
        "outside": td.grad(lambda x: td.vmap(f)(x).sum()),
        "linearized": lambda x: td.vjp(
            lambda t: td.vmap(lambda x, t: td.linearize(f, x)[1](t))(x, t), x
        )[1](np.ones_like(x))[0],
    }
    if kind == "custom_vjp":
        del gradients["linearized"]  # it has only a reverse rule
    for gradient in gradients.values():
        seen.clear()
        close(wrap(gradient)(x), np.array([2, 3, 2], np.float32))
        assert sorted(set(seen)) == [("rule", 1.0), ("rule", 3.0)]


@both
def test_a_loop_is_not_entered_where_its_branch_is_not_taken(wrap: Any) -> None:
    seen: list[Any] = []
    note = noter(seen, "body")

    def count(x: Any) -> Any:
        return td.while_loop(
            lambda c: (c != 0) & (c > -20), lambda c: (note(c), c - 1)[1], x
        )

    f = td.vmap(lambda x: td.cond(x > 0, count, lambda x: x, x))
    close(wrap(f)(np.array([2.0, -0.5], np.float32)), np.array([0, -0.5], np.float32))
    assert seen == [("body", 2.0), ("body", 1.0)]


def test_a_product_taken_out_of_a_loop_leaves_its_effects() -> None:
    seen: list[Any] = []
    note = noter(seen, "x")

    def f(w: Any, xs: Any) -> Any:
        def step(h: Any, x: Any) -> Any:
            td.cond(x[0] > 0, lambda: note(x[0]), lambda: None)
            return h + x @ w, None

        return td.scan(step, tnp.zeros(2), xs)[0]

    xs = np.array([[1, 2], [-3, 4], [5, 6]], np.float32)
    td.jit(f)(np.ones((2, 2), np.float32), xs)
    assert seen == [("x", 1.0), ("x", 5.0)]


def test_the_derivative_of_a_loop_that_asks() -> None:
    def f(x: Any) -> Any:
        return td.while_loop(
            lambda c: c < 9, lambda c: c + td.io_callback(lambda: np.float32(3), c), x
        )

    with pytest.raises(TypeError, match=r"uses results of `td\.io_callback`"):
        td.linearize(td.jit(f), 1.0)
    close(td.jvp(td.jit(f), (1.0,), (1.0,)), (np.float32(10), np.float32(1)))


def test_what_may_act_has_a_guard() -> None:
    for op in registry.values():
        if op.effect or isinstance(op.lowering, Scan | While | Branch | Inline):
            assert op.guard is not None, op.name

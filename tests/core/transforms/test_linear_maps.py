"""Pullbacks and linearizations as pytrees: returned, passed, stacked, carried."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import JAX, TREADLE, agree, array, close
from tests.refused import refused
from treadle.errors import StructureError


def field(lib: Any) -> Any:
    return lambda w, x: lib.np.tanh(lib.np.sin(x @ w) @ w)


W, X = array(3, 3), array(2, 3)


@td.custom_vjp
def tripled(x: Any) -> Any:
    return tnp.sin(x)


tripled.defvjp(
    lambda x: (tnp.sin(x), x), lambda x, ct: (3.0 * ct * tnp.cos(x) * x.shape[0],)
)


def ruled(x: Any) -> Any:
    return tripled(x * x)


def test_from_a_jitted_function_and_into_one() -> None:
    wanted = jax.vjp(field(JAX), W, X)[1](X)
    made = td.jit(lambda w, x: td.vjp(field(TREADLE), w, x)[1])(W, X)
    close(made(X), wanted)
    close(td.jit(lambda back, ct: back(ct))(made, X), wanted)
    linear = td.jit(lambda w, x: td.linearize(field(TREADLE), w, x)[1])(W, X)
    wanted = jax.jvp(field(JAX), (W, X), (W, X))[1]
    close(linear(W, X), wanted)
    close(td.jit(lambda linear, w, x: linear(w, x))(linear, W, X), wanted)


@pytest.mark.parametrize("function", [lambda x: tnp.sin(x) * x, ruled])
def test_one_program_for_all_points(function: Any) -> None:
    """Values at the point, small ones too, are leaves; rules leave nothing behind."""
    call = td.jit(lambda back, ct: back(ct)[0])
    for x in (0.5, 1.5, -2.0):
        point = np.full(1, x, np.float32)
        out, back = td.vjp(function, point)
        close(call(back, out), back(out)[0])
    assert len(call.report().programs) == 1
    slope = td.jit(lambda linear, t: linear(t))
    for number in (0.5, 1.5, -2.0):
        slope(td.linearize(lambda x: tnp.sin(x) * x, number)[1], 1.0)
    assert len(slope.report().programs) == 1


@pytest.mark.parametrize("function", [lambda x: x.sum(0) / x.shape[0], ruled])
def test_sizes_that_are_open(function: Any) -> None:
    make = td.jit(lambda x: td.vjp(function, x)[1])
    for n in (2, 3, 5, 4):
        x = array(n, 2)
        out, back = td.vjp(function, x)
        close(make(x)(out), back(out))
    assert len(make.report().programs) == 2


def test_stacked_by_vmap_and_scan() -> None:
    def build(lib: Any) -> Any:
        def run(w: Any, xs: Any) -> Any:
            def row(x: Any) -> Any:
                return lib.vjp(lambda w: field(lib)(w, x), w)

            out, backs = lib.vmap(row)(xs)
            first = lib.vmap(lambda back, ct: back(ct))(backs, out)
            out, backs = lib.scan(lambda c, x: (c, row(x)), 0, xs)[1]
            last = lib.scan(lambda c, s: (c + s[0](s[1])[0], None), 0 * w, (backs, out))
            return first, last[0]

        return run

    agree(build, W, X)
    agree(lambda lib: lib.jit(build(lib)), W, X)


def test_carried_by_a_loop() -> None:
    def at_point(x: Any) -> Any:
        return td.linearize(lambda y: y * y, x)[1]

    def step(linear: Any, x: Any) -> Any:
        return at_point(x), linear(np.float32(1))

    rows = array(4)
    _, slopes = td.scan(step, at_point(np.float32(3)), rows)
    close(slopes, 2 * np.array([3, *rows[:-1]], np.float32))


def test_differentiated() -> None:
    """The leaves are values like others: derivatives flow through them."""

    def build(lib: Any) -> Any:
        @lib.jit
        def back_at(x: Any) -> Any:
            return lib.vjp(lambda y: lib.np.sin(y) * y, x)[1]

        def loss(x: Any) -> Any:
            return lib.np.sum(back_at(x)(lib.np.cos(x))[0])

        return lib.grad(loss)

    agree(build, array(3))
    agree(lambda lib: lib.vmap(build(lib)), array(2, 3))


def test_nothing_that_is_not_used() -> None:
    """The leaves of a pullback are what it reads."""

    def loss(x: Any) -> Any:
        return x * x, tnp.exp(x) * tnp.sin(x)

    _, back, aux = td.vjp(loss, X, has_aux=True)
    assert len(td.tree.leaves(back)) == 1
    close(aux, np.exp(X) * np.sin(X))
    close(back(X), (2 * X * X,))


def test_memory_given_up() -> None:
    back = td.jit(lambda x: td.vjp(lambda x: tnp.sin(x) * x, x)[1])(tnp.ones(100))
    call = td.jit(lambda back, ct: back(ct)[0], donate="back")
    close(call(back, tnp.ones(100)), tnp.sin(1.0) + tnp.cos(tnp.ones(100)))
    refused(lambda: back(tnp.ones(100)), td.errors.DonatedError, "was donated")


def test_numbers_of_numpy_may_change_afterwards() -> None:
    x = array(3)
    before = x.copy()
    _, back = td.vjp(lambda x: x * x, x)
    x[:] = 0
    close(back(np.ones(3, np.float32)), (2 * before,))


def test_integers_keys_and_constants() -> None:
    _, back = td.vjp(lambda p: p["x"] * p["n"], {"x": 2.0, "n": 3})
    again = td.jit(lambda back: back)(back)
    assert again(1.0) == ({"x": 3.0, "n": None},)
    _, back = td.vjp(lambda x: (x, 3), 2.0)
    assert td.jit(lambda back: back((1.0, None)))(back) == (1.0,)
    _, linear = td.linearize(lambda x, n: (x, n), 2.0, 3)
    assert td.jit(lambda linear: linear(1.0, None))(linear) == (1.0, None)


def test_aux() -> None:
    def build(lib: Any) -> Any:
        def f(x: Any) -> Any:
            return lib.np.sin(x), {"seen": x * 3, "n": lib.np.array([1, 2])}

        def run(x: Any) -> Any:
            out, linear, aux = lib.linearize(f, x, has_aux=True)
            pushed = lib.jvp(f, (x,), (x,), has_aux=True)
            back = lib.vjp(f, x, has_aux=True)
            return out, linear(x), aux, pushed, back[0], back[1](x), back[2]

        return run

    agree(build, array(3))
    agree(lambda lib: lib.jit(build(lib)), array(3))


# Misuse -------------------------------------------------------------------------------


def test_one_for_each_example() -> None:
    backs = td.vmap(lambda x: td.vjp(tnp.sin, x)[1])(array(4))
    refused(
        lambda: backs(array(4)),
        TypeError,
        "the pullback of sin holds f32[4] where f32[] belongs",
        "td.vmap(lambda pullback, ct: pullback(ct))(pullbacks, cts)",
    )
    linears = td.vmap(lambda x: td.linearize(tnp.sin, x)[1])(array(4))
    refused(lambda: linears(array(4)), TypeError, "td.vmap(lambda linear, dx: ")


def test_changed() -> None:
    back = td.vjp(tnp.sin, 1.0)[1]
    shapes = td.tree.map(lambda x: "no array", back)
    refused(lambda: shapes(1.0), TypeError, "holds a value of type str")


def test_wrong_cotangents() -> None:
    _, back = td.vjp(lambda x: (x, x), np.ones(2, np.float32))
    for wrapped in (back, td.jit(lambda: back)()):
        refused(lambda b=wrapped: b(1.0, 2.0), TypeError, "takes one cotangent, got 2")
        refused(lambda b=wrapped: b(1.0), StructureError, "another structure")
        refused(lambda b=wrapped: b((1.0, X)), ValueError, "has type f32[]")


@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_shown() -> None:
    _, back = td.vjp(tnp.sin, X)
    assert repr(back) == "<pullback of sin of (f32[2,3],) in 1 operations>"
    kept: list[Any] = []
    td.jit(lambda x: kept.append(td.vjp(tnp.sin, x)[1]))(X)
    with pytest.raises(td.errors.LeakError):
        kept[0](X)

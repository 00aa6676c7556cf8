"""custom_root, custom_linear_solve and fixed_point: JAX, finite differences, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import JAX, TREADLE, array, check, close
from tests.refused import refused
from treadle.errors import StructureError

MODES = ["jit", "jvp", "grad", "jit of grad", "grad of grad", "jvp of grad"]
MODES += ["vmap", "vmap over the first", "vmap of grad", "grad of vmap"]
QUICK = ("jit of grad",)


def newton(lib: Any) -> Any:
    """Roots of a cubic, of an argument and of what is closed over."""

    def solve(f: Any, x: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            return x - f(x) / lib.jvp(f, (x,), (lib.np.ones_like(x),))[1]

        return lib.fori_loop(0, 12, step, x)

    def divide(g: Any, y: Any) -> Any:
        return y / g(lib.np.ones_like(y))

    def run(a: Any, b: Any) -> Any:
        return lib.custom_root(
            lambda x: x**3 + x * (1 + b**2) - lib.np.sin(a), a * 0, solve, divide
        )

    return run


def richardson(lib: Any, turned: Any) -> Any:
    """A linear equation, in a tree, solved by an iteration."""

    def solve(matvec: Any, b: Any) -> Any:
        def step(i: Any, x: Any) -> Any:
            error = matvec(x)
            return {k: x[k] + 0.4 * (b[k] - error[k]) for k in x}

        return lib.fori_loop(0, 60, step, {k: 0 * b[k] for k in b})

    def run(a: Any, b: Any) -> Any:
        m = lib.np.tanh(a) * 0.3
        m = (m + m.T if turned == "symmetric" else m) + lib.np.eye(3, dtype=m.dtype)

        def matvec(x: Any) -> Any:
            return {"u": m @ x["u"], "v": 2.0 * x["v"]}

        given = {"u": lib.np.sin(b), "v": b}
        if turned == "symmetric":
            x = lib.custom_linear_solve(matvec, given, solve, symmetric=True)
        else:
            x = lib.custom_linear_solve(matvec, given, solve, solve)
        return x["u"] * x["v"]

    return run


CASES: dict[str, tuple[Any, list[np.ndarray]]] = {
    "root": (newton, [array(3), array(3, seed=1)]),
    "solve": (lambda lib: richardson(lib, "given"), [array(3, 3), array(3)]),
    "symmetric": (lambda lib: richardson(lib, "symmetric"), [array(3, 3), array(3)]),
}


@pytest.mark.parametrize(
    ("case", "name"),
    [
        pytest.param(c, n, marks=[pytest.mark.slow] * (n not in QUICK or c[:2] == "sy"))
        for c in CASES
        for n in MODES
    ],
)
def test_agrees(case: str, name: str) -> None:
    build, args = CASES[case]
    check(build, args, name)


def test_aux() -> None:
    def solve(f: Any, x: Any) -> Any:
        return tnp.sqrt(x * 0 + 4.0), {"steps": 3, "seen": x}

    def root(a: Any) -> Any:
        return td.custom_root(
            lambda x: x * x - a, 1.0, solve, lambda g, y: y / g(1.0), has_aux=True
        )

    x, aux = td.jit(root)(4.0)
    assert (x, aux["steps"], aux["seen"]) == (2.0, 3, 1.0)
    assert td.grad(root, has_aux=True)(4.0)[0] == 0.25

    def halves(m: Any, b: Any) -> Any:
        return b / 2.0, {"n": 1}

    def line(a: Any) -> Any:
        return td.custom_linear_solve(lambda x: a * x, a, halves, halves, has_aux=True)

    (x, aux), slope = td.jit(lambda a: td.jvp(line, (a,), (1.0,)))(2.0)
    assert (x, aux["n"], slope[0], slope[1]["n"]) == (1.0, 1, 0.0, None)
    assert td.grad(lambda a: line(a)[0])(2.0) == 0.0


# fixed_point --------------------------------------------------------------------------


def contraction(w: Any, x: Any) -> Any:
    return lambda z: {"y": tnp.tanh(w @ z["y"] + x), "n": 0.5 * z["n"] + z["y"].sum()}


def layer(w: Any, x: Any) -> Any:
    init = {"y": 0.0 * x, "n": 0.0 * x.sum()}
    z = td.fixed_point(contraction(w, x), init)
    return z["y"] * z["n"]


def unrolled(w: Any, x: Any) -> Any:
    f, init = contraction(w, x), {"y": 0.0 * x, "n": 0.0 * x.sum()}
    z = td.fori_loop(0, 40, lambda i, z: f(z), init)
    return z["y"] * z["n"]


W, X = 0.2 * array(4, 4).astype(float), array(4).astype(float)


def test_fixed_point_is_that_of_the_iterations() -> None:
    close(td.jit(layer)(W, X), td.jit(unrolled)(W, X), 1e-9)

    def gradients(f: Any) -> Any:
        return td.grad(lambda w, x: tnp.sum(tnp.sin(f(w, x))), (0, 1))

    wanted = td.jit(gradients(unrolled))(W, X)
    close(gradients(layer)(W, X), wanted, 1e-8)
    rows = np.stack([X, -X])
    wide = td.jit(td.vmap(gradients(layer), (None, 0)))(W, rows)
    close([g[0] for g in wide], wanted, 1e-8)


def test_derivatives_of_a_fixed_point() -> None:
    td.check_grads(layer, (W, X), eps=1e-4)


@pytest.mark.slow
def test_second_derivatives_of_a_fixed_point() -> None:
    for wrap in (lambda f: f, td.jit):
        td.check_grads(wrap(layer), (W, X), order=2, eps=1e-4)


def test_sizes_that_are_open() -> None:
    @td.jit
    def gradient(w: Any, x: Any) -> Any:
        return td.grad(lambda w: tnp.sum(layer(w, x)))(w)

    for n in (2, 3, 5):
        w, x = W[:1, :1] * np.ones((n, n)), array(n).astype(float)
        wanted = td.grad(lambda w, x=x: tnp.sum(unrolled(w, x)))(w)
        close(gradient(w, x), wanted, 1e-8)
    assert len(gradient.report().programs) == 2


def test_in_a_loop() -> None:
    def step(c: Any, row: Any) -> Any:
        c = td.fixed_point(lambda x: tnp.cos(x * c) * row, 0.5)
        return c, c

    def run(a: Any, rows: Any) -> Any:
        return td.scan(step, a, rows)[1]

    td.check_grads(run, (np.array(0.3), 0.5 * abs(array(3).astype(float))), eps=1e-4)


def test_what_does_not_come_to_rest() -> None:
    assert np.isnan(td.fixed_point(lambda x: 2.0 * x + 1.0, 1.0))
    assert np.isnan(td.fixed_point(tnp.cos, 1.0, max_steps=5))
    assert abs(td.fixed_point(tnp.cos, 1.0, tolerance=0.1) - 0.739) < 0.1
    rows = td.vmap(lambda a: td.fixed_point(lambda x: a * x + 1.0, 0.0))(
        tnp.array([0.5, 2.0])
    )
    np.testing.assert_allclose(rows, [2.0, np.nan], rtol=1e-4)


# Misuse -------------------------------------------------------------------------------


def divided(g: Any, y: Any) -> Any:
    return y / g(1.0)


ERRORS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "structure": (
        lambda: td.custom_root(lambda x: (x, x), 1.0, lambda f, x: x, divided),
        StructureError,
        ("custom_root: <lambda> must give what initial_guess is", "given: tuple"),
    ),
    "type": (
        lambda: td.fixed_point(lambda x: x * X, 1.0),
        TypeError,
        ("fixed_point: <lambda> must give what init is", "[f32[]]", "[f64[4]]"),
    ),
    "integers": (
        lambda: td.fixed_point(lambda x: x, 1),
        TypeError,
        ("solves for floating or complex arrays, and init is i32[]", ".astype(float)"),
    ),
    "solution": (
        lambda: td.custom_linear_solve(lambda x: x, 1.0, lambda f, b: X),
        TypeError,
        ("custom_linear_solve: <lambda> must give what b is",),
    ),
    "no pair": (
        lambda: td.custom_root(lambda x: x, 1.0, lambda f, x: x, divided, has_aux=True),
        TypeError,
        ("a pair (solution, aux)",),
    ),
    "reverse without a transpose": (
        lambda: td.grad(
            lambda b: td.custom_linear_solve(lambda x: 2 * x, b, lambda f, b: b / 2)
        )(1.0),
        TypeError,
        ("transpose_solve=", "symmetric=True"),
    ),
    "no function": (lambda: td.fixed_point(1.0, 1.0), TypeError, ("takes a function",)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_misuse(name: str) -> None:
    mistake, error, parts = ERRORS[name]
    refused(mistake, error, *parts)


def test_both_libraries() -> None:
    """The oracle solves the same equation."""
    args = CASES["root"][1]
    x = np.asarray(newton(TREADLE)(*args))
    close(x, newton(JAX)(*args))
    left = x**3 + x * (1 + args[1] ** 2)
    np.testing.assert_allclose(left, np.sin(args[0]), atol=1e-5)

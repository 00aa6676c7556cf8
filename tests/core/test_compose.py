"""Transforms of transforms, in every order, against JAX."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import agree, array

Function = Callable[[Any], Any]


def base(lib: Any) -> Function:
    return lambda x: lib.np.tanh(lib.np.sin(x) * x + 0.5)


# Each takes a function that keeps the shape of its argument, and gives another.


def grad(lib: Any, f: Function) -> Function:
    return lib.grad(lambda x: lib.np.sum(f(x) * lib.np.cos(x)))


def jvp(lib: Any, f: Function) -> Function:
    return lambda x: lib.jvp(f, (x,), (lib.np.cos(x),))[1]


def vmap(lib: Any, f: Function) -> Function:
    return lambda x: lib.vmap(f, x.ndim - 1, x.ndim - 1)(x) if x.ndim else f(x)


def jit(lib: Any, f: Function) -> Function:
    return lib.jit(f)


def scan(lib: Any, f: Function) -> Function:
    def run(x: Any) -> Any:
        def step(c: Any, row: Any) -> Any:
            c = f(c) * row + x
            return c, c * 0.5

        rows = lib.np.array([0.5, -1.5], np.float32)
        carry, ys = lib.scan(step, x, rows)
        return carry + ys[0]

    return run


def cond(lib: Any, f: Function) -> Function:
    def run(x: Any) -> Any:
        return lib.cond(lib.np.sum(x) > 0, f, lambda y: f(-y) * x, x)

    return run


def remat(lib: Any, f: Function) -> Function:
    return lib.remat(f)


def custom(lib: Any, f: Function) -> Function:
    g = lib.custom_vjp(f)
    g.defvjp(
        lambda x: (f(x), x),
        lambda x, ct: (lib.vjp(f, x)[1](ct)[0],),
    )
    return g


def pulled(lib: Any, f: Function) -> Function:
    """By a pullback that one jitted function gives, and another one takes."""
    forward = lib.jit(lambda x: lib.vjp(f, x)[1])
    backward = lib.jit(lambda back, ct: back(ct)[0])
    return lambda x: backward(forward(x), lib.np.cos(x))


def solved(lib: Any, f: Function) -> Function:
    """The solution of an equation that the function is part of."""

    def solve(matvec: Any, b: Any) -> Any:
        return lib.fori_loop(0, 12, lambda i, x: x + 0.3 * (b - matvec(x)), 0 * b)

    def run(x: Any) -> Any:
        scale = 3.0 + lib.np.tanh(f(x))
        return lib.custom_linear_solve(lambda y: y * scale, x, solve, symmetric=True)

    return run


LATER = {t.__name__: t for t in (pulled, solved)}
TRANSFORMS = {t.__name__: t for t in (grad, vmap, jit, scan, jvp, cond, remat, custom)}
MAIN = ("grad", "vmap", "jit", "scan")
PAIRS = [p for p in product(TRANSFORMS, repeat=2) if not set(p) <= set(MAIN)]
TRIPLES = [t for t in product(TRANSFORMS, repeat=3) if not set(t) <= set(MAIN)]
# JAX has no forward mode of custom_vjp, and nor have we: jvp may not come after it,
# unless a grad has turned it into its rules.
FORWARD_OF_REVERSE = "custom_vjp has no forward mode"


def compose(names: tuple[str, ...]) -> Callable[[Any], Function]:
    def build(lib: Any) -> Function:
        f = base(lib)
        for name in reversed(names):
            f = (TRANSFORMS | LATER)[name](lib, f)
        return f

    return build


def has_forward_of_reverse(names: tuple[str, ...]) -> bool:
    return "jvp" in names and "custom" in names[names.index("jvp") :]


def check(names: tuple[str, ...]) -> None:
    if has_forward_of_reverse(names):
        pytest.skip(FORWARD_OF_REVERSE)
    agree(compose(names), array(2, 3), tolerance=2e-4)


@pytest.mark.parametrize("names", list(product(MAIN, repeat=3)), ids=" of ".join)
def test_three_main_transforms(names: tuple[str, ...]) -> None:
    check(names)


@pytest.mark.parametrize("names", PAIRS, ids=" of ".join)
def test_two_transforms(names: tuple[str, ...]) -> None:
    check(names)


@pytest.mark.slow
@pytest.mark.parametrize("names", TRIPLES, ids=" of ".join)
def test_three_transforms(names: tuple[str, ...]) -> None:
    check(names)


@pytest.mark.slow
@pytest.mark.parametrize("other", TRANSFORMS)
@pytest.mark.parametrize("name", LATER)
def test_linear_maps_and_solvers(name: str, other: str) -> None:
    check((name, other))
    check((other, name))
    check(("grad", other, name))


# Values that escape -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["grad", "vmap", "jit", "scan", "remat"])
@pytest.mark.filterwarnings("ignore::treadle.errors.SideEffectWarning")
def test_leak_through_a_global(name: str) -> None:
    kept: list[Any] = []

    def f(x: Any) -> Any:
        kept.append(x)
        return x * 2

    class Lib:
        np = tnp
        grad, vmap, jit, scan, remat = td.grad, td.vmap, td.jit, td.scan, td.remat

    TRANSFORMS[name](Lib, f)(tnp.ones(3))
    with pytest.raises(td.errors.LeakError) as error:
        kept[0] + 1
    assert "test_compose.py" in str(error.value)
    assert "Return it" in str(error.value)


def test_branch_on_a_traced_value() -> None:
    def f(x: Any) -> Any:
        if tnp.sum(x) > 0:
            return x
        return -x

    assert np.asarray(td.grad(lambda x: tnp.sum(f(x)))(tnp.ones(2))).tolist() == [1, 1]
    assert np.asarray(td.jit(f)(-tnp.ones(2))).tolist() == [1, 1]
    rows = td.vmap(f)(tnp.array([[1.0, 2.0], [-1.0, -2.0]]))
    assert np.asarray(rows).tolist() == [[1, 2], [1, 2]]

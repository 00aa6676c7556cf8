"""Reverse mode through loops whose length is known only when they have run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import JAX, REVERSE, TREADLE, array, close
from tests.core.dynamic import same_bytes
from tests.refused import refused

MOST = 12
"""The oracle's bound: no example goes on for longer."""

WAYS: dict[str, dict[str, Any]] = {
    "marks": {},
    "few marks": {"max_steps": 11},
    "three levels": {"max_steps": 4097},
    "steps": {"max_steps": MOST, "remember": "steps"},
}


def repeat(lib: Any, test: Any, body: Any, init: Any, way: dict[str, Any]) -> Any:
    """A loop; in JAX, which has no reverse mode for it, a scan of conds."""
    if lib is TREADLE:
        return td.while_loop(test, body, init, **way)

    def step(carry: Any, _: Any) -> Any:
        return jax.lax.cond(test(carry), body, lambda c: c, carry), None

    return jax.lax.scan(step, init, None, MOST)[0]


def growing(lib: Any, way: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        def step(carry: Any) -> Any:
            n, a, b = carry
            return n + 1, a * 1.3 + 0.1, lib.np.sin(b) * y

        start = (0, lib.np.abs(x) + 0.1, y)
        return repeat(lib, lambda c: c[1] < 3.0, step, start, way)[1:]

    return run


def newton(lib: Any, way: Any) -> Any:
    """Until it no longer changes: the number of steps depends on what is sought."""

    def run(a: Any, b: Any) -> Any:
        def step(x: Any) -> Any:
            return 0.5 * (x + (a * a + 1.0) / x) + 0.001 * b

        def moving(x: Any) -> Any:
            return lib.np.abs(x * x - a * a - 1.0) > 0.05

        return repeat(lib, moving, step, 3.0 + 0 * a, way)

    return run


def nested(lib: Any, way: Any) -> Any:
    def run(x: Any, y: Any) -> Any:
        def inner(c: Any) -> Any:
            return repeat(
                lib,
                lambda s: s[0] < 2 + (x > 0),
                lambda s: (s[0] + 1, lib.np.sin(s[1] * y)),
                (0, c),
                way,
            )[1]

        def outer(c: Any) -> Any:
            return c[0] * 1.5 + 0.2, inner(c[1]) + 0.1 * x

        return repeat(lib, lambda c: c[0] < 1.0, outer, (x * x * 0.1, y), way)[1]

    return run


def around(lib: Any, way: Any) -> Any:
    """In a scan, in a branch, and in a remat."""

    def run(x: Any, y: Any) -> Any:
        def once(c: Any) -> Any:
            return repeat(
                lib, lambda c: lib.np.abs(c) > 0.3, lambda c: c * 0.7 * y, c, way
            )

        def body(c: Any, k: Any) -> Any:
            c = lib.cond(k > 0, once, lib.np.cos, c + 1.0)
            return c, c * x

        ks = lib.np.array([1, 0, 1])
        return lib.remat(lambda x: lib.scan(body, x, ks))(x)

    return run


PROGRAMS = {"growing": growing, "newton": newton, "nested": nested, "around": around}
ARGS = (np.float32(0.7), np.float32(0.9))


def _rows() -> list[Any]:
    rows = []
    for name in PROGRAMS:
        for way in WAYS:
            for property in REVERSE:
                quick = {"growing": "vmap of grad", "newton": "grad of vmap"}
                fast = way in ("few marks", "steps") and quick.get(name) == property
                fast |= (name, way, property) == (
                    "growing",
                    "few marks",
                    "grad of grad",
                )
                marks = [] if fast else [pytest.mark.slow]
                row = f"{name}, {way}, {property}"
                rows.append(pytest.param(name, way, property, marks=marks, id=row))
    return rows


@pytest.mark.parametrize(("name", "way", "property"), _rows())
def test_agrees(name: str, way: str, property: str) -> None:
    build = PROGRAMS[name]

    def run(lib: Any) -> Any:
        f = build(lib, WAYS[way])
        return lib.jit(lambda *xs: REVERSE[property](lib, f, xs))

    with np.errstate(all="ignore"):
        close(run(TREADLE)(*ARGS), run(JAX)(*ARGS), 2e-4)


@pytest.mark.parametrize("way", [{}, {"max_steps": 40, "remember": "steps"}])
def test_a_loop_has_the_bits_of_its_scan(way: dict[str, Any]) -> None:
    """Where the arithmetic is the same. (Beyond one segment, what is the same in all
    iterations gets one sum of each.)"""
    x, w = array(3, seed=1), array(3, seed=2)

    def step(c: Any, w: Any) -> Any:
        return tnp.sin(c * w) + c * 0.9

    def scanned(n: int) -> Any:
        return lambda x, w: td.scan(lambda c, _: (step(c, w), None), x, None, n)[0]

    def looped(x: Any, w: Any, n: Any) -> Any:
        def body(c: Any) -> Any:
            return c[0] + 1, step(c[1], w)

        return td.while_loop(lambda c: c[0] < n, body, (0, x), **way)[1]

    def counted(x: Any, w: Any, n: Any) -> Any:
        return td.fori_loop(0, n, lambda _, c: step(c, w), x, **way)

    for f in (looped, counted):
        both = td.jit(td.grad(lambda x, w, n, f=f: tnp.cos(f(x, w, n)).sum(), (0, 1)))
        for n in (0, 1, 7, 40):
            g = scanned(n)
            wanted = td.jit(td.grad(lambda x, w, g=g: tnp.cos(g(x, w)).sum(), (0, 1)))
            assert not (why := same_bytes(both(x, w, n), wanted(x, w))), (n, why)


def shrinking(x: Any, scale: Any) -> Any:
    """At 0, where every example stops, the body has no derivative."""

    def body(c: Any) -> Any:
        return c[0] + tnp.sqrt(c[1]) * scale, tnp.maximum(c[1] - 1.0, 0.0)

    return td.while_loop(lambda c: c[1] > 0, body, (0.0, x))[0]


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit])
def test_examples_that_finish_early(wrap: Any) -> None:
    """What is computed for them after that leaves no trace, singular as it may be."""
    xs = np.float32([1.5, 0.0, 3.25, 0.5])
    ways: dict[str, Callable[[Any, Any], Any]] = {
        "grad of vmap": td.grad(
            lambda xs, s: td.vmap(shrinking, (0, None))(xs, s).sum(), (0, 1)
        ),
        "vmap of grad": lambda xs, s: [
            g.sum(0) if k else g
            for k, g in enumerate(td.vmap(td.grad(shrinking, (0, 1)), (0, None))(xs, s))
        ],
        "grad of vmap of vmap": td.grad(
            lambda xs, s: td.vmap(td.vmap(shrinking, (0, None)), (0, None))(
                xs.reshape(2, 2), s
            ).sum(),
            (0, 1),
        ),
    }
    dxs, ds = [], []
    for x in xs:
        down = np.arange(x, 0, -1, np.float64)
        dxs.append(2 * (0.5 / np.sqrt(down)).sum())
        ds.append(np.sqrt(down).sum())
    for name, f in ways.items():
        dx, dscale = wrap(f)(xs, np.float32(2))
        np.testing.assert_allclose(dx, dxs, rtol=1e-5, err_msg=name)
        np.testing.assert_allclose(dscale, sum(ds), rtol=1e-5, err_msg=name)


def slow(x: Any, n: Any, **way: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] + 1, c[1] * 0.999 + x

    return td.while_loop(lambda c: c[0] < n, body, (0, x), **way)[1]


def geometric(n: int) -> float:
    return float(np.sum(0.999 ** np.arange(n + 1, dtype=np.float64)))


@pytest.mark.parametrize(
    ("way", "inside", "beyond"),
    [
        ({}, 4096, 4097),
        ({"max_steps": 25}, 25, 26),
        ({"max_steps": 5000}, 5000, 18**3 + 1),
        ({"max_steps": 30, "remember": "steps"}, 30, 31),
    ],
)
def test_too_many_steps(way: dict[str, Any], inside: int, beyond: int) -> None:
    slope = td.jit(td.grad(lambda x, n: slow(x, n, **way)))
    many = td.vmap(slope, (None, 0))
    np.testing.assert_allclose(slope(0.5, inside), geometric(inside), rtol=1e-4)
    ns = np.array([3, inside])
    wanted = [geometric(n) for n in ns]
    np.testing.assert_allclose(many(0.5, ns), wanted, rtol=1e-4)
    for f, n in ((slope, beyond), (many, np.array([3, beyond]))):
        with pytest.raises(
            RuntimeError, match=r"(?s)more iterations.*`max_steps=`"
        ) as e:
            np.asarray(f(0.5, n))
        assert f"at {__file__}:" in str(e.value)
    # What does not go backwards may have any number.
    value = td.jit(lambda x, n: slow(x, n, **way))(0.5, beyond)
    unused = td.jit(td.grad(lambda x, n: x + td.stop_gradient(slow(x, n, **way))))
    assert unused(0.5, beyond) == 1
    both = td.jit(td.value_and_grad(lambda x, n: td.stop_gradient(slow(x, n, **way))))
    assert both(0.5, beyond)[0] == value


def test_memory_is_bounded_as_stated() -> None:
    """In arrays of the carry's size: a mark for each segment; three for each step that
    is remembered, which is what this body needs; and a few."""
    x = np.ones(10_000, np.float32)

    def needs(n: Any, **way: Any) -> float:
        def body(c: Any) -> Any:
            return c[0] + 1, c[1] * tnp.sin(c[1]) + x

        def f(x: Any, n: Any) -> Any:
            return td.while_loop(lambda c: c[0] < n, body, (0, x), **way)[1].sum()

        return td.jit(td.grad(f)).lower(x, n).plan.arena / x.nbytes

    assert needs(3, max_steps=64) < 8 + 3 * 8 + 16
    assert needs(3, max_steps=1000, remember="steps") < 3 * 1000 + 16
    assert needs(3) < 64 + 3 * 64 + 16
    assert needs(3, max_steps=2**18) < 2 * 64 + 3 * 64 + 16


def test_effects_happen_once() -> None:
    seen: list[int] = []

    def f(x: Any, **way: Any) -> Any:
        def body(c: Any) -> Any:
            td.debug.callback(lambda n: seen.append(int(n)), c[0])
            return c[0] + 1, tnp.sin(c[1]) * x

        return td.while_loop(lambda c: c[0] < 5, body, (0, x), **way)[1]

    for way in ({}, {"max_steps": 4}, {"max_steps": 8, "remember": "steps"}):
        seen.clear()
        td.jit(td.grad(lambda x, way=way: f(x, **(way | {"max_steps": 8}))))(0.5)
        assert seen == [0, 1, 2, 3, 4]


def test_results_of_effects_are_remembered_with_the_steps() -> None:
    def f(x: Any, **way: Any) -> Any:
        def body(c: Any) -> Any:
            factor = td.io_callback(
                lambda n: np.float32(n + 2), td.ShapeDtype((), np.float32), c[0]
            )
            return c[0] + 1, c[1] * factor

        return td.while_loop(lambda c: c[0] < 3, body, (0, x), **way)[1]

    slope = td.jit(td.grad(lambda x: f(x, max_steps=3, remember="steps")))
    assert slope(1.0) == 2 * 3 * 4
    mistake = lambda: td.jit(td.grad(f))(1.0)  # noqa: E731
    with pytest.raises(TypeError, match=r'(?s)io_callback.*remember="steps"'):
        mistake()


MISTAKES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "kind": ({"remember": "all"}, ["remember='all'", "'marks' nor 'steps'"]),
    "no room": ({"remember": "steps"}, ["`max_steps=`"]),
    "none": ({"max_steps": 0}, ["max_steps=0", "positive"]),
    "float": ({"max_steps": 10.0}, ["max_steps=10.0"]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name: str) -> None:
    way, parts = MISTAKES[name]
    mistake = lambda: td.while_loop(lambda c: c < 3, lambda c: c + 1, 0, **way)  # noqa: E731
    refused(mistake, ValueError, *parts)


def halved(x: Any, **way: Any) -> Any:
    return td.while_loop(lambda c: c < 1e9, lambda c: c * 0.5, x, **way)


def halved_by_statement(x: Any) -> Any:
    while x < 1e9:
        x = x * 0.5
    return x


ENDLESS = {
    "compiled": lambda f: td.jit(td.grad(f)),
    "of compiled": lambda f: td.grad(td.jit(f)),
    "of many": lambda f: lambda x: td.vmap(td.grad(f))(x * np.ones(2)),
    "compiled, of many": lambda f: td.jit(
        td.vmap(td.grad(f), axis_size=2, in_axes=None)
    ),
    "in a scan": lambda f: td.jit(
        td.grad(lambda x: td.scan(lambda c, _: (f(c), None), x, None, 2)[0])
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
@pytest.mark.parametrize(
    "way", [{"max_steps": 9}, {"max_steps": 9, "remember": "steps"}]
)
def test_a_loop_without_end_is_an_error(case: str, way: dict[str, Any]) -> None:
    """It ends where no more can be remembered, not only once it has ended."""
    with pytest.raises(RuntimeError, match=r"(?s)more iterations.*`max_steps=`"):
        np.asarray(ENDLESS[case](lambda x: halved(x, **way))(np.float32(1)))


def test_a_statement_without_end_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)more iterations.*`max_steps=`"):
        np.asarray(td.jit(td.grad(halved_by_statement))(1.0))

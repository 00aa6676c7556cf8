"""custom_jvp and custom_vjp against JAX, in every nesting; closures; errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import (
    PROPERTIES,
    TREADLE,
    agree,
    array,
    check,
    close,
)
from tests.refused import refused
from treadle.errors import StructureError, TracerError


def wrong_sine(lib: Any) -> Any:
    """Its derivative is deliberately not that of its value."""

    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return lib.np.sin(x) * y

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        return f(x, y), 3.0 * lib.np.cos(x) * dx * y + x * dy

    return f


def by_argument(lib: Any) -> Any:
    f = lib.custom_jvp(lambda x, y: lib.np.exp(x) * y)
    f.defjvps(lambda t, out, x, y: 2.0 * t * out, None)
    return f


def trees(lib: Any) -> Any:
    @lib.custom_vjp
    def f(p: Any, x: Any) -> Any:
        return {"out": lib.np.tanh(p["w"] * x), "same": x}

    def forward(p: Any, x: Any) -> Any:
        return {"out": lib.np.tanh(p["w"] * x), "same": x}, (p["w"], x)

    def backward(residuals: Any, ct: Any) -> Any:
        w, x = residuals
        return {"w": 5.0 * ct["out"] * x}, lib.np.cos(w) * ct["out"] + ct["same"]

    f.defvjp(forward, backward)
    return lambda w, x: f({"w": w}, x)


def clipped(lib: Any) -> Any:
    f = lib.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (lib.np.clip(ct, -0.5, 0.5),))
    return lambda x: f(x) * 2.0


def in_scan(inner: Any) -> Any:
    def build(lib: Any) -> Any:
        f = inner(lib)

        def run(x: Any, ys: Any) -> Any:
            def step(c: Any, y: Any) -> Any:
                out = f(c, y)
                c = out["out"] if isinstance(out, dict) else out
                return c, c

            return lib.scan(step, x, ys)

        return run

    return build


def in_jit(inner: Any) -> Any:
    return lambda lib: lib.jit(inner(lib))


def in_remat(inner: Any) -> Any:
    return lambda lib: lib.remat(inner(lib))


BOTH_MODES: dict[str, tuple[Any, list[np.ndarray]]] = {
    "jvp": (wrong_sine, [array(3), array(3, seed=1)]),
    "jvps": (by_argument, [array(3), array(3, seed=1)]),
    "jvp in scan": (in_scan(wrong_sine), [array(), array(4)]),
    "jvp in jit": (in_jit(wrong_sine), [array(3), array(3, seed=1)]),
    "jvp in remat": (in_remat(wrong_sine), [array(3), array(3, seed=1)]),
}
REVERSE_ONLY: dict[str, tuple[Any, list[np.ndarray]]] = {
    "vjp": (trees, [array(3), array(3, seed=1)]),
    "clipped": (clipped, [array(3)]),
    "vjp in scan": (in_scan(trees), [array(), array(4)]),
    "vjp in jit": (in_jit(trees), [array(3), array(3, seed=1)]),
    "vjp in remat": (in_remat(trees), [array(3), array(3, seed=1)]),
}


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("case", BOTH_MODES)
def test_custom_jvp(case: str, name: str) -> None:
    build, args = BOTH_MODES[case]
    if case == "jvp in scan" and name in ("grad of grad", "jvp of grad"):
        pytest.skip("JAX's scan forgets the rule in second derivatives")
    check(build, args, name)


@pytest.mark.parametrize("name", ["grad of grad", "jvp of grad"])
def test_second_derivatives_in_scan_are_those_of_the_loop(name: str) -> None:
    build, args = BOTH_MODES["jvp in scan"]
    found = PROPERTIES[name](TREADLE, build(TREADLE), args)
    with td.disable_jit():
        close(found, PROPERTIES[name](TREADLE, build(TREADLE), args), 1e-4)


@pytest.mark.parametrize("name", [n for n in PROPERTIES if n != "jvp"])
@pytest.mark.parametrize("case", REVERSE_ONLY)
def test_custom_vjp(case: str, name: str) -> None:
    build, args = REVERSE_ONLY[case]
    check(build, args, name)


def test_shared_argument_under_vmap_gets_the_sum() -> None:
    def build(lib: Any) -> Any:
        f = trees(lib)

        def loss(w: Any, xs: Any) -> Any:
            return lib.np.sum(lib.vmap(f, (None, 0))(w, xs)["out"])

        return lib.jit(lib.grad(loss, (0, 1)))

    agree(build, array(3), array(4, 3))


def test_nondifferentiable_arguments() -> None:
    def build(lib: Any) -> Any:
        def apply(function: Any, x: Any, n: Any) -> Any:
            return function(x) * n

        f = lib.custom_jvp(apply, nondiff_argnums=(0, 2))

        @f.defjvp
        def _(function: Any, n: Any, primals: Any, tangents: Any) -> Any:
            (x,), (dx,) = primals, tangents
            return function(x) * n, dx * n * 7.0

        g = lib.custom_vjp(apply, nondiff_argnums=(0, 2))
        g.defvjp(
            lambda function, x, n: (function(x) * n, x),
            lambda function, n, x, ct: (ct * function(x) * n,),
        )

        def loss(x: Any) -> Any:
            return f(lib.np.sin, x, 3) + g(lib.np.cos, x, 2)

        return lib.jit(lib.vmap(lib.grad(loss)))

    agree(build, array(3))


def test_nondifferentiable_arguments_by_name() -> None:
    def build(lib: Any) -> Any:
        def power(x: Any, n: Any, scale: Any) -> Any:
            return scale(x) ** n

        f = lib.custom_jvp(power, nondiff_argnums=(2,), nondiff_argnames=("n",))

        @f.defjvp
        def _(*given: Any) -> Any:
            *fixed, primals, tangents = given
            n, scale = sorted(fixed, key=callable)
            return power(*primals, n, scale), tangents[0] * n * 7.0

        g = lib.custom_vjp(power, nondiff_argnames=("n", "scale"))
        g.defvjp(
            lambda x, n, scale: (power(x, n, scale), x),
            lambda n, scale, x, ct: (ct * scale(x) * n,),
        )

        def loss(x: Any) -> Any:
            return f(x, n=3, scale=lib.np.sin) + g(x, 2, lib.np.cos)

        return lib.jit(lib.vmap(lib.grad(loss)))

    agree(build, array(3))
    refused(
        lambda: td.custom_vjp(lambda x, n: x, nondiff_argnames="m"),
        ValueError,
        "nondiff_argnames='m'",
        "x (0), n (1)",
    )


def test_arguments_by_name_and_default() -> None:
    def build(lib: Any) -> Any:
        @lib.custom_jvp
        def f(x: Any, y: Any = 2.0) -> Any:
            return x * y

        @f.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            (x, y), (dx, _) = primals, tangents
            return f(x, y), 10.0 * dx * y

        return lib.grad(lambda x: f(y=x, x=x) + f(x))

    agree(build, np.float32(0.3))


def test_integers_have_no_tangents() -> None:
    def build(lib: Any) -> Any:
        @lib.custom_vjp
        def f(x: Any, i: Any) -> Any:
            return x[i], i

        f.defvjp(
            lambda x, i: (f(x, i), (x, i)),
            lambda res, ct: (lib.np.ones_like(res[0]) * ct[0], None),
        )
        return lib.grad(lambda x: f(x, 1)[0] ** 2)

    agree(build, array(3))


def test_python_control_flow_in_plain_grad() -> None:
    """Outside jit the function and its rules see values."""
    seen = []

    @td.custom_jvp
    def f(x: Any) -> Any:
        seen.append(float(x))
        return x if x > 0 else -x

    @f.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (dx,) = primals, tangents
        return f(x), dx if x > 0 else -dx

    close(td.grad(f)(-2.0), np.float32(-1))
    close(td.grad(td.grad(lambda x: f(x) * x))(3.0), np.float32(2))
    assert seen == [-2.0, 3.0]


def test_method() -> None:
    class Scale:
        @td.custom_jvp
        def __call__(self, x: Any) -> Any:
            return x

    with pytest.raises(TypeError, match="nondiff_argnums"):
        Scale()(1.0)


def test_closure_over_constants() -> None:
    table = tnp.arange(100.0)

    @td.custom_vjp
    def f(x: Any) -> Any:
        return x * table

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (tnp.sum(ct * table),))
    for wrap in (lambda g: g, td.jit):
        grads = wrap(td.vmap(td.grad(lambda x: tnp.sum(f(x)))))(array(3))
        close(grads, np.full(3, 4950, np.float32))


@pytest.mark.parametrize("wrap", [lambda f: f, td.jit], ids=["python", "jit"])
def test_closure_over_what_is_differentiated(wrap: Any) -> None:
    def loss(x: Any) -> Any:
        @td.custom_jvp
        def f(y: Any) -> Any:
            return x * y

        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0]))
        return f(2.0)

    with pytest.raises(TracerError, match="closes over"):
        wrap(td.grad(loss))(3.0)


def test_forward_mode_of_custom_vjp() -> None:
    f = clipped(TREADLE)
    for wrap in (lambda g: g, td.jit):
        with pytest.raises(TypeError, match="only a reverse rule"):
            td.jvp(wrap(f), (1.0,), (1.0,))


# Errors -------------------------------------------------------------------------------


def test_no_rule() -> None:
    with pytest.raises(TypeError, match="defjvp"):
        td.custom_jvp(lambda x: x)(1.0)
    with pytest.raises(TypeError, match="defvjp"):
        td.custom_vjp(lambda x: x)(1.0)


def test_rule_returns_no_pair() -> None:
    f = td.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: tangents[0])
    with pytest.raises(TypeError, match="must return a pair"):
        td.grad(f)(1.0)


def test_rule_of_another_structure() -> None:
    f = td.custom_jvp(lambda x: x)
    f.defjvp(lambda primals, tangents: ((primals[0],), (tangents[0],)))
    with pytest.raises(StructureError, match="another structure"):
        td.jit(td.grad(f))(1.0)


def test_cotangents_do_not_fit() -> None:
    f = td.custom_vjp(lambda x, y: x)
    f.defvjp(lambda x, y: (x, None), lambda _, ct: (ct,))
    with pytest.raises(TypeError, match="tuple of 2 cotangents"):
        td.grad(f)(1.0, 2.0)
    f.defvjp(lambda x, y: (x, None), lambda _, ct: (tnp.ones(3), None))
    with pytest.raises(TypeError, match=r"f32\[3\]"):
        td.grad(f)(1.0, 2.0)


def test_rules_get_arrays() -> None:
    """Constants of a program too: NumPy's own would promote otherwise."""
    f = td.custom_vjp(lambda x, n: x * n)
    f.defvjp(lambda x, n: (x * n, n), lambda n, ct: (ct * n, None))
    g = td.custom_jvp(lambda x, n: x * n)
    g.defjvp(lambda primals, ts: (f(*primals), ts[0] * primals[1]))
    for custom in (f, g):
        for wrap in (lambda f: f, td.jit):
            found = wrap(td.grad(custom))(2.0, 3)
            assert found == 3.0 and found.dtype == np.float32
        found = td.vmap(td.grad(custom))(np.ones(2, np.float32), np.array([1, 2]))
        np.testing.assert_array_equal(found, [1.0, 2.0])
        assert found.dtype == np.float32


def test_closing_over_an_example() -> None:
    def outer(w: Any) -> Any:
        f = td.custom_jvp(lambda x: x * w)
        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * w))
        return td.grad(f)(2.0)

    with pytest.raises(TracerError, match="make it an argument"):
        td.vmap(outer)(np.ones(3, np.float32))


def test_forward_mode_names_the_line() -> None:
    f = td.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct,))
    with pytest.raises(TypeError, match=r"test_custom\.py:\d+(.|\n)*td\.custom_jvp"):
        td.jvp(f, (1.0,), (1.0,))

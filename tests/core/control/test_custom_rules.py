"""What rules know: which derivatives are zero, arguments that have none, closures."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import JAX, TREADLE, agree, array, check, close
from tests.refused import refused
from treadle.errors import StructureError


def is_zero(ct: Any) -> bool:
    return ct is None or isinstance(ct, jax.custom_derivatives.SymbolicZero)


def product(lib: Any) -> Any:
    """Its derivative is wrong in a way that tells which tangents were zero."""
    f = lib.custom_jvp(lambda p, x: {"out": p["a"] * x * p["b"], "n": x})

    def rule(primals: Any, tangents: Any) -> Any:
        (p, x), (dp, dx) = primals, tangents
        out, total = f(p, x), 0.0 * x
        for i, d in enumerate((dp["a"], dp["b"], dx)):
            total = total + (0.25 * (i + 1) * x if is_zero(d) else d * lib.np.cos(x))
        return out, {"out": total, "n": 2.0 * total}

    f.defjvp(rule, symbolic_zeros=True)
    return f


def reversed_product(lib: Any) -> Any:
    f = lib.custom_vjp(lambda p, x: {"out": p["a"] * x * p["b"], "n": x})

    def forward(p: Any, x: Any) -> Any:
        a, b = p["a"], p["b"]
        flags = [v.perturbed for v in (a, b, x)]
        number = lib.np.array(sum(2**i for i, f in enumerate(flags) if f) * 1.0)
        out = {"out": a.value * x.value * b.value, "n": x.value}
        return out, (number.astype(np.float32), x.value)

    def backward(res: Any, ct: Any) -> Any:
        number, x = res
        total = number * x
        for i, c in enumerate((ct["out"], ct["n"])):
            total = total + (0.25 * (i + 1) * x if is_zero(c) else c * lib.np.cos(x))
        return {"a": total, "b": 2 * total}, 3 * total

    f.defvjp(forward, backward, symbolic_zeros=True)
    return f


A, B, X = array(3), array(3, seed=1), array(3, seed=2)
WRAPS: dict[str, Any] = {
    "plain": lambda lib, f: f,
    "jit": lambda lib, f: lib.jit(f),
    "vmap": lambda lib, f: lambda *xs: lib.vmap(f)(*xs),
    "vmap of two": lambda lib, f: lambda a, b, x: lib.vmap(f, (0, None, 0))(a, b[0], x),
    "scan": lambda lib, f: (
        lambda a, b, x: lib.scan(lambda c, r: (c, f(r[0], c, r[1])), b[0], (a, x))[1]
    ),
    "remat": lambda lib, f: lib.remat(f),
}


def total(lib: Any, outs: Any, part: str) -> Any:
    return lib.np.sum(lib.np.sin(outs[part]))


SLOW = ("jit", "vmap", "scan", "remat")


@pytest.mark.parametrize(
    "wrap", [pytest.param(w, marks=[pytest.mark.slow] * (w in SLOW)) for w in WRAPS]
)
@pytest.mark.parametrize("build", [product, reversed_product])
def test_zeros_are_known(build: Any, wrap: str) -> None:
    def gradients(lib: Any) -> Any:
        f = build(lib)
        wrapped = WRAPS[wrap](lib, lambda a, b, x: f({"a": a, "b": b}, x))

        def run(a: Any, b: Any, x: Any) -> Any:
            def loss(part: str) -> Any:
                return lambda *xs: total(lib, wrapped(*xs), part)

            which = [("out", 0), ("n", 2), ("out", (0, 1))]
            return [lib.grad(loss(part), numbers)(a, b, x) for part, numbers in which]

        return run

    found = gradients(TREADLE)(A, B, X)
    close(found, JAX.jit(gradients(JAX))(A, B, X))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["jvp", "grad of grad", "jvp of grad", "vmap of grad"])
def test_zeros_in_every_mode(name: str) -> None:
    def build(lib: Any) -> Any:
        f = product(lib)
        return lambda a, x: f({"a": a, "b": a * x}, x)["out"]

    check(build, (A, X), name)


def test_rules_may_give_none() -> None:
    f = td.custom_jvp(lambda x, y: (x * y, x))
    f.defjvp(lambda xs, ts: (f(*xs), (ts[0] * xs[1], None)))
    close(td.jvp(f, (2.0, 3.0), (1.0, 1.0))[1], (np.float32(3), np.float32(0)))
    g = td.custom_vjp(lambda p, x: p["a"] * x)
    g.defvjp(lambda p, x: (g(p, x), x), lambda x, ct: (None, ct * x))
    f.defjvp(lambda xs, ts: (f(*xs), None))
    for wrap in (lambda h: h, td.jit, lambda h: td.jit(td.vmap(h))):
        x = array(3)
        grads = wrap(td.grad(lambda p, x: tnp.sum(g(p, x)), (0, 1)))({"a": x}, x)
        close(grads, ({"a": 0 * x}, x))
        close(wrap(td.grad(lambda x: tnp.sum(f(x, x)[0])))(x), 0 * x)


def test_traced_arguments_that_are_not_differentiated() -> None:
    def build(lib: Any) -> Any:
        f = lib.custom_jvp(lambda n, x: n["k"] * x, nondiff_argnums=(0,))
        f.defjvp(lambda n, xs, ts: (f(n, *xs), 3.0 * n["k"] * ts[0]))
        return lambda n, x: lib.grad(lambda x: f({"k": n, "f": lib.np.sin}, x))(x)

    for wrap in (lambda lib, g: lib.vmap(g), lambda lib, g: lib.jit(lib.vmap(g))):
        agree(lambda lib, w=wrap: w(lib, build(lib)), A, X)
    f = td.custom_vjp(lambda n, x: n * x, nondiff_argnums=(0,))
    f.defvjp(lambda n, x: (n * x, x), lambda n, x, ct: (5.0 * n * ct,))
    for call in (td.vmap(td.grad(f, 1)), td.jit(td.vmap(td.grad(f, 1)))):
        close(call(A, X), 5.0 * A)


def test_what_is_not_traced_is_the_very_object() -> None:
    log: list[str] = []
    f = td.custom_vjp(lambda log, x: x, nondiff_argnums=(0,))
    f.defvjp(
        lambda log, x: (x, log.append("forward")),
        lambda log, _, ct: (log.append("backward") or ct,),
    )
    td.grad(lambda x: f(log, x))(1.0)
    assert log == ["forward", "backward"]
    g = td.custom_jvp(lambda table, n, x: table[1] * x, nondiff_argnums=(0, 1))
    g.defjvp(lambda table, n, xs, ts: (g(table, n, *xs), table["slope"] * n * ts[0]))
    back = td.vmap(td.grad(lambda x, n: g({1: 2.0, "slope": 3.0}, n, x)), (None, 0))
    close(back(1.0, tnp.array([1.0, 2.0])), np.array([3.0, 6.0], np.float32))


def test_closure_convert() -> None:
    """A function's gradient in what the function given to it closes over."""

    def build(lib: Any) -> Any:
        def integrate(f: Any, x: Any) -> Any:
            converted, values = lib.closure_convert(f, x)
            return halves(converted, x, *values)

        halves = lib.custom_vjp(
            lambda f, x, *values: f(x, *values) * 0.5, nondiff_argnums=(0,)
        )
        halves.defvjp(
            lambda f, x, *values: (halves(f, x, *values), (x, values)),
            lambda f, res, ct: lib.vjp(f, res[0], *res[1])[1](7.0 * ct),
        )

        def loss(a: Any, x: Any) -> Any:
            inner = {"a": a, "n": 3}
            return lib.np.sum(integrate(lambda y: lib.np.sin(y * inner["a"]), x))

        return lib.grad(loss, (0, 1))

    wanted = JAX.jit(build(JAX))(A, X)
    for wrap in (lambda f: f, td.jit):
        close(wrap(build(TREADLE))(A, X), wanted)
    rows = td.vmap(build(TREADLE), (0, None))(tnp.stack([A, B]), X)
    close([x[0] for x in rows], wanted)


def test_closure_convert_without_anything() -> None:
    converted, values = td.closure_convert(lambda x: {"y": x * A}, X)
    assert values == []
    close(converted(X), {"y": A * X})
    refused(lambda: converted(X, X), TypeError, "takes 1 arguments and 0 values, got 2")
    refused(lambda: converted(array(4)), TypeError, "type f32[3], got f32[4]")
    refused(lambda: converted((X,)), TypeError)
    refused(lambda: td.closure_convert(3.0), TypeError, "takes a function")


# Errors -------------------------------------------------------------------------------


def jvp_rule(rule: Any) -> Any:
    f = td.custom_jvp(lambda x: {"y": x})
    f.defjvp(rule)
    return lambda: td.jit(lambda x: td.jvp(f, (x,), (x,)))(1.0)


def vjp_rule(backward: Any, forward: Any = lambda p: (p["y"], None)) -> Any:
    f = td.custom_vjp(lambda p: p["y"])
    f.defvjp(forward, backward)
    return lambda: td.grad(f)({"y": 1.0})


ERRORS: dict[str, tuple[Any, Any, tuple[str, ...]]] = {
    "tangent's structure": (
        jvp_rule(lambda xs, ts: ({"y": xs[0]}, {"z": ts[0]})),
        StructureError,
        ("<lambda>: the rule", "expected: dict(['y']", "given:    dict(['z']"),
    ),
    "result's structure": (
        jvp_rule(lambda xs, ts: (xs[0], ts[0])),
        StructureError,
        ("the rule gives a result of another structure", "expected: dict", "given:"),
    ),
    "tree in place of an array": (
        jvp_rule(lambda xs, ts: ({"y": xs[0]}, {"y": (ts[0], ts[0])})),
        StructureError,
        ("gives a tangent", "at ['y']: a leaf against tuple"),
    ),
    "tangent's type": (
        jvp_rule(lambda xs, ts: ({"y": xs[0]}, {"y": X})),
        TypeError,
        ("a tangent at ['y'] of type f32[3], and its result has type f32[]",),
    ),
    "tangent is text": (
        jvp_rule(lambda xs, ts: ({"y": xs[0]}, {"y": "t"})),
        TypeError,
        ("a tangent at ['y'] of <lambda> is a str",),
    ),
    "no pair": (jvp_rule(lambda xs, ts: xs[0]), TypeError, ("a pair (out, tangent)",)),
    "cotangent's structure": (
        vjp_rule(lambda _, ct: ({"x": ct},)),
        StructureError,
        ("the backward rule gives a cotangent", "expected: tuple([0]: dict(['y']"),
    ),
    "cotangent's type": (
        vjp_rule(lambda _, ct: ({"y": X},)),
        TypeError,
        ("a cotangent at [0]['y'] of type f32[3], and its argument has type f32[]",),
    ),
    "residual is text": (
        vjp_rule(lambda _, ct: (None,), lambda p: (p["y"], {"r": "text"})),
        TypeError,
        ("a residual of <lambda> at ['r'] is a str", "nondiff_argnums"),
    ),
    "forward's result": (
        vjp_rule(lambda _, ct: (None,), lambda p: ("text", None)),
        TypeError,
        ("what the forward rule of <lambda> gives is a str",),
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_rules_give(name: str) -> None:
    mistake, error, parts = ERRORS[name]
    refused(mistake, error, *parts, at=jvp_rule if "jvp" in str(mistake) else vjp_rule)


def test_rules_for_arguments() -> None:
    f = td.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, out, x, y: t * y)
    refused(lambda: td.grad(f)(1.0, 2.0), TypeError, "1 rules by defjvps", "2 argument")
    f.defjvps(None, None)
    close(td.grad(f)(1.0, 2.0), np.float32(0))
    g = td.custom_jvp(lambda n, x: x, nondiff_argnums=(0,))
    refused(lambda: g.defjvps(None), TypeError, "nondiff_argnums=(0,)", "`defjvp`")


def test_differentiated_where_it_is_not_to_be() -> None:
    f = td.custom_jvp(lambda n, x: n * x, nondiff_argnums=(0,))
    f.defjvp(lambda n, xs, ts: (f(n, *xs), n * ts[0]))
    g = td.custom_vjp(lambda n, x: n * x, nondiff_argnums=(0,))
    g.defvjp(lambda n, x: (n * x, None), lambda n, _, ct: (n * ct,))
    for rule in (f, g):
        refused(
            lambda r=rule: td.grad(r)(2.0, 3.0), TypeError, "one of nondiff_argnums"
        )
        refused(lambda r=rule: td.jit(td.grad(r))(2.0, 3.0), TypeError, "stop_gradient")

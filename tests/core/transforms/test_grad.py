"""Derivatives as users meet them: structures, options, dtypes, nesting, errors."""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from scipy import special

import treadle as td
import treadle.numpy as tnp
from treadle.errors import TracerError


class Pair(NamedTuple):
    weight: Any
    bias: Any


X = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")


def mlp(params: Any, x: Any) -> Any:
    for layer in params["layers"]:
        x = tnp.tanh(x @ layer.weight + layer.bias)
    return (x * params["scale"]).sum()


def identity(x: Any) -> Any:
    return x


def make_params() -> dict[str, Any]:
    rng = np.random.default_rng(1)
    layers = [
        Pair(rng.normal(size=(3, 3)).astype("float32"), np.ones(3, "float32"))
        for _ in range(2)
    ]
    return {"layers": layers, "scale": 2.0, "count": 3, "empty": None}


def test_pytrees_agree_with_jax() -> None:
    params = make_params()
    value, grads = td.value_and_grad(mlp)(params, X)

    def jax_mlp(floats: Any, x: Any) -> Any:
        for layer in floats["layers"]:
            x = jnp.tanh(x @ layer.weight + layer.bias)
        return (x * floats["scale"]).sum()

    floats = {k: params[k] for k in ("layers", "scale")}
    wanted, wanted_grads = jax.value_and_grad(jax_mlp)(floats, X)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    assert grads["count"] is None and grads["empty"] is None
    assert isinstance(grads["layers"][0], Pair)
    del grads["count"], grads["empty"]
    for g, w in zip(td.tree.leaves(grads), jax.tree.leaves(wanted_grads), strict=True):
        np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-6)


def test_argnums() -> None:
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * y + z * z

    assert td.grad(f, 1)(2.0, 3.0, 4.0).item() == 2.0
    assert td.grad(f, -1)(2.0, 3.0, 4.0).item() == 8.0
    assert [g.item() for g in td.grad(f, (0, 2))(2.0, 3.0, 4.0)] == [3.0, 8.0]
    with pytest.raises(ValueError, match=r"argnums=3, but f was called with 2"):
        td.grad(f, 3)(1.0, 2.0)


def test_has_aux_and_keywords() -> None:
    def f(x: Any, *, power: int) -> Any:
        return x**power, {"seen": x + 1}

    (value, aux), g = td.value_and_grad(f, has_aux=True)(2.0, power=3)
    assert (value.item(), aux["seen"].item(), g.item()) == (8.0, 3.0, 12.0)
    g, aux = td.grad(f, has_aux=True)(2.0, power=3)
    assert (g.item(), aux["seen"].item()) == (12.0, 3.0)
    with pytest.raises(TypeError, match=r"must return a pair \(result, aux\)"):
        td.grad(lambda x: x, has_aux=True)(2.0)


def test_unused_and_repeated_arguments() -> None:
    assert td.grad(lambda x, y: x * 2.0, 1)(1.0, 5.0).item() == 0.0
    assert td.grad(lambda x: x * x * x)(2.0).item() == 12.0
    assert td.grad(lambda x: 3.0)(2.0).item() == 0.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_gradients_have_the_dtype_of_their_argument(dtype: str) -> None:
    x = np.ones(3, dtype if dtype != "bfloat16" else ml_dtypes.bfloat16)
    value, g = td.value_and_grad(lambda x: (x * 1.5 + 2).sum())(x)
    assert value.dtype == g.dtype == x.dtype


def test_mixed_dtypes() -> None:
    def f(x: Any, y: Any) -> Any:
        return (x.astype("float32") * y).sum()

    gx, gy = td.grad(f, (0, 1))(np.ones(2, "float16"), np.ones(2, "float32"))
    assert (gx.dtype, gy.dtype) == (np.float16, np.float32)


def test_values_of_python_numbers() -> None:
    """Where it is concrete, a number that is being traced gives its value, if no
    derivative is lost by that."""
    assert td.grad(lambda x: x * int(x))(3.0) == 3.0
    assert td.grad(lambda x: x * td.stop_gradient(x).item())(3.0) == 3.0
    assert td.grad(lambda x: x * tnp.arange(int(x)).sum())(3.0) == 3.0
    with pytest.raises(TracerError, match="arange"):
        td.grad(lambda x: tnp.arange(x, x + 3).sum())(3.0)
    with pytest.raises(TypeError, match="integer"):
        td.grad(lambda x: x * [1.0, 2.0][x])(1.0)


def test_nested_derivatives_are_not_confused() -> None:
    """d/dx of x times d/dy of (x + y) is 1, not 2."""
    f = td.grad(lambda x: x * td.grad(lambda y: x + y)(1.0))
    assert f(1.0).item() == 1.0

    def forward(f: Any, x: Any) -> Any:
        return td.jvp(f, (x,), (1.0,))[1]

    nested = forward(lambda x: x * forward(lambda y: x * y, 2.0), 3.0)
    assert nested.item() == 6.0


def test_high_orders() -> None:
    f = tnp.sin
    for n in range(5):
        wanted = [np.sin, np.cos, lambda x: -np.sin(x), lambda x: -np.cos(x)][n % 4]
        np.testing.assert_allclose(f(0.7), wanted(0.7), rtol=1e-5)
        f = td.grad(f)


def test_python_control_flow_sees_values() -> None:
    def f(x: Any) -> Any:
        total = x
        while total < 10.0:
            total = total * 2.0 if total > 3.0 else total + 1.0
        return total

    assert td.grad(f)(2.0).item() == 4.0
    value, tangent = td.jvp(f, (2.0,), (1.0,))
    assert (value.item(), tangent.item()) == (16.0, 4.0)


def test_closures_over_traced_values() -> None:
    def f(x: Any) -> Any:
        inner = td.jit(lambda y: y * x)
        return inner(inner(x))

    assert td.grad(f)(2.0).item() == 12.0
    assert td.jit(td.grad(f))(2.0).item() == 12.0
    assert td.grad(td.grad(f))(2.0).item() == 12.0


def test_stop_gradient() -> None:
    f = td.grad(lambda x: x * td.stop_gradient(x * x))
    assert f(3.0).item() == 9.0
    assert td.jit(f)(3.0).item() == 9.0


def test_vjp_and_jvp_take_none_for_zero() -> None:
    (a, b), pullback = td.vjp(lambda x: (x * 2.0, x * x), 3.0)
    assert (a.item(), b.item()) == (6.0, 9.0)
    assert pullback((None, 1.0))[0].item() == 6.0
    _, tangent = td.jvp(lambda x, y: x * y, (3.0, 4.0), (None, 1.0))
    assert tangent.item() == 3.0


def test_pullback_may_be_called_again() -> None:
    _, pullback = td.vjp(lambda x: x * x, np.float32([1, 2]))
    for scale in (1.0, 2.0):
        ct = np.full(2, scale, "float32")
        np.testing.assert_array_equal(pullback(ct)[0], scale * np.float32([2, 4]))


@pytest.mark.parametrize("x", [3, np.int32([1, 2]), True])
def test_a_tangent_of_an_integer_is_refused(x: Any) -> None:
    def f(x: Any) -> Any:
        return x * x

    message = r"derivatives: pass floats \(`3\.0`, `x\.astype\(float\)`\), or None"
    for tangent in (x, np.ones(np.shape(x), np.float32)):
        with pytest.raises(TypeError, match=message):
            td.jvp(f, (x,), (tangent,))
        with pytest.raises(TypeError, match=message):
            td.linearize(f, x)[1](tangent)
        with pytest.raises(TypeError, match=message):
            td.vjp(f, x)[1](tangent)
    assert td.jvp(f, (x,), (None,))[1] is None
    assert td.linearize(f, x)[1](None) is None
    assert td.vjp(f, x)[1](None) == (None,)


def test_integers_among_the_results_have_no_tangent() -> None:
    def f(x: Any) -> Any:
        return {"y": x * x, "n": (tnp.floor(x).astype("int32"),)}

    x = np.float32([1.5, 2.5])
    _, tangent = td.jvp(f, (x,), (x,))
    np.testing.assert_array_equal(tangent["y"], 2 * x * x)
    assert tangent["n"] == (None,)
    assert td.linearize(f, x)[1](x)["n"] == (None,)
    for jacobian in (td.jacfwd, td.jacrev):
        found = jacobian(f)(x)
        np.testing.assert_array_equal(found["y"], np.diag(2 * x))
        assert found["n"] == (None,)
        assert jacobian(lambda x: f(x)["n"])(x) == (None,)


def test_integers_have_no_derivative() -> None:
    _, pullback = td.vjp(lambda x, i: x * i, 2.0, np.int32(3))
    assert [g if g is None else g.item() for g in pullback(1.0)] == [3.0, None]
    counts = td.grad(lambda x: tnp.floor(x).astype("int32").astype("float32") * x)
    assert counts(2.5).item() == 2.0


def test_errors_say_what_to_do() -> None:
    with pytest.raises(TypeError, match=r"one real scalar result.*returned f32\[2\]"):
        td.grad(lambda x: x * 2)(np.ones(2, "float32"))
    with pytest.raises(TypeError, match="returned a tuple"):
        td.grad(lambda x: (x, x))(1.0)
    with pytest.raises(ValueError, match=r"cotangent.*f32\[3\].*f32\[2\]"):
        td.vjp(lambda x: x, np.ones(2, "float32"))[1](np.ones(3, "float32"))
    with pytest.raises(ValueError, match=r"tangent.*f32\[3\].*f32\[2\]"):
        td.jvp(lambda x: x, (np.ones(2, "float32"),), (np.ones(3, "float32"),))
    with pytest.raises(TypeError, match=r"argument `x` of identity is a str"):
        td.grad(identity)("text")


def test_complex_gradients_agree_with_jax() -> None:
    def f(np_: Any) -> Any:
        return lambda z: (np_.abs(z * z + 1.0) ** 2).sum()

    z = np.complex64([1 + 2j, -0.5 + 0.3j])
    np.testing.assert_allclose(td.grad(f(tnp))(z), jax.grad(f(jnp))(z), rtol=1e-4)


def second_of_cotangent(lib: Any, c: Any) -> Any:
    return lib.vjp(lambda x: x * x, 3.0)[1](c)[0]


def second_of_tangent(lib: Any, t: Any) -> Any:
    return lib.jvp(lambda x: x * x, (3.0,), (t,))[1]


def second_of_linear(lib: Any, t: Any) -> Any:
    return lib.linearize(lambda x: x * x, 3.0)[1](t)


def forward_over_pullback(lib: Any, x: Any) -> Any:
    return lib.jvp(lambda x: lib.vjp(lambda y: x * y * y, x)[1](x)[0], (x,), (1.0,))[1]


@pytest.mark.parametrize(
    "f",
    [second_of_cotangent, second_of_tangent, second_of_linear, forward_over_pullback],
)
def test_numbers_that_are_traced_as_tangents(f: Any) -> None:
    for lib_of in (lambda lib: lib.grad, lambda lib: lambda g: lib.jit(lib.grad(g))):
        found = lib_of(td)(lambda c: f(td, c))(2.0)
        wanted = lib_of(jax)(lambda c: f(jax, c))(2.0)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_tangents_of_another_dtype() -> None:
    half = np.ones(3, np.float16)
    ones = np.ones(3, np.float32)
    for mistake in (
        lambda: td.jvp(identity, (ones,), (half,)),
        lambda: td.vjp(identity, ones)[1](half),
        lambda: td.linearize(identity, ones)[1](half),
        lambda: td.vjp(identity, 2.0)[1](1j),
    ):
        with pytest.raises(TypeError, match=r"has type (f16\[3\]|c64\[\]), its .*f32"):
            mistake()
    assert td.vjp(identity, 2.0)[1](1)[0].dtype == np.float32


def test_results_are_arrays() -> None:
    given = np.ones(3, np.float32)
    out = td.vmap(identity)(given)
    assert isinstance(out, td.Array)
    given[0] = 5.0
    assert float(out[0]) == 1.0
    value, pullback = td.vjp(identity, 2.0)
    out, linear = td.linearize(lambda x: (x, 1.0), 2.0)
    results = [
        value,
        pullback(1.0),
        out,
        linear(1.0),
        td.cond(True, identity, identity, 2),
    ]
    results += [td.jvp(lambda x: (x, 1.0), (2.0,), (1.0,)), td.grad(identity)(2.0)]
    for leaf in td.tree.leaves(results):
        assert isinstance(leaf, td.Array)


def test_numpy_numbers_are_python_numbers() -> None:
    """As under jit: `np.sqrt(2)` widens no program."""
    root, ones = np.sqrt(2.0), np.ones(3, np.float32)
    results = [
        td.grad(lambda x: x * x)(root),
        td.jvp(lambda x: x * x, (root,), (root,)),
        td.vmap(lambda a, b: a * b, in_axes=(0, None))(ones, root),
        td.scan(lambda c, x: (c * x, c), root, ones),
        td.eval_shape(lambda x: x * x, root),
    ]
    for leaf in td.tree.leaves(results):
        assert leaf.dtype == np.float32


@pytest.mark.parametrize(
    "container", [OrderedDict(b=1.0, a=2.0), defaultdict(list, b=1.0, a=2.0)]
)
def test_other_dicts(container: Any) -> None:
    def f(p: Any) -> Any:
        return p["a"] * 3.0 + p["b"]

    found, wanted = td.grad(f)(container), jax.grad(f)(container)
    assert type(found) is type(wanted)
    assert list(found) == list(wanted)
    assert [*map(float, td.tree.leaves(found))] == jax.tree.leaves(wanted)
    assert getattr(found, "default_factory", None) in (None, list)


def test_none_for_a_whole_argument() -> None:
    """Where nothing moves, a tangent or cotangent may be left out."""

    def f(p: Any, x: Any) -> Any:
        return {"a": p["w"] * x, "b": (x, x * x)}

    params, zeros = {"w": 2.0, "b": [1.0]}, {"w": 0.0, "b": [0.0]}
    wanted = td.jvp(f, (params, 3.0), (zeros, 1.0))[1]
    assert td.jvp(f, (params, 3.0), (None, 1.0))[1] == wanted
    assert td.linearize(f, params, 3.0)[1](None, 1.0) == wanted
    pullback = td.vjp(f, params, 3.0)[1]
    assert pullback({"a": 1.0, "b": None}) == pullback({"a": 1.0, "b": (0.0, 0.0)})


def test_copies_of_traced_arrays_are_these() -> None:
    def f(p: Any) -> Any:
        own = copy.deepcopy(p)
        return own["w"] * copy.copy(p["w"]) * own["n"]

    params = {"w": np.float32(3.0), "n": 2.0}
    for gradient in (td.grad(f), td.jit(td.grad(f)), td.grad(td.jit(f))):
        assert gradient(params) == {"w": 12.0, "n": 9.0}
    many = td.vmap(lambda w: f({"w": w, "n": 2.0}))(np.arange(3.0))
    np.testing.assert_array_equal(many, [0.0, 2.0, 8.0])


def test_argnums_that_choose_twice() -> None:
    with pytest.raises(ValueError, match="chooses an argument twice"):
        td.grad(lambda x, y: x * y, argnums=(0, -2))(1.0, 2.0)


def test_a_dataclass_that_is_not_registered() -> None:
    @dataclass
    class Params:
        w: float

    with pytest.raises(TypeError, match=r"argument `p` of.*(.|\n)*register_dataclass"):
        td.grad(lambda p: p.w)(Params(1.0))


def test_second_derivatives_of_gamma_functions() -> None:
    x = np.array([0.3, 1.7, 4.0, 25.0, -1.3])
    for wrap in (lambda f: f, td.jit):
        first = wrap(td.vmap(td.grad(td.scipy.special.digamma)))(x)
        np.testing.assert_allclose(first, special.polygamma(1, x), rtol=1e-12)
        second = wrap(td.vmap(td.hessian(td.scipy.special.gammaln)))(x)
        np.testing.assert_allclose(second, special.polygamma(1, x), rtol=1e-12)
        third = wrap(td.vmap(td.grad(td.grad(td.grad(td.scipy.special.gammaln)))))(x)
        np.testing.assert_allclose(third, special.polygamma(2, x), rtol=1e-12)


@pytest.mark.parametrize("order", [-1, 101])
def test_polygamma_of_a_wrong_order(order: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="the order n is"):
        td.scipy.special.polygamma(order, 1.0)


def test_a_hessian_through_complex_numbers() -> None:
    def f(p: Any) -> Any:
        z = p[0] + 1j * p[1]
        return tnp.abs(tnp.prod(z)) + tnp.sum(tnp.real(tnp.sign(z) * z * 1j))

    p = np.random.default_rng(0).normal(size=(2, 3))
    step, found = 1e-5, np.asarray(td.jit(td.hessian(f))(p))
    gradient = td.grad(f)
    for i, j in np.ndindex(p.shape):
        unit = np.zeros_like(p)
        unit[i, j] = step
        low, high = gradient(p - unit), gradient(p + unit)
        difference = (np.asarray(high) - np.asarray(low)) / (2 * step)
        np.testing.assert_allclose(found[:, :, i, j], difference, rtol=1e-5, atol=1e-7)
    at_zero = td.grad(lambda x: tnp.sum(tnp.real(tnp.sign(x + 0j))))(np.zeros(2))
    np.testing.assert_array_equal(at_zero, 0)

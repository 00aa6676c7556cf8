"""jacfwd, jacrev, hessian, linear_transpose, stop_gradient, eval_shape, trace."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.control.both import JAX, TREADLE, array, close
from tests.refused import refused


def field(lib: Any) -> Any:
    def f(p: Any, x: Any) -> Any:
        out = lib.np.tanh(p["w"] @ x + p["b"])
        return {"y": out, "n": lib.np.sum(out * out)}

    return f


def agree_jitted(build: Any, *args: Any) -> None:
    """The program, plain and compiled, gives what JAX's compiled one does."""
    wanted = JAX.jit(build(JAX))(*args)
    close(build(TREADLE)(*args), wanted)
    close(td.jit(build(TREADLE))(*args), wanted)


ARGS = ({"w": array(2, 3), "b": array(2)}, array(3))


@pytest.mark.parametrize("which", ["jacfwd", "jacrev"])
def test_jacobians(which: str) -> None:
    def build(lib: Any) -> Any:
        take = getattr(lib, which)
        made = [take(field(lib), a) for a in (0, 1, (0, 1))]
        return lambda *args: [jacobian(*args) for jacobian in made]

    agree_jitted(build, *ARGS)


def test_hessian() -> None:
    def build(lib: Any) -> Any:
        return lib.hessian(lambda p, x: field(lib)(p, x)["n"], (0, 1))

    agree_jitted(build, *ARGS)


@pytest.mark.parametrize("which", ["jacfwd", "jacrev", "hessian"])
def test_numbers_of_numpy(which: str) -> None:
    """What is a Python number, too, has the dtype of one."""
    derivative = getattr(td, which)(lambda x: x * x * x)
    assert derivative(np.float64(2.0)) == derivative(2.0) == 12.0
    assert derivative(np.float64(2.0)).dtype == tnp.float32


def test_jacobians_with_aux() -> None:
    def build(lib: Any) -> Any:
        def f(p: Any, x: Any) -> Any:
            out = field(lib)(p, x)
            return out, {"n": out["n"] * 2, "count": lib.np.array([1, 2])}

        return lambda p, x: (
            lib.jacfwd(f, has_aux=True)(p, x),
            lib.jacrev(f, (0, 1), has_aux=True)(p, x),
            lib.hessian(lambda p, x: (f(p, x)[0]["n"], x), has_aux=True)(p, x),
        )

    agree_jitted(build, *ARGS)


def test_holomorphic() -> None:
    def build(lib: Any) -> Any:
        def f(z: Any) -> Any:
            return lib.np.sin(z) * z**2

        def run(z: Any) -> Any:
            return (
                lib.jacfwd(f, holomorphic=True)(z),
                lib.jacrev(f, holomorphic=True)(z),
                lib.hessian(f, holomorphic=True)(z),
                lib.grad(f, holomorphic=True)(z[0]),
                lib.value_and_grad(f, holomorphic=True)(z[1]),
                lib.grad(lambda z: abs(f(z)))(z[0]),
                lib.jacrev(lambda z: abs(f(z)))(z),
                lib.jacfwd(lambda x: f(x + 1j))(z.real),
            )

        return run

    z = np.array([0.5 + 1j, -1.5 + 0.5j], np.complex64)
    close(build(TREADLE)(z), JAX.jit(build(JAX))(z))


COMPLEX = {
    "result of grad": (lambda: td.grad(lambda z: z * z)(1j), "holomorphic=True"),
    "result of jacrev": (lambda: td.jacrev(lambda z: z * z)(1j), "the result of"),
    "argument of jacfwd": (lambda: td.jacfwd(lambda z: abs(z))(1j), "argument `z`"),
    "real argument": (lambda: td.grad(lambda z: z, holomorphic=True)(1.0), "`z` of"),
    "real result": (lambda: td.grad(abs, holomorphic=True)(1j), "complex scalar"),
    "real row": (lambda: td.jacfwd(abs, holomorphic=True)(1j), "the result of abs"),
}


@pytest.mark.parametrize("name", COMPLEX)
def test_complex_numbers_where_they_mean_nothing(name: str) -> None:
    mistake, part = COMPLEX[name]
    refused(mistake, TypeError, part)


def test_integers_allowed() -> None:
    assert td.grad(lambda n: n * 2.0, allow_int=True)(3) is None
    assert td.jacrev(lambda n, x: n * x, (0, 1), allow_int=True)(3, 2.0) == (None, 3.0)
    refused(lambda: td.grad(lambda n: n * 2.0)(3), TypeError, "allow_int=True")


@pytest.mark.parametrize("which", ["grad", "jacfwd", "jacrev", "hessian"])
def test_argnums(which: str) -> None:
    transform = getattr(td, which)

    def f(x: Any, y: Any) -> Any:
        return x * y * y

    assert transform(f, np.int64(-1))(2.0, 3.0) == transform(f, 1)(2.0, 3.0)
    assert len(transform(f, [1])(2.0, 3.0)) == 1
    refused(lambda: transform(f, "y"), TypeError, "argnums takes positions")
    refused(lambda: transform(f, (0, -2))(2.0, 3.0), ValueError, "twice")
    refused(lambda: transform(f, 2)(2.0, 3.0), ValueError, "argnums=2")


def test_vmap_of_hessian() -> None:
    def build(lib: Any) -> Any:
        return lib.vmap(lib.hessian(lambda x: lib.np.prod(lib.np.sin(x))))

    agree_jitted(build, array(4, 3))


def test_jacobian_of_integers() -> None:
    with pytest.raises(TypeError, match="only floating and complex"):
        td.jacfwd(lambda x: x)(np.arange(3))
    with pytest.raises(ValueError, match="argnums=2"):
        td.jacrev(lambda x: x, 2)(1.0)


def test_linear_transpose() -> None:
    w = array(3, 4)

    def f(x: Any, y: Any) -> Any:
        total = td.scan(lambda c, row: (c + row, None), tnp.zeros(4), y)[0]
        return x @ w + td.fori_loop(0, 2, lambda i, c: c * 2.0, total)

    back = td.linear_transpose(f, td.ShapeDtype((3,)), td.ShapeDtype((5, 4)))
    ct = array(4)
    for wrap in (lambda g: g, td.jit):
        gx, gy = wrap(back)(ct)
        close(gx, w @ ct)
        close(gy, np.tile(4 * ct, (5, 1)))


def test_stop_gradient_of_pytrees() -> None:
    def loss(p: Any) -> Any:
        q = td.stop_gradient(p)
        return p["x"] * q["x"] + q["n"]

    grads = td.grad(loss)({"x": np.float32(3), "n": np.int32(1)})
    close(grads["x"], np.float32(3))


@pytest.mark.parametrize("take", [td.jacfwd, td.jacrev])
def test_integers_beside_floats_have_no_columns(take: Any) -> None:
    found = take(lambda p: p["w"] * p["n"])({"w": array(2), "n": np.int32(3)})
    assert found["n"] is None
    close(found["w"], 3 * np.eye(2, dtype=np.float32))
    with pytest.raises(
        TypeError, match=r"`n` of <lambda> is i32\[\], and only floating"
    ):
        take(lambda n: n * 1.0)(np.int32(3))


def test_eval_shape() -> None:
    def f(p: Any, x: Any) -> Any:
        return {"out": x @ p["w"], "n": tnp.sum(x).astype(np.int32)}

    p = {"w": td.ShapeDtype((1000, 10), "bfloat16")}
    out = td.eval_shape(f, p, td.ShapeDtype((10**6, 1000), "bfloat16"))
    assert out["out"] == td.ShapeDtype((10**6, 10), td.bfloat16)
    assert (out["n"].shape, out["n"].dtype) == ((), np.int32)
    with pytest.raises(TypeError, match=r"\['w'\]"):
        td.eval_shape(f, {"w": "text"}, td.ShapeDtype((3,)))


def test_trace() -> None:
    graph = td.trace(lambda p, y: p["x"] * y)({"x": array(3)}, td.ShapeDtype((3,)))
    assert [eq.op.name for eq in graph.equations] == ["mul"]
    assert len(graph.inputs) == 2
    assert "mul" in str(graph)


def test_disable_jit() -> None:
    seen = []

    @td.jit
    def f(x: Any) -> Any:
        seen.append(float(x))
        return x * 2

    with td.disable_jit():
        close(f(np.float32(1.5)), np.float32(3))
    assert seen == [1.5]


@pytest.mark.parametrize("disable", [True, False])
def test_disable_jit_is_told_whether(disable: bool) -> None:
    def calls(lib: Any) -> int:
        seen = [0]

        @lib.jit
        def f(x: Any) -> Any:
            seen[0] += 1
            return x * 2

        for outer in (False, True):
            with lib.disable_jit(outer), lib.disable_jit(disable):
                close(f(np.float32(outer)), np.float32(2 * outer))
        return seen[0]

    assert calls(td) == calls(jax) == (2 if disable else 1)


def test_linear_transpose_of_what_is_not_linear() -> None:
    w = tnp.ones(3)
    with pytest.raises(TypeError, match=r"is not linear(.|\n)*td\.vjp"):
        td.linear_transpose(lambda x: x * x, w)
    for f in (
        lambda x: td.scan(lambda c, a: (c * tnp.sin(a) + x, c), x, w)[1],
        lambda x: td.jit(lambda x: x * tnp.exp(w) + x[::-1])(x),
        lambda x: td.vmap(lambda a, b: a @ b, in_axes=(None, 0))(x, tnp.ones((2, 3))),
    ):
        out, pullback = td.vjp(f, w)
        ct = tnp.ones(out.shape)
        np.testing.assert_allclose(
            td.linear_transpose(f, w)(ct)[0], pullback(ct)[0], rtol=1e-6
        )

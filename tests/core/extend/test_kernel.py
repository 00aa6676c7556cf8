"""Kernels of Python, of LLVM IR, and of C functions of numbers."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

import treadle as td
import treadle.numpy as tnp
from treadle.run.explain import walk

X = np.linspace(-3, 3, 37).astype("float32").reshape(1, 37)
Z = np.linspace(0.3, 4, 74).reshape(2, 37)

CUBE = """
declare double @llvm.sqrt.f64(double)
@limits = private constant [2 x double] [double 0.0, double 1.0]
define internal double @square(double %x) {
  %y = fmul double %x, %x
  ret double %y
}
define double @cube(double %x, i32 %n) {
entry:
  %s = call double @square(double %x)
  %y = fmul double %s, %x
  %rooted = icmp sgt i32 %n, 0
  br i1 %rooted, label %root, label %plain
root:
  %r = call double @llvm.sqrt.f64(double %y)
  ret double %r
plain:
  %p = getelementptr [2 x double], ptr @limits, i64 0, i64 0
  %zero = load double, ptr %p
  %z = fadd double %y, %zero
  ret double %z
}
"""


def test_a_python_function_of_numbers(checked_by_reference: None) -> None:
    @td.kernel
    def soft(x: Any, limit: Any) -> Any:
        """Grows slower and slower."""
        if abs(x) < limit:
            return x
        for _ in range(2):
            limit = limit * 0.9
        return limit * tnp.tanh(x / limit)

    def oracle(x: Any, limit: Any) -> Any:
        return jnp.where(abs(x) < limit, x, 0.81 * limit * jnp.tanh(x / 0.81 / limit))

    limits = np.array([[0.5], [2.0]], "float32")
    assert soft.__doc__ == "Grows slower and slower."
    for run in (soft, td.jit(soft), td.jit(td.vmap(soft, in_axes=(None, 0)))):
        found = np.asarray(run(X, limits)).reshape(2, 37)
        np.testing.assert_allclose(found, oracle(X, limits), rtol=1e-5)
    ours = td.grad(lambda x, m: tnp.sum(soft(x, m) ** 2), argnums=(0, 1))
    wanted = jax.grad(lambda x, m: jnp.sum(oracle(x, m) ** 2), (0, 1))(X, limits)
    for run in (ours, td.jit(ours)):
        for f, w in zip(run(X, limits), wanted, strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-4)


def test_a_python_function_is_one_kernel() -> None:
    f = td.kernel(lambda x: tnp.sin(x) * 2 + x)
    program = td.jit(lambda x: f(x + 1) * 3)
    assert (
        len([*walk(program.lower(X).plan.steps)]) == 1
        if hasattr(program.lower(X), "plan")
        else "1 different kernels" in str(program.explain(X))
    )


def test_a_python_function_with_a_derivative_of_its_own() -> None:
    step = td.kernel(
        lambda x, a: tnp.where(x > a, 1.0, 0.0),
        partials=[lambda g, out, x, a: g * tnp.exp(-((x - a) ** 2)), None],
    )
    for run in (td.grad(lambda x: tnp.sum(step(x, 0.5))),):
        for each in (run, td.jit(run)):
            np.testing.assert_allclose(each(X), np.exp(-((X - 0.5) ** 2)), rtol=1e-5)
    found = td.grad(lambda a: tnp.sum(step(X, a)))(0.5)
    assert found == 0
    column = td.grad(lambda x: tnp.sum(step(x, tnp.zeros((4, 1)))))(tnp.ones(1))
    np.testing.assert_allclose(column, 4 * np.exp(-1), rtol=1e-5)


def test_llvm_ir(checked_by_reference: None) -> None:
    slope = lambda g, out, x, n: g * tnp.where(n > 0, 1.5 * x**0.5, 3 * x**2)  # noqa: E731
    cube = td.kernel(CUBE, partials=[slope, None])
    n = (np.arange(37) % 2).astype("int32")
    wanted = np.where(n > 0, Z**1.5, Z**3)

    def fused(x: Any, n: Any) -> Any:
        return cube(x * 1.0, n) + 0.0

    for run in (cube, td.jit(fused), td.vmap(cube, in_axes=(0, None))):
        np.testing.assert_allclose(run(Z, n), wanted, rtol=1e-12)
    turned = td.jit(td.vmap(cube, in_axes=(1, 0)))(Z, n)
    np.testing.assert_allclose(turned, wanted.T, rtol=1e-12)
    gradient = td.grad(lambda x: tnp.sum(cube(x, n)))
    for run in (gradient, td.jit(gradient)):
        np.testing.assert_allclose(
            run(Z), np.where(n > 0, 1.5 * Z**0.5, 3 * Z**2), rtol=1e-12
        )
    assert cube(2.0, 0).dtype == np.float64 and float(cube(2, False)) == 8
    assert "scalar_call, " in str(td.jit(fused).explain(Z, n))
    assert "host" not in str(td.jit(fused).explain(Z, n))
    assert cube(np.zeros((0, 3)), 1).shape == (0, 3)


def test_llvm_ir_of_open_sizes() -> None:
    cube = td.kernel(CUBE)
    program = td.jit(lambda x: tnp.sum(cube(x, 0), axis=1), dynamic={"x": ("n", "m")})
    for shape in ((3, 4), (1, 1), (17, 2)):
        x = np.random.default_rng(0).normal(size=shape)
        np.testing.assert_allclose(program(x), (x**3).sum(1), rtol=1e-12)


INTEGERS = """
define i16 @rotate(i16 %x, i8 %n) {
  %wide = zext i8 %n to i16
  %left = shl i16 %x, %wide
  %rest = sub i16 16, %wide
  %right = lshr i16 %x, %rest
  %y = or i16 %left, %right
  ret i16 %y
}
"""


def test_kernels_of_integers() -> None:
    rotate = td.kernel(INTEGERS)
    x = np.arange(-20, 20, dtype="int16")
    bits = x.view("uint16").astype("int64")
    wanted = ((bits << 3 | bits >> 13) & 0xFFFF).astype("uint16").view("int16")
    for run in (rotate, td.jit(rotate)):
        np.testing.assert_array_equal(run(x, np.int8(3)), wanted)


def libm(name: str, *kinds: Any) -> Any:
    function = getattr(ctypes.CDLL(ctypes.util.find_library("m")), name)
    *function.argtypes, function.restype = kinds
    return function


def test_a_c_function(checked_by_reference: None) -> None:
    double = ctypes.c_double
    j1 = td.kernel(libm("j1", double, double))
    j0 = td.kernel(libm("j0", double, double), partials=[lambda g, out, x: -g * j1(x)])
    program = td.jit(lambda x: j0(2 * x) + 1)
    np.testing.assert_allclose(program(Z), scipy.special.j0(2 * Z) + 1, rtol=1e-10)
    np.testing.assert_allclose(j0(Z), scipy.special.j0(Z), rtol=1e-10)
    found = td.jit(td.vmap(td.grad(j0)))(Z[0])
    np.testing.assert_allclose(found, -scipy.special.j1(Z[0]), rtol=1e-10)
    yn = td.kernel(libm("yn", ctypes.c_int, double, double))
    order = np.arange(2, dtype="int32")[:, None]
    np.testing.assert_allclose(
        td.jit(yn)(order, Z), scipy.special.yn(order, Z), rtol=1e-7, atol=1e-12
    )
    root = td.kernel(libm("cbrtf", ctypes.c_float, ctypes.c_float))
    np.testing.assert_allclose(td.jit(root)(X), np.cbrt(X), rtol=1e-6)


def test_a_second_process_finds_the_plan_and_the_function(tmp_path: Path) -> None:
    program = """
import ctypes, ctypes.util
import numpy as np, treadle as td
from treadle.backends import plans
from treadle.backends.cpu.run import native
plans.WORTH_STORING = 1
f = ctypes.CDLL(ctypes.util.find_library("m")).j0
f.argtypes, f.restype = [ctypes.c_double], ctypes.c_double
j0 = td.kernel(f)
x = np.linspace(0, 1, 5)
print(np.asarray(td.jit(lambda x: j0(x) * 2)(x)).tolist(), native.stats.compiled)
"""
    runs = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"TREADLE_CACHE_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        runs.append(done.stdout.rpartition(" "))
    assert runs[0][0] == runs[1][0]
    assert int(runs[0][2]) > 0 == int(runs[1][2])
    assert len([*tmp_path.glob("plan*")]) == 1


DOUBLE = "define double @f(double %x) {\n  ret double %x\n}\n"
WRONG: list[tuple[Any, str]] = [
    (lambda: td.kernel("define float @f("), "LLVM rejects it"),
    (lambda: td.kernel("declare double @f(double)"), "it defines none"),
    (lambda: td.kernel(DOUBLE + DOUBLE.replace("@f", "@g")), "@f, @g"),
    (lambda: td.kernel("define void @f(ptr %x) {\n  ret void\n}"), "`ptr`.*`void`"),
    (
        lambda: td.kernel(
            "define <4 x float> @f(<4 x float> %x) {\n ret <4 x float> %x\n}"
        ),
        "numbers are `float`",
    ),
    (lambda: td.kernel("define i32 @f() {\n  ret i32 1\n}"), "no argument"),
    (
        lambda: td.kernel(DOUBLE)(X),
        r"argument 0 of f is f32\[1,37\].*float64[\s\S]*astype",
    ),
    (lambda: td.kernel(DOUBLE)(1j), "argument 0 of f is c64"),
    (lambda: td.kernel(DOUBLE)(Z, Z), "f takes 1 arguments, got 2"),
    (lambda: td.kernel(CUBE)(Z, 1.5), "argument 1 of cube is f32.*int32"),
    (lambda: td.kernel(CUBE)(Z, np.zeros(5, "int32")), "don't broadcast"),
    (
        lambda: td.grad(td.kernel(DOUBLE))(np.float64(1)),
        r"no derivative[\s\S]*partials",
    ),
    (lambda: td.kernel(ctypes.CDLL(None).abs), r"argtypes None[\s\S]*restype"),
    (
        lambda: td.kernel(
            libm("frexp", ctypes.c_double, ctypes.c_void_p, ctypes.c_double)
        ),
        "argtypes",
    ),
    (lambda: td.kernel(3), "kernel"),
    (lambda: td.kernel(lambda x: None)(1.0), "gives None[\\s\\S]*Return a number"),
    (lambda: td.jit(td.kernel(lambda x: x * X))(1.0), "a function of numbers"),
    (
        lambda: td.grad(td.kernel(lambda x, y: x * y, partials=[None]))(1.0, 2.0),
        "2 arguments, and 1",
    ),
]


@pytest.mark.parametrize("call, message", WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_says_so_at_the_users_line(call: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message) as caught:
        call()
    assert f"\n  at {__file__}" in str(caught.value)


@pytest.mark.parametrize("kind", ["native", "python"])
def test_partials_have_derivatives_of_any_order(kind: str) -> None:
    """What is given is a rule for each time that the kernel is differentiated."""
    x, y = X[0] + 5, X[0]
    text = (
        "define float @f(float %x, float %y) {\n"
        "  %r = fmul float %x, %y\n"
        "  ret float %r\n}"
    )
    kernel = td.kernel(
        text if kind == "native" else lambda x, y: x * y,
        partials=[lambda g, out, x, y: g * out / x, lambda g, out, x, y: g * x],
    )

    def ours(x: Any) -> Any:
        return (kernel(x, y) * kernel(x, x)).sum()

    def theirs(x: Any) -> Any:
        return (x * y * x * x).sum()

    np.testing.assert_allclose(td.hessian(ours)(x), jax.hessian(theirs)(x), atol=1e-3)
    found = td.jit(td.grad(lambda x: td.grad(ours)(x).sum()))(x)
    wanted = jax.grad(lambda x: jax.grad(theirs)(x).sum())(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)

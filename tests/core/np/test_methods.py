"""Operators and methods; promotion; meeting NumPy."""

from __future__ import annotations

import operator
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import treadle as td
import treadle.numpy as tnp
from tests.core.np.oracle import floats, ints, positive, same

X, Y = positive(3, 4), positive(3, 4, seed=4)
N, M = np.abs(ints(3, 4)) + 1, np.abs(ints(3, 4, seed=6)) + 1

ARITHMETIC = "add sub mul truediv floordiv mod pow"
COMPARISONS = "lt le gt ge eq ne"


@pytest.mark.parametrize("name", f"{ARITHMETIC} {COMPARISONS}".split())
@pytest.mark.parametrize("pair", [(X, Y), (X, 2.5), (X, N), (N, 3)], ids=range(4))
def test_operators_both_ways(name: str, pair: Any) -> None:
    function = getattr(operator, name)
    x, y = pair
    theirs = jnp.asarray(y) if isinstance(y, np.ndarray) else y
    if name == "pow" and x is N:
        pytest.skip("overflows")
    same(function(tnp.array(x), y), function(jnp.asarray(x), theirs), 16)
    same(function(y, tnp.array(x)), function(theirs, jnp.asarray(x)), 16)


@pytest.mark.parametrize("name", ["and_", "or_", "xor", "lshift", "rshift"])
def test_bit_operators(name: str) -> None:
    function = getattr(operator, name)
    same(function(tnp.array(N), M % 8), function(jnp.asarray(N), M % 8))
    same(function(5, tnp.array(M % 8)), function(5, jnp.asarray(M % 8)))


def test_unary_operators() -> None:
    x = tnp.array([-1.5, 2.5])
    assert (-x).tolist() == [1.5, -2.5] and (+x).tolist() == [-1.5, 2.5]
    assert abs(x).tolist() == [1.5, 2.5] and round(x).tolist() == [-2, 2]
    assert (~tnp.array([True, False])).tolist() == [False, True]
    assert divmod(tnp.array([7, -7]), 2)[0].tolist() == [3, -4]


METHODS = [
    "sum mean max min prod std var any all argmax argmin cumsum ravel flatten",
    "transpose squeeze round copy conj argsort",
]


@pytest.mark.parametrize("name", " ".join(METHODS).split())
def test_methods(name: str) -> None:
    same(getattr(tnp.array(X), name)(), getattr(jnp.asarray(X), name)(), 16)


def test_more_methods() -> None:
    x = tnp.array(X)
    same(x.T, X.T)
    same(x.mT, X.T)
    same(x.real, X)
    same(x.imag, np.zeros_like(X))
    same(x.reshape(2, 6), X.reshape(2, 6))
    same(x.reshape((4, -1)), X.reshape(4, 3))
    same(x.transpose(1, 0), X.T)
    same(x.swapaxes(0, 1), X.T)
    same(x.clip(0.5, 1), X.clip(0.5, 1))
    same(x.dot(Y.T), X.dot(Y.T))
    same(x.repeat(2, 0), X.repeat(2, 0))
    same(x.sort(0), np.sort(X, 0))
    same(x.view("int32"), X.view(np.int32))
    same(x.astype("int32"), X.astype(np.int32))
    same(x.astype(bool), X.astype(bool))
    same(x.sum(0, keepdims=True), X.sum(0, keepdims=True))


DTYPES = [
    *("bool", "int8", "uint8", "int32", "uint32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64"),
]
WEAK_WITH = [d for d in DTYPES if not d.endswith("64") or d == "complex64"]


@pytest.mark.parametrize("dtype", WEAK_WITH)
@pytest.mark.parametrize("scalar", [True, 3, 2.5, 1j])
def test_python_scalars_are_weak(dtype: str, scalar: Any) -> None:
    found = tnp.ones(2, dtype) * scalar
    assert found.dtype == (jnp.ones(2, dtype) * scalar).dtype
    compiled = td.jit(lambda x, s: x * s)(
        np.ones(2, td.dtypes.canonical(dtype)), scalar
    )
    assert compiled.dtype == found.dtype


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("other", DTYPES)
def test_arrays_promote_as_in_jax(dtype: str, other: str) -> None:
    found = tnp.ones(2, dtype) * tnp.ones(2, other)
    with jax.enable_x64(True):
        assert found.dtype == (jnp.ones(2, dtype) * jnp.ones(2, other)).dtype


@pytest.mark.parametrize("dtype", DTYPES)
def test_types_that_promote(dtype: str) -> None:
    with jax.enable_x64(True):
        for other in DTYPES:
            expected = jnp.promote_types(dtype, other)
            assert tnp.promote_types(dtype, other) == expected
            assert tnp.result_type(tnp.ones(2, dtype), other) == expected
    if dtype in WEAK_WITH:
        for scalar in (True, 3, 2.5, 1j):
            expected = jnp.result_type(jnp.ones(2, dtype), scalar)
            assert tnp.result_type(tnp.ones(2, dtype), scalar) == expected


def test_functions_of_python_numbers_are_weak() -> None:
    x = tnp.ones(2, tnp.bfloat16)
    for factor in (
        tnp.sqrt(2.0),
        tnp.maximum(1, 2.5),
        tnp.where(tnp.array(True), 1.5, 2),
    ):
        assert (x * factor).dtype == tnp.bfloat16


def test_a_weak_value_stays_weak() -> None:
    def step(rate: Any, x: Any) -> Any:
        return x - 0.5 * rate**2 * x / 3

    x = np.ones(3, ml_dtypes.bfloat16)
    assert td.jit(step)(0.1, x).dtype == tnp.bfloat16
    assert step(0.1, tnp.array(x)).dtype == tnp.bfloat16
    assert (tnp.array(x) * np.sqrt(2)).dtype == tnp.bfloat16
    assert td.jit(step)(np.float64(0.1), x).dtype == tnp.bfloat16


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), min_size=2, max_size=3)
)
def test_broadcasting_as_numpy(shapes: list[tuple[int, int]]) -> None:
    arrays = [np.ones(s, np.float32) for s in shapes]
    try:
        expected = np.broadcast_shapes(*shapes)
    except ValueError:
        with pytest.raises(ValueError, match="don't broadcast"):
            tnp.broadcast_shapes(*shapes)
        return
    assert tnp.broadcast_shapes(*shapes) == expected
    assert sum(map(tnp.array, arrays)).shape == expected


# Meeting NumPy ------------------------------------------------------------------------


def test_numpy_operators_give_our_arrays() -> None:
    x = tnp.array(X)
    for found in (Y + x, x + Y, Y @ x.T, np.float32(2) * x, np.float64(2) * x, x > Y):
        assert isinstance(found, td.Array)
    assert (np.float64(2) * x).dtype == tnp.float32
    y = Y.copy()
    y += x
    assert isinstance(y, np.ndarray)
    np.testing.assert_allclose(y, X + Y)


def test_numpy_functions_of_known_arrays_are_numpys() -> None:
    x = tnp.array(X)
    np.testing.assert_allclose(np.mean(x, axis=0), X.mean(0), rtol=1e-6)
    np.testing.assert_array_equal(np.concatenate([x, X]), np.concatenate([X, X]))
    assert np.array_equal(x, X) and np.shape(x) == (3, 4)
    assert np.add.reduce(x, axis=0).shape == (4,)
    assert isinstance(np.percentile(x, 50), np.floating)


def test_numpy_functions_are_traced_where_we_have_them() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.exp(x) * np.ones(4, np.float32), axis=-1)

    np.testing.assert_allclose(td.jit(f)(X), np.exp(X).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(td.grad(lambda x: f(x).sum())(X), np.exp(X), rtol=1e-6)
    with pytest.raises(TypeError, match=r"np\.real_if_close[\s\S]*treadle\.numpy"):
        td.jit(lambda x: np.real_if_close(x))(X)


def test_comparing_with_what_is_no_array() -> None:
    x = tnp.ones(2)
    assert (x == None) is False and (x != None) is True  # noqa: E711
    with pytest.raises(TypeError, match=r"got a list: \[1, 2\][\s\S]*tnp\.array"):
        x + [1, 2]  # noqa: RUF005
    with pytest.raises(TypeError, match="unsupported operand"):
        x + object()


def test_errors_name_the_users_line() -> None:
    with pytest.raises(ValueError) as caught:
        tnp.ones(3) + tnp.ones(4)
    message = str(caught.value)
    assert "add: shapes (3,) and (4,)" in message
    assert f"{__file__}:" in message
    with pytest.raises(ValueError, match=r"add: shapes[\s\S]*test_methods"):
        td.jit(lambda x: x + tnp.ones(4))(np.ones(3, np.float32))


def test_integers_to_negative_powers() -> None:
    with pytest.raises(ValueError, match="make the base a float"):
        tnp.arange(3) ** -1


def test_scalars_have_no_rows() -> None:
    with pytest.raises(TypeError, match="no rows"):
        list(tnp.ones(()))
    with pytest.raises(ValueError, match="needs two axes"):
        tnp.matrix_transpose(tnp.ones(3))


@pytest.mark.parametrize(
    "first",
    [
        "import treadle.numpy as tnp",
        "from treadle import numpy as tnp",
        "import treadle.numpy; tnp = treadle.numpy",
        "from treadle.numpy import fft; import treadle.numpy as tnp",
    ],
)
def test_importing_the_module_first(first: str) -> None:
    program = f"{first}\nassert tnp.__name__ == 'treadle.numpy' and tnp.ones(2).sum()"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_x_is_not_changed_by_methods() -> None:
    x = tnp.array(floats(4))
    x.sort()
    x.at[0].set(9.0)
    assert x[0].item() == floats(4)[0]


class Foreign:
    """Another library's array, which asks the other operand when it knows no answer."""

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.ones(3, np.float32)

    def __mul__(self, other: Any) -> Any:
        return NotImplemented


@pytest.mark.parametrize(
    "meet", [lambda x: x * Foreign(), lambda x: Foreign() * x, lambda x: x < Foreign()]
)
def test_other_libraries_arrays_under_a_trace(meet: Any) -> None:
    with pytest.raises(TypeError, match=r"takes arrays, got a Foreign[\s\S]*asarray"):
        td.jit(meet)(np.ones(3, np.float32))
    found = td.jit(lambda x: x * tnp.asarray(Foreign()))(np.ones(3, np.float32))
    assert (found == 1).all()

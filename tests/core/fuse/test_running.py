"""Running reductions as nests."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.native import runs_natively, shares_kernels
from treadle.ops import cumulative

rng = np.random.default_rng(0)
NAMES = ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"]
SHAPES = [(1,), (5,), (100,), (3, 17), (2, 5, 70), (4, 1, 6), (2, 33, 3), (3, 0, 2)]


def draw(*shape: int, dtype: str = "float32") -> Any:
    return tnp.asarray(rng.normal(size=shape) * 1.2).astype(dtype)


def running(name: str, axis: int, reverse: bool) -> Any:
    return lambda x: getattr(cumulative, name)(x, axis=axis, reverse=reverse)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("reverse", [False, True], ids=["", "reverse"])
@pytest.mark.parametrize("name", NAMES)
def test_along_every_axis(name: str, reverse: bool, shape: tuple[int, ...]) -> None:
    for axis in range(len(shape)):
        runs_natively(running(name, axis, reverse), draw(*shape))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int8", "uint32"])
@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name: str, dtype: str) -> None:
    x = draw(40, 33, dtype=dtype)
    if name == "cumlogsumexp" and x.dtype.kind in "iu":
        pytest.skip("of floats only")
    for axis in (0, 1):
        runs_natively(running(name, axis, False), x)


@pytest.mark.parametrize("axis", [0, 1])
def test_extremes_of_truth_values(axis: int) -> None:
    for name in ("cummax", "cummin"):
        runs_natively(running(name, axis, False), draw(20, 33) > 1)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str, axis: int) -> None:
    x = np.array(draw(40, 40))
    x[0, 0], x[3, 5], x[7, 9], x[:, 11], x[13] = -0.0, np.nan, np.inf, -np.inf, -np.inf
    function = running(name, axis, False)
    found, wanted = td.jit(function)(x), function(tnp.asarray(x))
    np.testing.assert_allclose(found, wanted, rtol=2e-4)
    if name != "cumlogsumexp":
        assert np.signbit(found[0, 0]) == np.signbit(wanted[0, 0])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", NAMES)
def test_gradients(name: str, axis: int) -> None:
    x = draw(9, 37)

    def gradient(x: Any) -> Any:
        return td.grad(lambda x: tnp.sum(tnp.sin(running(name, axis, True)(x))))(x)

    runs_natively(gradient, x)
    runs_natively(td.vmap(gradient, in_axes=2), tnp.stack([x, 2 * x], 2))
    runs_natively(lambda x: td.jvp(gradient, (x,), (x * x,))[1], x)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_linear_recurrence(axis: int, reverse: bool) -> None:
    def function(a: Any, b: Any) -> Any:
        return cumulative.linear_recurrence(a, b, axis=axis, reverse=reverse)

    runs_natively(function, draw(30, 41), draw(30, 41))
    runs_natively(lambda b: function(b.T, tnp.sin(b)), draw(20, 20))
    runs_natively(
        function, draw(5, 41, dtype="bfloat16"), draw(5, 41, dtype="bfloat16")
    )


def test_a_recurrence_of_huge_factors_stays_finite() -> None:
    factors, terms = np.full(100, 1e30, "float32"), np.zeros(100, "float32")
    found = td.jit(
        lambda a, b: cumulative.linear_recurrence(a, b, axis=0, reverse=False)
    )(factors, terms)
    np.testing.assert_array_equal(found, terms)


def test_of_constants_and_of_views() -> None:
    runs_natively(lambda: tnp.cumsum(tnp.ones((3, 50)), axis=1))
    runs_natively(lambda: tnp.cumsum(tnp.ones((3, 50)), axis=0))
    runs_natively(
        lambda x: tnp.cumsum(tnp.broadcast_to(x[:, None], (7, 30)), 1), draw(7)
    )
    runs_natively(lambda x: tnp.cumsum(tnp.exp(x).T[::2], 0), draw(11, 30))
    runs_natively(lambda x: tnp.cumsum(x.reshape(6, 5, 4).T, 1), draw(30, 4))


def test_sums_are_as_accurate_as_those_of_numpy() -> None:
    x = rng.uniform(size=1_000_003).astype("float32")
    exact = np.cumsum(x, dtype=np.float64)
    for shape, axis in (((-1,), 0), ((-1, 1), 0)):
        found = td.jit(running("cumsum", axis, False))(x.reshape(shape)).reshape(-1)
        ours = np.abs(np.asarray(found, np.float64) - exact).max()
        assert ours <= np.abs(np.cumsum(x).astype(np.float64) - exact).max()


LAYOUTS = [((-1,), 0), ((-1, 4), 0), ((4, -1), 1), ((-1, 1), 0)]


@pytest.mark.parametrize(("shape", "axis"), LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_sums_of_millions(dtype: str, shape: tuple[int, ...], axis: int) -> None:
    """Equal terms are the worst case: rounding errors all have the same sign."""
    x = np.asarray(tnp.full(2**21, 0.1, dtype)).reshape(shape)
    exact = np.cumsum(x.astype(np.longdouble), axis).astype(np.float64)
    bound = {"float32": 1e-5, "float64": 2e-14, "bfloat16": 4.1e-3}[dtype]
    function = running("cumsum", axis, False)
    for found in (function(tnp.asarray(x)), td.jit(function)(x)):
        found = np.asarray(found).astype(np.float64)
        np.testing.assert_allclose(found, exact, rtol=bound)


def test_sums_beyond_where_adding_one_changes_nothing() -> None:
    x = np.ones(2**25, "float32")
    for shape in ((-1,), (-1, 2)):
        rows = x.reshape(shape)
        for f in (tnp.cumsum, td.jit(tnp.cumsum, static="axis")):
            last = np.asarray(f(rows, axis=0))[-1]
            np.testing.assert_array_equal(last, np.full(last.shape, len(rows)))


@pytest.mark.parametrize(("shape", "axis"), LAYOUTS)
def test_logarithms_of_long_sums(shape: tuple[int, ...], axis: int) -> None:
    x = np.zeros(2**21, "float32").reshape(shape)
    exact = np.log(np.cumsum(np.ones(x.shape), axis))
    function = running("cumlogsumexp", axis, False)
    for found in (function(tnp.asarray(x)), td.jit(function)(x)):
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_infinities_in_long_sums(axis: int) -> None:
    """A total that has overflowed stays infinite, block after block."""
    x = np.ones((3000, 3), "float32")
    x[5, 0], x[5, 1], x[700, 1], x[5:9, 2] = np.inf, np.inf, -np.inf, 3e38
    x = x if axis == 0 else x.T
    function = running("cumsum", axis, False)
    with np.errstate(all="ignore"):
        wanted = np.cumsum(x, axis)
    for found in (function(tnp.asarray(x)), td.jit(function)(x)):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "complex64"])
@pytest.mark.parametrize("axis", [0, 1, (0, 2), (1, 2), None])
def test_long_sums_are_accurate_without_jit(dtype: str, axis: Any) -> None:
    x = np.full((1024, 64, 8), 0.1 if dtype == "float32" else 2**-10, dtype)
    wide = x.astype(complex if dtype == "complex64" else float)
    for name in ("sum", "mean"):
        found = np.asarray(getattr(tnp, name)(x, axis))
        assert found.dtype == x.dtype
        exact = getattr(wide, name)(axis)
        np.testing.assert_allclose(found, exact, rtol=1e-6)


def test_values_are_those_of_jax() -> None:
    x = np.array(draw(20, 50))
    for name in NAMES:
        for axis in (0, 1):
            wanted = getattr(jax.lax, name)(x, axis=axis, reverse=True)
            found = td.jit(running(name, axis, True))(x)
            np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_one_kernel_for_all_sizes() -> None:
    for axis in (0, 1):
        shares_kernels(running("cumsum", axis, False), [draw(5, 9)], [draw(300, 17)])

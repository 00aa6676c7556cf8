"""Scatters that combine with what is there."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.native import runs_natively, shares_kernels
from treadle.backends.devices import TARGETS
from treadle.check import check
from treadle.compile import stages
from treadle.ops import scatter

pytestmark = pytest.mark.usefixtures("checked_by_reference")

rng = np.random.default_rng(0)
WAYS = ["add", "multiply", "min", "max"]
DTYPES = ["float32", "float64", "float16", "bfloat16", "int8", "int32", "uint64"]


def array(*shape: int, dtype: str = "float32") -> Any:
    return tnp.asarray(rng.normal(size=shape) * 4).astype(dtype)


def indices(*shape: int, low: int = 0, high: int = 7) -> Any:
    return tnp.asarray(rng.integers(low, high, size=shape, dtype="int32"))


def put(way: str, **options: Any) -> Any:
    return lambda x, i, u: getattr(x.at[i], way)(u, **options)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("way", WAYS)
def test_rows_with_equal_indices(way: str, dtype: str) -> None:
    x, u = array(7, 70, dtype=dtype), array(20, 70, dtype=dtype)
    runs_natively(put(way), x, indices(20), u)


@pytest.mark.parametrize("way", WAYS)
def test_elements_and_places_outside(way: str) -> None:
    x, u = array(7), array(40)
    x, u = x.at[2].set(float("nan")), u.at[5].set(float("nan"))
    name = {"multiply": "mul"}.get(way, way)

    def dropping(x: Any, i: Any, u: Any) -> Any:
        options = {"axes": (0,), "sizes": (None,), "batch_dims": 0, "mode": "drop"}
        return getattr(scatter, f"scatter_{name}")(x, u, i, **options)

    runs_natively(dropping, x, indices(40, low=-3, high=12), u)
    runs_natively(put(way), x, indices(0), array(0))
    batched = td.vmap(put(way))
    runs_natively(batched, array(3, 7), indices(3, 9), array(3, 9))


@pytest.mark.parametrize(("way", "dtype"), [*zip(WAYS * 2, DTYPES, strict=False)])
def test_vectors_of_elements_with_equal_indices(way: str, dtype: str) -> None:
    for length in (33, 200):
        u = array(length, dtype=dtype)
        runs_natively(put(way), array(7, dtype=dtype), indices(length), u)
    u = array(3, 9, dtype=dtype)
    runs_natively(put(way), array(7, dtype=dtype), indices(3, 9), u)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("way", ["set", *WAYS])
def test_one_element_at_each_index(way: str, dtype: str) -> None:
    """An axis of length 1 that a reshape has made, of indices alone."""
    x, i, u = array(9, 50, dtype=dtype), indices(20, high=50), array(20, 1, dtype=dtype)

    def function(x: Any, i: Any, u: Any) -> Any:
        return put(way)(x[0], i[:, None], u)

    check(stages(td.jit(function).graph(x, i, u), TARGETS["cpu"]))
    runs_natively(function, x, i, u)


def test_sums_of_elements_are_in_their_order() -> None:
    i = rng.integers(-4, 9, 1000, dtype="int32")
    u = rng.normal(size=1000).astype("float32")
    inside = (i >= 0) & (i < 5)
    sums = np.zeros(5, "float32")
    np.add.at(sums, i[inside], u[inside])
    found = td.jit(lambda u, i: td.segment_sum(u, i, 5))(u, i)
    np.testing.assert_array_equal(found, sums)


@pytest.mark.parametrize("way", WAYS)
def test_gradients(way: str) -> None:
    def loss(x: Any, i: Any, u: Any) -> Any:
        return td.grad(lambda x, u: tnp.sum(put(way)(x, i, u) ** 2), argnums=(0, 1))(
            x, u
        )

    runs_natively(loss, array(7, 5), indices(9), array(9, 5))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 8, 10, 16, 17])
def test_short_rows_at_places_inside_and_outside(length: int, dtype: str) -> None:
    x, u = array(7, length, dtype=dtype), array(40, length, dtype=dtype)
    i = indices(40, low=-9, high=12)

    def function(x: Any, i: Any, u: Any) -> Any:
        put_in, added = x.at[i].set(u, mode="drop"), x.at[i].add(u, mode="drop")
        return put_in, added, x.at[i].max(u), x.at[i].get(mode="fill"), x[i]

    runs_natively(function, x, i, u)


def test_what_is_dropped_leaves_zeros_their_sign() -> None:
    x = np.full((3, 4), -0.0, "float32")
    found = td.jit(lambda x, i: x.at[i].add(1.0, mode="drop"))(x, np.array([5, 1, 9]))
    np.testing.assert_array_equal(
        np.signbit(found), np.repeat([[True], [False], [True]], 4, 1)
    )


def test_one_kernel_for_all_sizes() -> None:
    shares_kernels(
        put("max"),
        [array(7, 50), indices(9), array(9, 50)],
        [array(3, 40), indices(2), array(2, 40)],
    )


def _weighted(i: Any, j: Any, u: Any, s: Any, t: Any) -> Any:
    nothing = tnp.zeros((7, 70), u.dtype)
    return nothing.at[i].add(u * s[:, None]) + nothing.at[j].add(u * t[:, None])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_rows_that_are_weighted_and_added(dtype: str) -> None:
    i, j, u = indices(20), indices(20), array(20, 70, dtype=dtype)
    args = i, j, u, array(20, dtype=dtype), array(20, dtype=dtype)
    runs_natively(_weighted, *args)

    def others_read_them(i: Any, j: Any, u: Any, s: Any, t: Any) -> Any:
        terms = u * s[:, None]
        sums = tnp.zeros((7, 70), u.dtype).at[i].add(terms)
        return sums, tnp.sum(terms, 0), sums + sums, _weighted(i, j, sums[i], s, t)

    runs_natively(others_read_them, *args)


def test_weighted_rows_are_neither_stored_nor_added_up() -> None:
    args = indices(20), indices(20), array(20, 70), array(20), array(20)
    steps = [line.split() for line in td.jit(_weighted).explain(*args).splitlines()]
    steps = [words for words in steps if words[-1] in ("mul", "add", "scatter_add")]
    assert not [words for words in steps if words[-1] != "scatter_add"]
    assert sum(words[1] == "zero" for words in steps) == 1


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
@pytest.mark.parametrize("name", ["max", "min"])
def test_extremes_leave_out_places_that_are_not_there(name: str, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = (rng.normal(size=20) * 9).astype(dtype)
    updates = (rng.normal(size=100) * 9).astype(dtype)
    places = rng.integers(0, 40, 100).astype("int32")
    wanted, inside = x.copy(), places < 20
    ufunc = {"max": np.maximum, "min": np.minimum}[name]
    ufunc.at(wanted, places[inside], updates[inside])

    def function(x: Any, i: Any, u: Any) -> Any:
        return getattr(x.at[i], name)(u, mode="drop")

    np.testing.assert_array_equal(td.jit(function)(x, places, updates), wanted)


@pytest.mark.parametrize("shape", [(0,), (1,), (5,), (3, 2), (2, 0)], ids=str)
@pytest.mark.parametrize("name", ["add", "multiply", "subtract"])
def test_one_number_at_one_known_place_many_times(name: str, shape: Any) -> None:
    x = np.arange(1, 5, dtype="float32")
    wanted = x.copy()
    getattr(np, name).at(wanted, np.full(shape, 2), np.float32(3))

    def function(x: Any) -> Any:
        return getattr(x.at[tnp.full(shape, 2, "int32")], name)(3)

    np.testing.assert_array_equal(td.jit(function)(x), wanted)


WINDOWS: dict[str, Any] = {
    "a value": lambda x, y: x.at[1:-1, 2:].add(y[1:-1, 2:]),
    "weighted": lambda x, y: x.at[1:, :-1].subtract(0.5 * (y[1:, 1:] - y[:-1, 1:])),
    "of two": lambda x, y: x.at[2:].add(y[2:] * x[1:2] - y[:-2].at[0].set(1)),
    "of itself": lambda x, y: x.at[1:].add(x[:-1] * 2).at[:, 3].add(y[:, 0]),
    "a row": lambda x, y: x.at[-1].add(1).at[::-1].add(y).at[2:2].add(3),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int32"])
def test_sums_in_one_window(name: str, dtype: str) -> None:
    f, x, y = WINDOWS[name], array(7, 35, dtype=dtype), array(7, 35, dtype=dtype)
    runs_natively(f, x, y)
    runs_natively(
        td.vmap(f), array(3, 7, 35, dtype=dtype), array(3, 7, 35, dtype=dtype)
    )
    # In a loop x is written over.
    runs_natively(lambda x, y: td.fori_loop(0, 3, lambda _, x: f(x, y), x), x, y)
    if dtype == "float64":
        g = jax.grad(lambda x, y: (WINDOWS[name](x, y) ** 2).sum(), (0, 1))
        with jax.enable_x64(True):
            wanted = g(jnp.asarray(np.asarray(x)), jnp.asarray(np.asarray(y)))
        ours = td.jit(td.grad(lambda x, y: tnp.sum(f(x, y) ** 2), (0, 1)))(x, y)
        for a, b in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_what_a_window_gets_is_computed_while_it_is_written() -> None:
    def step(x: Any, y: Any) -> Any:
        x = x.at[1:-1].add(0.5 * (y[2:] - y[:-2]))
        return x, y.at[1:-1].add(x[2:] - x[:-2])

    def loop(x: Any, y: Any) -> Any:
        return td.fori_loop(0, 5, lambda _, c: step(*c), (x, y))

    x, y = array(40, 35), array(40, 35)
    runs_natively(loop, x, y)
    plan = td.jit(loop).lower(x, y).plan
    (body,) = [s.body for s in plan.steps if hasattr(s, "body")]
    assert len(body) == 2

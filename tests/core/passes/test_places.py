"""Lookups along an axis that is not the first need no transposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.native import runs_natively, steps_of

pytestmark = pytest.mark.usefixtures("checked_by_reference")

rng = np.random.default_rng(0)


def drawn(*shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype("float32")


PLACES = np.array([2, -1, 0, 2, 1], "int32")
PAIRS = np.array([[2, -1, 0], [1, 1, 0]], "int32")
READS: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray, np.ndarray]] = {
    "last axis": (lambda x, i: x[:, i], drawn(7, 4), PLACES),
    "last of three": (lambda x, i: x[..., i], drawn(3, 5, 4), PLACES),
    "between others": (lambda x, i: x[:, i], drawn(3, 4, 5), PLACES),
    "two axes of places": (lambda x, i: x[:, i], drawn(6, 4), PAIRS),
    "two axes of an array": (lambda x, i: x[:, i, i], drawn(3, 4, 5), PLACES),
}


def gradient(library: Any, read: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda x, i: library.grad(lambda x: (read(x, i) ** 2).sum())(x)


@pytest.mark.parametrize("name", READS)
def test_reads(name: str) -> None:
    read, x, places = READS[name]
    runs_natively(read, x, places)
    np.testing.assert_array_equal(td.jit(read)(x, places), read(x, places))
    assert len(steps_of(read, x, places)) == 1


@pytest.mark.parametrize("name", READS)
def test_gradients(name: str) -> None:
    read, x, places = READS[name]
    found = td.jit(gradient(td, read))(x, places)
    wanted = gradient(jax, read)(jnp.asarray(x), places)
    np.testing.assert_allclose(found, wanted, 1e-6)


@pytest.mark.parametrize("how", ["add", "max", "multiply", "set"])
def test_writes(how: str) -> None:
    """Places that repeat are met in their order."""
    x, updates = drawn(7, 4), drawn(7, len(PLACES))

    def write(x: Any, i: Any, u: Any) -> Any:
        return getattr(x.at[:, i], how)(u)

    runs_natively(write, *map(tnp.asarray, (x, PLACES, updates)))
    found = td.jit(write)(x, PLACES, updates)
    if how == "set":
        wanted = x.copy()
        for k, place in enumerate(PLACES):
            wanted[:, place] = updates[:, k]
        np.testing.assert_array_equal(found, wanted)
    else:
        wanted = write(jnp.asarray(x), PLACES, updates)
        np.testing.assert_allclose(found, wanted, 1e-6)


def test_places_that_examples_share() -> None:
    x = drawn(6, 4)
    pick = td.vmap(lambda row, i: row[i], in_axes=(0, None))
    np.testing.assert_array_equal(td.jit(pick)(x, PLACES), x[:, PLACES])


@pytest.mark.parametrize("shape", [(300, 3), (300, 1), (90, 16), (40, 2)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bool", "float64"])
def test_few_places_of_each_row(shape: tuple[int, int], dtype: str) -> None:
    x = tnp.asarray(drawn(*shape) > 0 if dtype == "bool" else drawn(*shape))
    x = x.astype(dtype)
    places = rng.integers(0, shape[1], (shape[0], 3)).astype("int32")

    def pick(x: Any, i: Any) -> Any:
        return tnp.take_along_axis(x, i, 1)

    wanted = np.take_along_axis(np.asarray(x), places, 1)
    np.testing.assert_array_equal(td.jit(pick)(x, places), wanted)


@pytest.mark.parametrize("gradient", [False, True])
def test_a_transposed_piece_is_written_where_a_traced_start_says(
    gradient: bool,
) -> None:
    def written(library: Any) -> Callable[..., Any]:
        def function(x: Any, u: Any, i: Any) -> Any:
            return library.lax.dynamic_update_slice(x, u.T, (i, i)) ** 2

        if not gradient:
            return function
        return library.grad(lambda x, u, i: function(x, u, i).sum(), (0, 1))

    given = drawn(5, 6), drawn(2, 3), np.int32(1)
    found, wanted = td.jit(written(td))(*given), written(jax)(*given)
    for ours, theirs in zip(
        td.tree.leaves(found), jax.tree.leaves(wanted), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)

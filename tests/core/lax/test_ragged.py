"""Products of which each row has a matrix of its group, with JAX's as the oracle."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
from tests.refused import refused

NUMBERS = np.random.default_rng(0)


def arrays(m: int, k: int, n: int, groups: int) -> tuple[np.ndarray, np.ndarray]:
    x, w = NUMBERS.normal(size=(m, k)), NUMBERS.normal(size=(groups, k, n))
    return x.astype(np.float32), w.astype(np.float32)


def near(found: Any, wanted: Any) -> None:
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


CASES = {
    "some rows left": (5, 2, 1, [2, 0, 2]),
    "ends of blocks": (300, 7, 5, [0, 65, 64, 1, 100]),
    "one": (10, 3, 4, [10]),
    "many": (200, 16, 8, [1] * 50),
    "no rows": (0, 3, 4, [0, 0]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_ragged_dot(case: tuple[int, int, int, list[int]]) -> None:
    *sizes, loads = case
    x, w = arrays(*sizes, len(loads))
    counts = np.array(loads, np.int32)
    wanted = jax.lax.ragged_dot(x, w, counts)
    near(td.lax.ragged_dot(x, w, counts), wanted)
    near(td.jit(td.lax.ragged_dot)(x, w, counts), wanted)
    tangent = td.jvp(lambda x, w: td.lax.ragged_dot(x, w, counts), (x, w), (2 * x, w))
    near(tangent[1], 3 * wanted)


def test_ragged_dot_has_jaxs_gradients() -> None:
    x, w = arrays(90, 5, 4, 3)

    def loss(product: Any, x: Any, w: Any, counts: Any) -> Any:
        return (product(x, w, counts) ** 2).sum()

    slope = td.jit(td.grad(lambda *a: loss(td.lax.ragged_dot, *a), argnums=(0, 1)))
    jaxs = jax.grad(lambda *a: loss(jax.lax.ragged_dot, *a), argnums=(0, 1))
    for counts in ([70, 0, 10], [0, 90, 0]):
        where = np.array(counts, np.int32)
        for found, wanted in zip(slope(x, w, where), jaxs(x, w, where), strict=True):
            near(found, wanted)


def test_ragged_dot_of_batches_and_other_sizes() -> None:
    x, w = arrays(60, 4, 5, 2)
    counts = np.array([[3, 9], [20, 0], [0, 1]])
    batches = x.reshape(3, 20, 4)
    found = td.vmap(td.lax.ragged_dot, in_axes=(0, None, 0))(batches, w, counts)
    pairs = zip(batches, counts, strict=True)
    near(found, np.stack([jax.lax.ragged_dot(b, w, c) for b, c in pairs]))
    product = td.jit(td.lax.ragged_dot)
    for m in (70, 130, 60, 200, 64):
        x, _ = arrays(m, 4, 5, 2)
        counts = np.array([9, m - 20])
        near(product(x, w, counts), td.lax.ragged_dot(x, w, counts))
    assert len(product.report().programs) <= 2


def test_ragged_dot_of_half_floats() -> None:
    x, w = (a.astype("bfloat16") for a in arrays(80, 32, 8, 2))
    counts = np.array([30, 50], np.int32)
    found = td.lax.ragged_dot(x, w, counts, preferred_element_type="float32")
    wanted = jax.lax.ragged_dot(x, w, counts, preferred_element_type=np.float32)
    near(found, np.asarray(wanted))


def test_what_ragged_dot_refuses() -> None:
    x, w = arrays(20, 4, 5, 2)
    counts = np.array([3, 9])
    dot = td.lax.ragged_dot
    refused(
        lambda: dot(x, w, np.arange(3)), ValueError, "ragged_dot of f32[20,4]", "i64[3]"
    )
    refused(lambda: dot(x[None], w, counts), ValueError, "expected (m, k), (g, k, n)")
    refused(lambda: dot(x, w, np.ones(2)), TypeError, "group_sizes are integers")
    refused(
        lambda: dot(x, w, counts, group_offset=1), NotImplementedError, "group_offset=1"
    )

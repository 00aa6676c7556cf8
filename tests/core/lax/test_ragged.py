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


def numbers_for(lhs: str, rhs: str, out: str, ragged: str) -> tuple[Any, Any, Any]:
    """Dimension numbers of einsum's letters, of which g stands for groups."""
    both = [c for c in lhs if c in rhs]
    sums, batch = [c for c in both if c not in out], [c for c in both if c in out]
    pairs = [
        ([lhs.index(c) for c in of], [rhs.index(c) for c in of]) for of in (sums, batch)
    ]
    groups = [rhs.index("g")] if "g" in rhs else []
    return tuple(pairs), [lhs.index(ragged)], groups


GENERAL = {
    "left": ("mk,gkn->mn", "m", "g"),
    "left, axes in other orders": ("kbxmj,nkgb->bxmjn", "m", "g"),
    "left, sizes for each": ("kbxmj,nkgb->bxmjn", "m", "bxg"),
    "summed": ("km,kn->gmn", "k", "g"),
    "summed, axes in other orders": ("mxbkj,jkxnb->gbmn", "k", "g"),
    "summed, sizes for each": ("mxbkj,jkxnb->gbmn", "k", "bxg"),
    "of a batch": ("bmk,bkn->bmn", "b", "g"),
}
LENGTHS = {"m": 70, "k": 90, "n": 3, "g": 3, "b": 2, "x": 3, "j": 2}


@pytest.mark.parametrize(
    "dtype",
    [
        "float32",
        pytest.param("int32", marks=pytest.mark.slow),
        pytest.param("complex64", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("case", GENERAL.values(), ids=GENERAL)
def test_ragged_dot_general(case: tuple[str, str, str], dtype: str) -> None:
    spelled, ragged, of_sizes = case
    operands, out = spelled.split("->")
    lhs, rhs = operands.split(",")
    x, y = (
        NUMBERS.normal(0, 3, [LENGTHS[c] for c in letters]).astype(dtype)
        for letters in (lhs, rhs)
    )
    most = LENGTHS[ragged] // 3
    sizes = NUMBERS.integers(0, most + 1, [LENGTHS[c] for c in of_sizes])
    numbers = numbers_for(lhs, rhs, out, ragged)
    jaxs = jax.lax.RaggedDotDimensionNumbers(*numbers)
    ours = td.lax.RaggedDotDimensionNumbers(*numbers)
    wanted = jax.lax.ragged_dot_general(x, y, sizes.astype(np.int32), jaxs)
    for found in (
        td.lax.ragged_dot_general(x, y, sizes, ours),
        td.jit(lambda *a: td.lax.ragged_dot_general(*a, jaxs))(x, y, sizes),
    ):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-2)
    if dtype != "float32":
        return
    # Linear in each operand: a derivative is the product itself.
    weights = NUMBERS.normal(size=wanted.shape).astype(dtype)

    def loss(x: Any, y: Any) -> Any:
        return (td.lax.ragged_dot_general(x, y, sizes, ours) * weights).sum()

    value = float((wanted * weights).sum())
    for slope, at in zip(td.jit(td.grad(loss, (0, 1)))(x, y), (x, y), strict=True):
        np.testing.assert_allclose((slope * at).sum(), value, rtol=1e-3, atol=1e-2)


def test_ragged_dot_general_says_what_does_not_fit() -> None:
    x, sizes = np.ones((6, 2)), np.array([2, 3])
    sums = (((0,), (0,)), ((), ()))
    numbers = td.lax.RaggedDotDimensionNumbers
    for given, words in (
        (numbers(sums, (), ()), "expected one ragged axis"),
        (numbers(sums, (0,), (1,)), "expected one ragged axis"),
        (numbers(sums, (1,), (1,)), "2 groups, and matrices for 4"),
    ):
        y = np.ones((6, 4)) if words[0] == "2" else x
        refused(
            lambda y=y, n=given: td.lax.ragged_dot_general(x, y, sizes, n),
            ValueError,
            words,
        )
    refused(
        lambda: td.lax.ragged_dot_general(
            x, x, np.ones((2, 2), int), numbers(sums, (0,), ())
        ),
        ValueError,
        "group_sizes have shape (2, 2), expected (2,)",
    )
    refused(
        lambda: td.lax.ragged_dot_general(x, x, np.ones(2), numbers(sums, (0,), ())),
        TypeError,
        "group_sizes are integers, got float",
    )

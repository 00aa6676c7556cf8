"""Sorts are orders of unsigned integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.passes.shown import equations, untouched
from treadle import dtypes, lax
from treadle.ir.check import check
from treadle.ops.sort import order, sort, top_k
from treadle.passes.dce import drop_dead
from treadle.passes.sorting import lower_sorts
from treadle.run.eager import evaluate

SPECIAL = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 7, 3]
DTYPES = (
    "float32",
    "float64",
    "float16",
    "int8",
    "int32",
    "int64",
    "uint8",
    "uint64",
    "bool",
)


def drawn(dtype: str) -> np.ndarray:
    d = np.dtype(dtype)
    if d.kind == "f":
        return np.random.default_rng(0).permutation(np.array(SPECIAL).astype(d))
    if d.kind == "b":
        return np.array([True, False, True])
    info = np.iinfo(d)
    ends = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 5, 2]
    return np.array([*ends, *ends[2:5]], d)


def lowered(function: Any, *args: Any) -> list[np.ndarray]:
    """The results of a function's graph without sorts."""
    graph = lower_sorts(traced(function, *args))
    check(graph)
    every = equations(graph)
    assert not {eq.op for eq in every} & {sort, top_k}
    orders = [eq for eq in every if eq.op is order]
    assert all(
        eq.inputs[0].type.dtype in (dtypes.uint32, dtypes.uint64) for eq in orders
    )
    return [np.asarray(a) for a in evaluate(graph, args)]


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_is_in_the_order_of_numpy(dtype: str) -> None:
    x = drawn(dtype)
    found, places = lowered(lambda x: (tnp.sort(x), tnp.argsort(x)), x)
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, np.sort(x, kind="stable"))
    np.testing.assert_array_equal(places, np.argsort(x, kind="stable"))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_along_any_axis(axis: int) -> None:
    x = np.random.default_rng(0).integers(0, 4, (3, 4, 5))
    found, places = lowered(lambda x: (tnp.sort(x, axis), tnp.argsort(x, axis)), x)
    np.testing.assert_array_equal(found, np.sort(x, axis))
    np.testing.assert_array_equal(places, np.argsort(x, axis, kind="stable"))


def test_several_keys_and_what_goes_along() -> None:
    r = np.random.default_rng(0)
    a, b, c = (r.integers(0, 3, 40) for _ in range(3))
    keys = a, b.astype(np.float32), c.astype(np.int8)
    for count in (1, 2, 3):
        found = lowered(
            lambda *xs, n=count: lax.sort(xs, num_keys=n, is_stable=True), *keys
        )
        wanted = np.lexsort(keys[:count][::-1])
        for x, y in zip(found, keys, strict=True):
            np.testing.assert_array_equal(x, y[wanted])


def test_places_are_not_gathered() -> None:
    """What counts along the axis is the order itself."""
    graph = drop_dead(lower_sorts(traced(tnp.argsort, np.ones(5, np.float32))))
    assert [eq.op.name for eq in graph.equations if "gather" in eq.op.name] == []
    # Counting along another axis is not.
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)

    def rows(x: Any) -> Any:
        number = lax.broadcasted_iota("int32", (3, 4), 0)
        return lax.sort((x, number), dimension=0), lax.sort((x, number), dimension=1)

    (a, i), (b, j) = td.tree.unflatten(
        td.tree.structure(((0, 0), (0, 0))), lowered(rows, x)
    )
    np.testing.assert_array_equal(i, np.argsort(x, 0, kind="stable"))
    np.testing.assert_array_equal(j, np.broadcast_to(np.arange(3)[:, None], (3, 4)))
    np.testing.assert_array_equal(a, np.sort(x, 0))
    np.testing.assert_array_equal(b, np.sort(x, 1))


@pytest.mark.parametrize("k", [0, 1, 3, 12])
def test_the_largest_first(k: int) -> None:
    x = drawn("float32")
    found, places = lowered(lambda x: lax.top_k(x, k), x)
    assert places.shape == (k,)
    np.testing.assert_array_equal(found, x[places])
    np.testing.assert_array_equal(found, np.sort(x)[::-1][:k])
    plain = drawn("int32")
    found, places = lowered(lambda x: lax.top_k(x, min(k, 11)), plain)
    wanted = np.argsort(-plain.astype("int64"), kind="stable")[: min(k, 11)]
    np.testing.assert_array_equal(places, wanted)
    np.testing.assert_array_equal(found, plain[wanted])


def test_rows_of_one_element_are_sorted() -> None:
    assert [
        eq.op for eq in lower_sorts(traced(tnp.sort, np.ones((4, 1)))).equations
    ] == []
    assert len(lower_sorts(traced(tnp.sort, np.ones((1, 2)))).equations) > 0


def test_others_stay_and_lines_are_kept() -> None:
    assert untouched(lower_sorts, lambda x: tnp.exp(x), np.ones(3))
    graph = traced(tnp.sort, np.ones(3, np.float32))
    assert {eq.source for eq in lower_sorts(graph).equations} == {
        graph.equations[0].source
    }
    loop = lambda x: td.scan(lambda c, _: (tnp.sort(-c), None), x, None, length=2)[0]  # noqa: E731
    (found,) = lowered(loop, np.array([1.0, 3, 2], np.float32))
    np.testing.assert_array_equal(found, [1, 2, 3])

"""Reductions over several axes: in which order, and in which dtype between."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import traced
from tests.core.fuse.lowering.alone import normal
from tests.core.passes.shown import passed, untouched
from treadle.passes.reductions import split_reductions

CASES: dict[str, tuple[Any, tuple[int, ...], str, list[str]]] = {
    "all": (
        lambda x: x.sum(),
        (3, 4, 5),
        "float32",
        [
            "b:f32[3,4] = reduce_sum[axes=(2,)] a",
            "c:f32[3] = reduce_sum[axes=(1,)] b",
            "d:f32[] = reduce_sum[axes=(0,)] c",
        ],
    ),
    "the last two": (
        lambda x: x.prod((1, 2)),
        (3, 4, 5),
        "float32",
        [
            "b:f32[3,4] = reduce_prod[axes=(2,)] a",
            "c:f32[3] = reduce_prod[axes=(1,)] b",
        ],
    ),
    # The axis before the last is kept: rows as long as both are first.
    "the first and the last": (
        lambda x: x.sum((0, 2)),
        (3, 4, 5),
        "float32",
        ["b:f32[4,5] = reduce_sum[axes=(0,)] a", "c:f32[4] = reduce_sum[axes=(1,)] b"],
    ),
    "two and the last": (
        lambda x: x.max((0, 1, 3)),
        (2, 3, 4, 5),
        "float32",
        ["b:f32[4,5] = reduce_max[axes=(0,1)] a", "c:f32[4] = reduce_max[axes=(1,)] b"],
    ),
    "not the last": (
        lambda x: x.max((0, 1)),
        (3, 4, 5),
        "float32",
        ["b:f32[5] = reduce_max[axes=(0,1)] a"],
    ),
    "the last, of one element": (
        lambda x: x.sum((1, 2)),
        (3, 4, 1),
        "float32",
        ["b:f32[3,4] = reduce_sum[axes=(2,)] a", "c:f32[3] = reduce_sum[axes=(1,)] b"],
    ),
    "an axis that is one for all sizes": (
        lambda x: x[:, :, None].sum((1, 2)),
        (3, 4),
        "float32",
        [
            "b:f32[3,4,1] = reshape[shape=(3,4,1)] a",
            "c:f32[3,1] = reduce_sum[axes=(1,)] b",
            "d:f32[3] = reshape[shape=(3,)] c",
        ],
    ),
    "nothing but such an axis": (
        lambda x: x[:, None].max(1) * 2,
        (3, 4),
        "float32",
        [
            "b:f32[3,1,4] = reshape[shape=(3,1,4)] a",
            "c:f32[3,4] = reshape[shape=(3,4)] b",
            "d:f32[3,4] = mul c 2.0",
        ],
    ),
    "half floats": (
        lambda x: x.sum(),
        (3, 4),
        "float16",
        [
            "b:f32[3,4] = convert[dtype=float32] a",
            "c:f32[3] = reduce_sum[axes=(1,)] b",
            "d:f32[] = reduce_sum[axes=(0,)] c",
            "e:f16[] = convert[dtype=float16] d",
        ],
    ),
    "half floats along one axis": (
        lambda x: x.sum(1),
        (3, 4),
        "float16",
        ["b:f16[3] = reduce_sum[axes=(1,)] a"],
    ),
    "the largest half float": (
        lambda x: x.max(),
        (3, 4),
        "float16",
        ["b:f16[3] = reduce_max[axes=(1,)] a", "c:f16[] = reduce_max[axes=(0,)] b"],
    ),
    "short integers": (
        lambda x: x.sum(dtype="int16"),
        (3, 4),
        "int16",
        ["b:i16[3] = reduce_sum[axes=(1,)] a", "c:i16[] = reduce_sum[axes=(0,)] b"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_last_axis_alone_or_none_of_it(name: str) -> None:
    function, shape, dtype, wanted = CASES[name]
    x = (normal(*shape) * 2).astype(dtype)
    assert passed(split_reductions, function, x)[:-1] == wanted


def test_places_of_one_element_are_zero() -> None:
    assert passed(split_reductions, lambda x: tnp.argmax(x, 1), normal(3, 1)) == [
        "b:i32[3] = broadcast_in_dim[shape=(3,) dims=()] 0",
        "return b",
    ]
    assert passed(split_reductions, lambda x: tnp.argmin(x, 0), normal(1)) == [
        "return 0"
    ]
    assert untouched(split_reductions, lambda x: tnp.argmax(x, 1), normal(1, 2))
    assert untouched(split_reductions, tnp.exp, normal(1, 2))


def test_lines_of_the_user_are_kept() -> None:
    graph = traced(lambda x: x.astype("float16").sum(), normal(3, 4))
    sources = {eq.source for eq in split_reductions(graph).equations}
    assert sources == {graph.equations[0].source}


@pytest.mark.parametrize("kind", ["sum", "max"])
@pytest.mark.parametrize("axes", [(0, 2), (1, 2), (0, 1, 2)])
def test_an_open_length_that_is_one_changes_no_bits(
    kind: str, axes: tuple[int, ...]
) -> None:
    """Sums are over the last axis first, whether it has one element or not."""

    def function(x: Any) -> Any:
        return getattr(tnp, kind)(x, axes)

    opened = td.jit(function, dynamic={"x": ("a", "b", "c")})
    for shape in ((5, 6, 7), (70, 6, 1), (7, 33, 1), (1, 1, 1)):
        x = normal(*shape)
        found = opened(x)
        assert np.array_equal(found, td.jit(lambda x: function(x))(x))
        np.testing.assert_allclose(found, getattr(np, kind)(x, axes), 1e-4, 1e-5)

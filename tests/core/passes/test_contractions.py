"""Which products stay what they are, and what becomes of others."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.fuse.lowering.alone import normal
from tests.core.passes.shown import lines, opened, passed, untouched
from treadle import dtypes
from treadle.ir.check import check
from treadle.passes.contractions import lower_contractions
from treadle.trace.lowering import Multiplied

H = dtypes.float16
plain = partial(lower_contractions, widen=True)
halves = partial(lower_contractions, widen=True, multiplied=Multiplied((H,), (H,)))


def ops(apply: Any, function: Any, *args: Any) -> list[str]:
    """What each equation makes, and how: ``i32[3] convert``."""
    passed(apply, function, *args)
    graph = apply(traced(function, *args))
    return [f"{eq.outputs[0].type} {eq.op.name}" for eq in graph.equations]


def small(*shape: int, dtype: str = "int16") -> np.ndarray:
    return np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)


def test_products_that_kernels_have_stay() -> None:
    multiply = lambda x, w: x @ w  # noqa: E731
    for dtype in ("float32", "float64", "int32", "uint32", "complex64"):
        x, w = array(3, 4, dtype=dtype), array(4, 5, dtype=dtype)
        assert untouched(plain, multiply, x, w)
    assert untouched(plain, lambda x: tnp.exp(x), array(3))


def test_vectors_that_are_rows_columns_or_flat_are_summed_where_they_lie() -> None:
    x, y, i = array(3, 4), array(12), np.array(2, np.int32)
    z = normal(3, 4)
    for function, args in (
        (lambda x, y: x.reshape(-1) @ y, (z, y)),
        (lambda x, y: y @ (x * 2).reshape(-1), (z, y)),
        (lambda x, y: x.reshape(-1) @ y.T.reshape(-1), (z, z)),
        (lambda x, y: y.reshape(2, 6).reshape(-1) @ y, (z, y)),
        (lambda x, y: x[0] @ y[1], (z, z)),
        (lambda x, i: x[:, i] @ x[:, 0], (z, i)),
        (lambda x, i: x[i] @ x.T, (z, i)),
    ):
        assert "dot_general" not in " ".join(ops(plain, function, *args))
    # Of several results, each is a sum of the matrix kernel's.
    assert "f32[4] dot_general" in ops(plain, lambda x, w: w[0] @ x, x, array(2, 3))


def test_products_of_nothing_are_zeros() -> None:
    x, w = array(3, 0), array(0, 5)
    assert passed(plain, lambda x, w: x @ w, x, w)[:-1] == [
        "c:f32[3,5] = broadcast_in_dim[shape=(3,5) dims=()] 0.0"
    ]
    assert ops(plain, lambda x, w: w.T @ x.T, x, w)[-1] == "f32[5,3] broadcast_in_dim"


def test_short_integers_are_summed_in_32_bits_and_cut() -> None:
    for dtype, name in (("int16", "i16"), ("uint8", "u8")):
        x, w = small(3, 40, dtype=dtype), small(40, 5, dtype=dtype)
        assert ops(plain, lambda x, w: x @ w, x, w) == [
            "i32[3,40] convert",
            "i32[40,5] convert",
            "i32[3,5] dot_general",
            f"{name}[3,5] convert",
        ]


def test_long_integers_are_multiplied_and_summed() -> None:
    x, w = small(3, 4, dtype="int64"), small(4, 5, dtype="int64")
    assert passed(plain, lambda x, w: x @ w, x, w)[:-1] == [
        "c:i64[3,4,5] = broadcast_in_dim[shape=(3,4,5) dims=(0,1)] a",
        "d:i64[3,4,5] = broadcast_in_dim[shape=(3,4,5) dims=(1,2)] b",
        "e:i64[3,4,5] = mul c d",
        "f:i64[3,5] = reduce_sum[axes=(1,)] e",
    ]


HALF_PRODUCTS: dict[
    str, tuple[Any, tuple[int, ...], tuple[int, ...], list[str], list[str]]
] = {
    "matrices": (
        lambda x, w: x @ w,
        (3, 4),
        (4, 5),
        [
            "f32[3,4] convert",
            "f32[4,5] convert",
            "f32[3,5] dot_general",
            "f16[3,5] convert",
        ],
        ["f32[3,5] dot_general", "f16[3,5] convert"],
    ),
    "a turned matrix": (
        lambda x, w: x @ w.T,
        (3, 4),
        (5, 4),
        [
            "f16[4,5] transpose",
            "f32[3,4] convert",
            "f32[5,4] convert",
            "f32[4,5] transpose",
            "f32[3,5] dot_general",
            "f16[3,5] convert",
        ],
        ["f16[4,5] transpose", "f32[3,5] dot_general", "f16[3,5] convert"],
    ),
    "sums of one term": (
        lambda x, w: x @ w,
        (3, 1),
        (1, 5),
        [
            "f32[3,1] convert",
            "f32[1,5] convert",
            "f32[3,1,5] broadcast_in_dim",
            "f32[3,1,5] broadcast_in_dim",
            "f32[3,1,5] multiply_add",
            "f32[3,5] reduce_sum",
            "f16[3,5] convert",
        ],
        [
            "f32[3,1] convert",
            "f32[1,5] convert",
            "f32[3,1,5] broadcast_in_dim",
            "f32[3,1,5] broadcast_in_dim",
            "f32[3,1,5] multiply_add",
            "f32[3,5] reduce_sum",
            "f16[3,5] convert",
        ],
    ),
}


@pytest.mark.parametrize("name", HALF_PRODUCTS)
def test_half_floats_are_summed_in_single_precision(name: str) -> None:
    function, x, w, wide, multiplied = HALF_PRODUCTS[name]
    given = array(*x, dtype=H), array(*w, dtype=H)
    assert ops(plain, function, *given) == wide
    assert ops(halves, function, *given) == multiplied
    # Where halves are what a device computes in, they stay.
    narrow = partial(lower_contractions, widen=False)
    graph = narrow(traced(function, *given))
    assert [eq.outputs[0].type.dtype for eq in graph.equations] == [H] * len(
        graph.equations
    )


def test_products_with_vectors_are_sums_along_what_lies_side_by_side() -> None:
    x, v = normal(3, 8), normal(8)
    assert passed(plain, lambda x, v: x @ v, x, v)[:-1] == [
        "c:f32[3,8] = broadcast_in_dim[shape=(3,8) dims=(0,1)] a",
        "d:f32[3,8] = broadcast_in_dim[shape=(3,8) dims=(1,)] b",
        "e:f32[3,8] = multiply_add[minus=None] c d 0.0",
        "f:f32[3] = reduce_sum[axes=(1,)] e",
    ]
    # Down columns, outside of them.
    assert passed(plain, lambda v, x: v @ x, normal(8), normal(8, 3))[:-1] == [
        "c:f32[8,3] = broadcast_in_dim[shape=(8,3) dims=(0,)] a",
        "d:f32[8,3] = broadcast_in_dim[shape=(8,3) dims=(0,1)] b",
        "e:f32[8,3] = multiply_add[minus=None] c d 0.0",
        "f:f32[3] = reduce_sum[axes=(0,)] e",
    ]
    assert ops(plain, lambda v, w: v @ w, v, v)[-1] == "f32[] reduce_sum"


def test_batches_that_lie_side_by_side_are_summed_over_rows() -> None:
    found = lines(plain(traced(lambda x, y: tnp.einsum("ij,ij->j", x, y), *_PAIR)))
    assert [line for line in found if "transpose" in line] == []
    assert any("reduce_sum[axes=(0,)" in line for line in found)
    # Along what lies side by side elsewhere.
    found = lines(plain(traced(lambda x, y: tnp.einsum("ij,ij->i", x, y), *_PAIR)))
    assert any("reduce_sum[axes=(1,)" in line for line in found)
    for of in ("ij,ij->j", "ij,ij->i"):
        np.testing.assert_allclose(
            td.jit(partial(tnp.einsum, of))(*_PAIR), np.einsum(of, *_PAIR), 1e-5
        )


_PAIR = normal(6, 5), normal(6, 5)


def test_sums_of_half_floats_with_vectors_are_in_single_precision() -> None:
    x, v = (a.astype(H) for a in (small(3, 8), small(8)))
    for apply in (plain, halves):
        found = ops(apply, lambda x, v: x @ v, x, v)
        assert found[:2] == ["f32[3,8] convert", "f32[8] convert"]
        assert found[-2:] == ["f32[3] reduce_sum", "f16[3] convert"]
    # Integers wrap around in as many bits as they have.
    x, v = small(3, 8), small(8)
    assert ops(plain, lambda x, v: x @ v, x, v)[-1] == "i16[3] reduce_sum"


def test_targets_may_multiply_half_floats_of_matrices_alone() -> None:
    some = partial(lower_contractions, widen=True, multiplied=Multiplied((H,), ()))
    x, w = array(3, 4, dtype=H), array(4, 5, dtype=H)
    assert ops(some, lambda x, w: x @ w, x, w) == [
        "f32[3,5] dot_general",
        "f16[3,5] convert",
    ]


THIN: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "batched": ("bij,bj->bi", [(2, 3, 8), (2, 8)]),
    "batched, turned": ("bji,bj->bi", [(2, 8, 3), (2, 8)]),
    "batched, the other way": ("bj,bij->bi", [(2, 8), (2, 3, 8)]),
    "batched last": ("ijb,jb->ib", [(3, 8, 2), (8, 2)]),
    "batched dot": ("bi,bi->b", [(4, 8), (4, 8)]),
    "an outer product": ("i,j->ij", [(3,), (4,)]),
    "batched outer": ("bi,bj->bij", [(2, 3), (2, 4)]),
    "several sums": ("ij,ij->", [(3, 8), (3, 8)]),
    "few terms": ("bij,bj->bi", [(2, 5, 3), (2, 3)]),
    "two terms": ("ij,j->i", [(5, 2), (2,)]),
    "four terms, three free": ("bijk,bk->bij", [(2, 3, 5, 4), (2, 4)]),
    "five terms": ("ij,j->i", [(5, 5), (5,)]),
    "one term": ("ij,j->i", [(5, 1), (1,)]),
}


@pytest.mark.parametrize("name", THIN)
def test_products_that_read_each_element_once(name: str) -> None:
    spelled, shapes = THIN[name]
    args = [normal(*s, seed=i) for i, s in enumerate(shapes)]
    function = lambda *xs: tnp.einsum(spelled, *xs)  # noqa: E731
    graph = plain(traced(function, *args))
    assert "dot_general" not in [eq.op.name for eq in graph.equations]
    passed(plain, function, *args)
    few = "terms" in name and "five" not in name
    names = [eq.op.name for eq in graph.equations]
    assert ("add" in names) == few
    if few:
        terms = names.count("multiply_add")
        assert terms == shapes[1][-1]
        assert names.count("reduce_sum") == 0


def test_few_terms_are_added_as_those_of_a_row() -> None:
    """Halves to halves, zeros beside what is left: with the bits of longer rows."""
    x, w = normal(5, 3), normal(3)
    found = passed(plain, lambda x, w: x @ w, x, w)
    sums = [line.split(" = ")[1] for line in found if " = add " in line]
    assert len(sums) == 3
    assert sum(line.endswith(" 0.0") for line in sums) == 1
    padded = np.pad(x, ((0, 0), (0, 61))), np.pad(w, (0, 61))
    assert np.array_equal(
        td.jit(lambda x, w: x @ w)(x, w), td.jit(lambda x, w: x @ w)(*padded)
    )


def test_few_columns_are_rows() -> None:
    x, w = array(700, 40), array(700, 3)
    assert lines(plain(traced(lambda x, w: x.T @ w, x, w)))[1:] == [
        "d:f32[3,40] = dot_general[contract=((0,),(1,)) batch=((),())] b c",
        "e:f32[40,3] = transpose[permutation=(1,0)] d",
        "return e",
    ]
    # Very few, and long sums, whatever they run along.
    assert lines(plain(traced(lambda x, w: x @ w, array(40, 700), w))) == [
        "c:f32[3,40] = dot_general[contract=((0,),(1,)) batch=((),())] b a",
        "d:f32[40,3] = transpose[permutation=(1,0)] c",
        "return d",
    ]
    # Not where operands are summed along what lies side by side, or in batches.
    assert untouched(plain, lambda x, w: x @ w, array(40, 700), array(700, 5))
    assert untouched(plain, lambda x, w: x @ w, array(8, 700), w)
    assert untouched(plain, lambda x, w: x @ w, array(40, 60), array(60, 3))
    assert untouched(plain, lambda x, w: x.T @ w.T, x, array(3, 700))
    assert untouched(
        plain,
        lambda x, w: tnp.einsum("bki,bkj->bij", x, w),
        array(2, 700, 40),
        array(2, 700, 3),
    )
    assert untouched(plain, lambda x, w: x.T @ w, x, array(700, 1))
    half = [a.astype(H) for a in (x, w)]
    found = halves(traced(lambda x, w: x.T @ w, *half))
    check(found)
    shapes = [str(eq.outputs[0].type) for eq in found.equations]
    assert shapes == ["f16[40,700]", "f32[3,40]", "f16[3,40]", "f16[40,3]"]


def test_axes_that_may_be_made_of_several_are_for_matrix_kernels() -> None:
    """How they are summed depends on which have one element."""
    x = array(4, 2, 3)
    assert untouched(plain, lambda x, v: x.reshape(4, 6) @ v, x, array(6))
    assert untouched(plain, lambda x, v: x.reshape(8, 3) @ v, x, array(3))
    # One that is cut is no such axis.
    assert not untouched(plain, lambda x, v: x.reshape(6, 4) @ v, array(24), array(4))
    assert not untouched(plain, lambda x, v: x.reshape(4, 2, 3) @ v, x, array(3))
    assert untouched(plain, lambda x, w: tnp.einsum("iab,ab->i", x, w), x, array(2, 3))


@pytest.mark.parametrize("sizes", [{"n": 3, "m": 4}, {"n": 1, "m": 1}])
def test_open_terms_are_summed_in_rows(sizes: dict[str, int]) -> None:
    graph, _ = opened(lambda x, v: x @ v, ("n", "m"), ("m",), **sizes)
    names = [eq.op.name for eq in plain(graph).equations]
    assert names == [
        "broadcast_in_dim",
        "broadcast_in_dim",
        "multiply_add",
        "reduce_sum",
    ]


def images(x: Any, w: Any, groups: int = 1) -> Any:
    names = ("NHWC", "HWIO", "NHWC")
    return td.lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=names, feature_group_count=groups
    )


def test_depthwise_images_of_small_integers_are_floats() -> None:
    depthwise = partial(images, groups=8)
    x = small(1, 6, 6, 8, dtype="int8").astype("int8")
    w = small(3, 3, 1, 8, dtype="int8")
    found = ops(plain, depthwise, x, w)
    assert "f32[1,6,6,8] conv_general" in found
    assert found[-2:] == ["i32[1,6,6,8] convert", "i8[1,6,6,8] convert"]
    # As they are spelled for sums of 32 bits.
    wide = lambda x, w: depthwise(x.astype("int32"), w.astype("int32"))  # noqa: E731
    found = ops(plain, wide, x, w)
    assert "f32[1,6,6,8] conv_general" in found
    assert found[-1] == "i32[1,6,6,8] convert"
    # Not where sums may have more digits than floats, or over channels.
    x16, w16 = (a.astype("int16") for a in (x, w))
    assert "f32[1,6,6,8] conv_general" not in ops(plain, depthwise, x16, w16)
    every = small(3, 3, 8, 8, dtype="int8")
    assert "f32[1,6,6,8] conv_general" not in ops(plain, images, x, every)


@pytest.mark.parametrize(
    ("taps", "groups", "found"),
    [
        ((3, 3, 2, 32), 16, True),
        ((3, 3, 8, 32), 4, True),
        ((1, 3, 4, 32), 8, True),
        ((3, 3, 16, 32), 2, False),
        ((3, 3, 4, 16), 8, False),
        ((1, 1, 4, 32), 8, False),
        ((40, 27, 1, 32), 32, False),
    ],
    ids=str,
)
def test_images_of_small_groups_of_bytes_are_floats(
    taps: tuple[int, ...], groups: int, found: bool
) -> None:
    """Not of wide ones, nor of single taps, nor where sums have more digits."""
    x, w = (small(*s, dtype="int8").astype("int8") for s in ((1, 6, 6, 32), taps))
    lines = ops(plain, partial(images, groups=groups), x, w)
    assert any("f32" in n and "conv_general" in n for n in lines) == found

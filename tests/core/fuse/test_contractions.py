"""Products of integers and of half floats."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.native import runs_natively, shares_kernels
from treadle import nn
from treadle.ops.conv import conv_general

pytestmark = pytest.mark.usefixtures("checked_by_reference")

rng = np.random.default_rng(0)
INTEGERS = ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"]
HALVES = ["float16", "bfloat16"]
FORMULAS = {
    "ij,jk->ik": ((9, 17), (17, 33)),
    "ij,kj->ik": ((9, 17), (33, 17)),
    "ji,jk->ik": ((17, 9), (17, 33)),
    "ji,kj->ik": ((17, 40), (33, 17)),
    "ij,j->i": ((9, 17), (17,)),
    "ji,j->i": ((17, 9), (17,)),
    "i,i->": ((70,), (70,)),
    "i,j->ij": ((7,), (9,)),
    "bij,bjk->bik": ((3, 5, 6), (3, 6, 20)),
    "ibj,kjb->bik": ((5, 3, 6), (20, 6, 3)),
    "aibj,jakb->ik": ((2, 3, 4, 5), (5, 2, 6, 4)),
    "ij,jk->ki": ((9, 17), (17, 33)),
    "ij,jk->ik, one row": ((1, 17), (17, 1)),
    "ij,jk->ik, one term": ((9, 1), (1, 33)),
    "ij,jk->ik, one column": ((90, 70), (70, 1)),
    "ji,jk->ik, one column": ((70, 90), (70, 1)),
    "bij,bjk->bik, one column": ((3, 40, 30), (3, 30, 1)),
    "ij,jk->ik, nothing": ((4, 0), (0, 5)),
}


def draw(*shape: int, dtype: str) -> Any:
    return tnp.asarray(rng.integers(-30, 30, size=shape)).astype(dtype)


def einsum(formula: str) -> Any:
    return lambda x, y: tnp.einsum(formula.partition(", ")[0], x, y)


@pytest.mark.parametrize("dtype", ["int32", "bfloat16"])
@pytest.mark.parametrize("formula", FORMULAS)
def test_products(formula: str, dtype: str) -> None:
    runs_natively(einsum(formula), *(draw(*s, dtype=dtype) for s in FORMULAS[formula]))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_wrap_as_in_jax(dtype: str) -> None:
    x = rng.integers(0, 2**15, size=(20, 70)).astype(dtype)
    y = rng.integers(0, 2**15, size=(70, 30)).astype(dtype)
    with jax.enable_x64(True):
        wanted = jax.numpy.matmul(x, y)
    np.testing.assert_array_equal(td.jit(tnp.matmul)(x, y), wanted)


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_are_summed_in_single_precision(dtype: str) -> None:
    x = rng.normal(size=(40, 500)).astype(td.dtypes.canonical(dtype))
    y = rng.normal(size=(500, 30)).astype(x.dtype)
    runs_natively(tnp.matmul, tnp.asarray(x), tnp.asarray(y))
    exact = x.astype("float64") @ y.astype("float64")
    found = np.asarray(td.jit(tnp.matmul)(x, y)).astype("float64")
    theirs = np.asarray(jax.numpy.matmul(x, y)).astype("float64")
    # The last bit: rounded sums that hardly differ.
    ulp = {"float16": 2.0**-10, "bfloat16": 2.0**-7}[dtype]
    np.testing.assert_allclose(found, exact, rtol=ulp, atol=1e-5)
    np.testing.assert_allclose(found, theirs, rtol=ulp, atol=1e-5)


@pytest.mark.parametrize("dtype", HALVES)
def test_layers_and_their_gradients(dtype: str) -> None:
    linear = rng.normal(size=(17, 33)).astype("float32")
    kernel = rng.normal(size=(3, 3, 4, 8)).astype("float32")

    options = {
        "strides": (1, 2),
        "padding": ((1, 1), (0, 1)),
        "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1),
        "feature_groups": 1,
    }

    def function(w: Any, k: Any, x: Any, image: Any) -> Any:
        def loss(w: Any, k: Any) -> Any:
            hidden = nn.relu(x @ w)
            seen = conv_general(image, k, **options)
            return tnp.sum(hidden * hidden) + tnp.sum(seen * seen)

        return td.grad(loss, argnums=(0, 1))(w, k)

    args = linear, kernel, rng.normal(size=(6, 17)), rng.normal(size=(2, 7, 6, 4))
    runs_natively(function, *(tnp.asarray(a).astype(dtype) * 0.1 for a in args))


CONVOLUTIONS = {
    "line": ((2, 9, 3), (3, 3, 5), 1, {}),
    "grouped line": ((2, 9, 4), (3, 2, 6), 2, {"strides": (2,)}),
    "depthwise": ((3, 9, 8, 40), (3, 3, 1, 40), 40, {"padding": ((1, 1), (0, 2))}),
    "two features": ((2, 7, 7, 5), (2, 3, 1, 10), 5, {"strides": (2, 1)}),
    "grouped": ((2, 6, 7, 6), (3, 1, 3, 40), 2, {"rhs_dilation": (2, 1)}),
    "transposed": ((2, 4, 5, 6), (3, 3, 2, 6), 3, {"lhs_dilation": (2, 3)}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_of_lines_and_of_groups(name: str) -> None:
    shape, kernel, groups, changed = CONVOLUTIONS[name]
    rank = len(shape) - 2
    options: dict[str, Any] = dict.fromkeys(
        ("strides", "lhs_dilation", "rhs_dilation"), (1,) * rank
    )
    options |= {"padding": ((1, 1),) * rank, "feature_groups": groups} | changed

    def function(x: Any, w: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            return tnp.sum(conv_general(x, w, **options) ** 2)

        return conv_general(x, w, **options), td.grad(loss, argnums=(0, 1))(x, w)

    for dtype in ("float32", "bfloat16"):
        args = (rng.normal(size=s).astype("float32") for s in (shape, kernel))
        runs_natively(function, *(tnp.asarray(a).astype(dtype) for a in args))


def test_products_in_loops() -> None:
    def function(x: Any, ys: Any) -> Any:
        return td.scan(lambda c, y: (c @ y, tnp.sum(c)), x, ys)

    runs_natively(function, draw(5, 5, dtype="int32"), draw(4, 5, 5, dtype="int32"))
    runs_natively(
        td.vmap(tnp.matmul), draw(3, 5, 6, dtype="int8"), draw(3, 6, 7, dtype="int8")
    )


def test_one_kernel_for_all_sizes() -> None:
    first = draw(5, 7, dtype="int32"), draw(7, 9, dtype="int32")
    shares_kernels(
        tnp.matmul, first, [draw(30, 70, dtype="int32"), draw(70, 40, dtype="int32")]
    )


@pytest.mark.parametrize("text", ["ij,ij->i", "ij,ij->", "ij,ji->"])
def test_products_of_what_is_repeated_along_the_sum(text: str) -> None:
    def function(np: Any, x: Any) -> Any:
        y = np.broadcast_to(x[:, None], (x.shape[0], x.shape[0]))
        return np.einsum(text, y, y)

    x = np.arange(17, dtype="float32")
    found = td.jit(lambda x: function(tnp, x))(x)
    np.testing.assert_allclose(found, function(np, x), rtol=1e-6)


@pytest.mark.parametrize("name", ["einsum", "vdot"])
def test_sums_of_all_products_have_the_bits_of_fixed_sizes(name: str) -> None:
    def function(x: Any, y: Any) -> Any:
        return tnp.einsum("ij,ij->", x, y) if name == "einsum" else tnp.vdot(x, y)

    compiled, rng = td.jit(function, dynamic=True), np.random.default_rng(0)
    for shape in ((3, 5), (1, 100), (100, 1), (17, 33)):
        x, y = rng.normal(size=(2, *shape)).astype("float32")
        wanted = np.vdot(x.astype("float64"), y.astype("float64"))
        found = np.asarray(compiled(x, y))
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(found, td.jit(function)(x, y))

"""Products read weights of a byte as they are, and scales come behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.graphs import array, traced
from tests.core.passes.shown import lines, passed, untouched
from treadle import dtypes
from treadle.ir.graph import Graph
from treadle.passes.stored import fuse_bytes
from treadle.trace.lowering import Multiplied

BYTES = (np.dtype("int8"), np.dtype("uint8"))
HOW = Multiplied(bytes_=BYTES, beside_bytes=(dtypes.float32, dtypes.bfloat16))
X = array(3, 4)
W = np.arange(-10, 10, dtype=np.int8).reshape(5, 4)
ROWS, COLUMNS = array(5, 1), array(1, 4)
PRODUCT = "dot_general[contract=((1,),(0,)) batch=((),())]"


def fused(graph: Graph) -> Graph:
    return fuse_bytes(graph, HOW)


def weight(w: Any) -> Any:
    return w.astype("float32")


def test_bytes_are_read_as_they_are_however_they_are_turned() -> None:
    assert passed(fused, lambda x, w: x @ weight(w).T, X, W) == [
        "c:i8[4,5] = transpose[permutation=(1,0)] b",
        f"d:f32[3,5] = {PRODUCT} a c",
        "return d",
    ]
    assert passed(fused, lambda x, w: x @ weight(w), X, W.T.copy()) == [
        f"c:f32[3,5] = {PRODUCT} a b",
        "return c",
    ]


def test_scales_of_rows_come_behind_the_product() -> None:
    found = passed(fused, lambda x, w, s: x @ (weight(w) * s).T, X, W, ROWS)
    assert not any("convert" in line for line in found)
    products = [i for i, line in enumerate(found) if PRODUCT in line]
    scaled = [i for i, line in enumerate(found) if "= mul" in line]
    assert len(products) == len(scaled) == 1
    assert products < scaled
    assert ":f32[3,5]" in found[scaled[0]]


def test_one_scale_does() -> None:
    found = passed(fused, lambda x, w, s: x @ (s * weight(w)).T, X, W, np.float32(3))
    (scaled,) = [line for line in found if "= mul" in line]
    assert ":f32[3,5]" in scaled


def test_scales_along_the_sum_stay_before_it() -> None:
    for scale in (COLUMNS, array(5, 4)):
        assert untouched(fused, lambda x, w, s: x @ (weight(w) * s).T, X, W, scale)


def test_weights_of_both_sides_may_be_scaled() -> None:
    def both(x: Any, w: Any, s: Any, t: Any) -> Any:
        return (weight(x) * t) @ (weight(w) * s).T

    x = np.arange(12, dtype=np.uint8).reshape(3, 4)
    found = passed(fused, both, x, W, ROWS, array(3, 1))
    assert sum("= mul" in line and ":f32[3,5]" in line for line in found) == 2


def test_results_that_are_halves_are_rounded_behind_the_scales() -> None:
    def short(x: Any, w: Any, s: Any) -> Any:
        return x @ (w.astype("bfloat16") * s).T

    args = X.astype(dtypes.bfloat16), W, ROWS.astype(dtypes.bfloat16)
    found = lines(fused(traced(short, *args)))
    (product,) = [line for line in found if "dot_general" in line]
    assert ":f32[3,5]" in product
    assert ":bf16[3,5] = convert[dtype=bfloat16]" in found[-2]


def test_masks_that_are_computed_are_computed_as_floats() -> None:
    def masked(x: Any, w: Any) -> Any:
        return x @ weight(tnp.abs(w)).T

    assert untouched(fused, masked, X, W)


@pytest.mark.parametrize("how", [Multiplied(), HOW._replace(beside_bytes=())])
def test_nothing_is_done_without_kernels_of_bytes(how: Multiplied) -> None:
    graph = traced(lambda x, w: x @ weight(w).T, X, W)
    assert fuse_bytes(graph, how) is graph


def test_products_of_other_dtypes_convert() -> None:
    wide = X.astype(np.float64)
    assert untouched(fused, lambda x, w: x @ w.astype("float64").T, wide, W)

"""Programs of `lax` with axes of any size, against programs traced for one size."""

from __future__ import annotations

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import agree, floats, ints, written

ARGS = {
    "x": floats("n m"),
    "y": floats("n m"),
    "u": floats("n"),
    "k": ints("n", 0, 3),
    "i": ints("n", -2, 9),
    "p": floats("2 n m 3"),
    "w": floats("2 2 3 4"),
    "h": floats("n 4"),
}
ROWS = [
    "lax.add(x, y), lax.mul(x, 2.0), lax.clamp(-1.0, x, 1.0)",
    "lax.reduce_precision(x, 5, 3), lax.bitcast_convert_type(x, 'uint16')",
    "lax.select_n(k, u, u + 1, u + 2, u + 3)",
    "lax.broadcast(u, (2,)), lax.collapse(x, 0), lax.rev(x, (0,)), lax.tile(x, (1, 2))",
    "lax.pad(x, 0.0, [(1, 2, 1), (0, 0, 2)])",
    "lax.slice_in_dim(x, 1, None), lax.index_in_dim(x, -1, 1)",
    "lax.dynamic_slice_in_dim(h, k[0], 2, 1), lax.dynamic_index_in_dim(x, k[0])",
    "lax.dynamic_update_index_in_dim(x, x[0], k[0], 0)",
    "lax.gather(h, i[:, None], lax.GatherDimensionNumbers((1,), (0,), (0,)), (1, 4), "
    "mode='fill')",
    "lax.scatter_add(x, i[:, None], y, lax.ScatterDimensionNumbers((1,), (0,), (0,)))",
    "lax.dot_general(x, y, (((0,), (0,)), ((), ()))), lax.dot(x, y.T)",
    "lax.conv_general_dilated(p, w, (1, 1), [(1, 1), (2, 0)], "
    "dimension_numbers=('NHWC', 'HWIO', 'NHWC'))",
    "lax.reduce(x, 0.0, lax.add, (0,)), lax.reduce(x, 1.0, lax.max, (0, 1))",
    # In the order of rows, or in pairs: sums of whole numbers are the same.
    "lax.reduce(tnp.round(x), 0.0, lambda a, b: a + 1.0 * b, (0,))",
    "lax.reduce_window(x, -tnp.inf, lax.max, (1, 2), (1, 1), [(0, 0), (1, 1)])",
    "lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), [(1, 0), (0, 0)])",
    "lax.cumsum(x, 0, reverse=True), lax.argmax(x, 1, 'int32'), lax.top_k(h, 2)",
    "lax.sort((k, u), num_keys=1), lax.sort_key_val(k, u)",
]


@pytest.mark.parametrize("text", ROWS, ids=lambda t: t[:60])
def test_sizes_may_be_open(text: str) -> None:
    function, args = written(text, ARGS, {"lax": td.lax, "tnp": tnp})
    agree(function, args)

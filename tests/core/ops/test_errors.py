"""Bad operands are refused with the shapes, dtypes or params in the message."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.ops import (
    arithmetic,
    assemble,
    cast,
    compare,
    conv,
    cumulative,
    dot,
    dynamic,
    gather,
    interleave,
    movement,
    reduce,
    scatter,
    shape,
    sort,
    unary,
    window,
)

F = np.float32
ONE = {"axes": (0,), "sizes": (None,), "batch_dims": 0, "mode": "drop"}
CONV = conv.Window((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), 1)._asdict()


def f(*shape: int) -> np.ndarray:
    return np.zeros(shape, F)


def i(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.int32)


BAD: list[tuple[Any, list[Any], dict[str, Any], type, str]] = [
    (arithmetic.add, [f(2), f(3)], {}, ValueError, r"f32\[2\], f32\[3\]"),
    (arithmetic.add, [f(2), i(2)], {}, TypeError, r"f32\[2\], i32\[2\]"),
    (arithmetic.mul, [f(2) > 0, f(2) > 0], {}, TypeError, "bool"),
    (unary.exp, [i(2)], {}, TypeError, "exp is not defined for dtype int32"),
    (compare.bitwise_and, [f(2), f(2)], {}, TypeError, "float32"),
    (compare.select, [i(2), f(2), f(2)], {}, TypeError, "must be bool"),
    (
        cast.convert,
        [np.zeros(2, "complex64")],
        {"dtype": np.dtype(F)},
        TypeError,
        "real",
    ),
    (cast.bitcast, [f(2)], {"dtype": np.dtype("int64")}, TypeError, "widths"),
    (
        movement.broadcast_in_dim,
        [f(2)],
        {"shape": (3, 4), "dims": (0,)},
        ValueError,
        r"\[3, 4\]",
    ),
    (movement.reshape, [f(2, 3)], {"shape": (4,)}, ValueError, "6 elements"),
    (movement.transpose, [f(2, 3)], {"permutation": (0, 0)}, ValueError, "permutation"),
    (movement.reverse, [f(2)], {"axes": (1,)}, ValueError, r"f32\[2\]"),
    (
        shape.slice_,
        [f(4)],
        {"starts": (1,), "limits": (5,), "steps": (1,)},
        ValueError,
        "1:5:1 of an axis of length 4",
    ),
    (shape.pad, [f(2), f()], {"padding": ((-3, 0, 0),)}, ValueError, "removes more"),
    (shape.concatenate, [f(2, 3), f(2, 4)], {"axis": 0}, ValueError, r"f32\[2,4\]"),
    (
        assemble.assemble,
        [f(2), f(3)],
        {"shape": (4,), "starts": ((0,), (2,))},
        ValueError,
        r"f32\[3\] at \(2,\) leaves \[4\]",
    ),
    (interleave.interleave, [f(2), f(3)], {"turns": (2,)}, ValueError, r"f32\[3\]"),
    (reduce.reduce_sum, [f(2)], {"axes": (1,)}, ValueError, r"f32\[2\]"),
    (reduce.argmax, [f(2, 0)], {"axis": 1}, ValueError, "empty"),
    (
        dot.dot_general,
        [f(2, 3), f(4, 5)],
        {"contract": ((1,), (0,)), "batch": ((), ())},
        ValueError,
        "length 3, axis 0 of the second has length 4",
    ),
    (gather.gather, [f(3), f(2)], ONE, TypeError, "must be integers"),
    (gather.gather, [f(3), i(2)], {**ONE, "axes": (1,)}, ValueError, r"axes \(1,\)"),
    (gather.gather, [f(3), i(2), i(2)], ONE, ValueError, "2 index arrays"),
    (gather.gather, [f(3), i(2)], {**ONE, "sizes": (4,)}, ValueError, "window of 4"),
    (gather.gather, [f(0), i(2)], ONE, ValueError, "length 0"),
    (gather.gather, [f(3), i(2)], {**ONE, "mode": "wrap"}, ValueError, "'wrap'"),
    (
        gather.gather,
        [f(3, 4), i(2)],
        {**ONE, "axes": (1,), "batch_dims": 1},
        ValueError,
        "first 1 axes",
    ),
    (
        scatter.scatter_add,
        [f(3, 4), f(2, 3), i(2)],
        ONE,
        ValueError,
        r"must have shape \[2, 4\], got f32\[2,3\]",
    ),
    (scatter.scatter_set, [f(3), i(2), i(2)], ONE, TypeError, r"i32\[2\]"),
    (dynamic.dynamic_slice, [f(3), i()], {"sizes": (4,)}, ValueError, "does not fit"),
    (dynamic.dynamic_slice, [f(3), f()], {"sizes": (2,)}, TypeError, "integer scalars"),
    (dynamic.dynamic_update_slice, [f(3), f(2, 1), i()], {}, ValueError, r"\[2, 1\]"),
    (cumulative.cumsum, [f(3)], {"axis": 1, "reverse": False}, ValueError, "axis 1"),
    (sort.sort, [f(3), f(2)], {"axis": 0, "num_keys": 1}, ValueError, r"f32\[2\]"),
    (sort.top_k, [f(3)], {"k": 4}, ValueError, "no 4 elements"),
    (conv.conv_general, [f(1, 5, 5, 3), f(3, 3, 2, 4)], CONV, ValueError, "3 channels"),
    (conv.conv_general, [f(5, 5, 3), f(3, 3, 3, 4)], CONV, ValueError, "spatial"),
    (
        window.reduce_window_max,
        [f(1, 2, 2, 3)],
        {"window": (3, 3), "strides": (1, 1), "padding": ((0, 0), (0, 0))},
        ValueError,
        r"\[3, 3\]",
    ),
]


@pytest.mark.parametrize(
    ("op", "args", "params", "error", "message"),
    BAD,
    ids=[f"{n}-{row[0].name}" for n, row in enumerate(BAD)],
)
def test_bad_operands(
    op: Any, args: list[Any], params: dict[str, Any], error: type, message: str
) -> None:
    with pytest.raises(error, match=message) as eager:
        op(*args, **params)
    with pytest.raises(error, match=message) as staged:
        td.jit(lambda *xs: op(*xs, **params))(*args)
    for raised in (eager, staged):
        assert "test_errors.py:" in str(raised.value), "must name the user's line"

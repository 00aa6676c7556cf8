"""Products of small integers read them as they are."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

import treadle.numpy as tnp
from tests.core.fuse.graphs import array
from tests.core.passes.shown import passed, untouched
from treadle.passes.integers import fuse_integers, is_short

I8, I16 = np.dtype("int8"), np.dtype("int16")
fuse = partial(fuse_integers, integers={I8: 16, np.dtype("uint8"): 16})


def small(*shape: int, dtype: Any = I8) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 2, shape).astype(dtype)


def wide(x: Any) -> Any:
    return x.astype("int32")


def test_conversions_are_left_out() -> None:
    x, w = small(4, 32), small(32, 5, dtype=np.uint8)
    assert passed(fuse, lambda x, w: wide(x) @ wide(w), x, w) == [
        "c:i32[4,5] = dot_general[contract=((1,),(0,)) batch=((),())] a b",
        "return c",
    ]


def test_what_moves_them_moves_small_ones() -> None:
    def function(x: Any, w: Any) -> Any:
        rows = tnp.concatenate([wide(x), wide(x)[:1]], 0)
        return tnp.pad(rows, ((0, 0), (0, 1))) @ wide(w).T

    found = passed(fuse, function, small(4, 32), small(5, 33))
    assert not any("convert" in line for line in found)
    assert all(":i8[" in line for line in found[:-2])
    assert found[-2].split(" = ")[0].endswith("i32[5,5]")


def test_each_is_moved_once() -> None:
    def function(x: Any, w: Any) -> Any:
        turned = wide(w).T
        return wide(x) @ turned, turned.T @ wide(x).T, turned

    found = passed(fuse, function, small(4, 32), small(5, 32))
    assert sum("i8[32,5] = transpose" in line for line in found) == 1
    assert sum("i32[32,5] = transpose" in line for line in found) == 1


def test_others_stay() -> None:
    x, w = small(4, 32), small(32, 5)
    multiply = lambda x, w: wide(x) @ wide(w)  # noqa: E731
    assert untouched(fuse, multiply, small(4, 32, dtype=I16), w)
    assert untouched(fuse, lambda x, w: (wide(x) + 1) @ wide(w), x, w)
    assert untouched(fuse, lambda x, w: x.astype("int64") @ w.astype("int64"), x, w)
    assert untouched(fuse, lambda x, w: x.astype("float32") @ w.astype("float32"), x, w)
    assert untouched(fuse, lambda x, w: x @ wide(w), array(4, 32, dtype=np.int32), w)

    # Something else is beside them.
    def padded(x: Any, w: Any) -> Any:
        return tnp.pad(wide(x), ((0, 0), (0, 1)), constant_values=1) @ wide(w)

    assert untouched(fuse, padded, small(4, 31), w)
    mixed = lambda x, w, y: tnp.concatenate([wide(x), wide(y)], 0) @ wide(w)  # noqa: E731
    assert untouched(fuse, mixed, x, w, small(2, 32, dtype=np.uint8))
    assert untouched(partial(fuse_integers, integers={}), multiply, x, w)
    assert untouched(fuse, lambda x: wide(x) * 2, x)


def test_short_sums_are_faster_in_32_bits() -> None:
    multiply = lambda x, w: wide(x) @ wide(w)  # noqa: E731
    for rows, length, wanted in (
        (4, 31, True),
        (4, 32, False),
        (31, 31, True),
        (32, 31, False),
        (32, 16, False),
        (32, 15, True),
    ):
        x, w = small(rows, length), small(length, 64)
        assert untouched(fuse, multiply, x, w) is wanted
        assert untouched(fuse, multiply, w.T.copy(), x.T.copy()) is wanted


def test_targets_say_from_how_many_terms_on() -> None:
    multiply = lambda x, w: wide(x) @ wide(w)  # noqa: E731
    some = partial(fuse_integers, integers={I8: 8, np.dtype("uint8"): 12})
    for rows, length, unsigned, wanted in (
        (7, 31, False, True),
        (7, 32, False, False),
        (8, 15, False, True),
        (8, 16, False, False),
        (32, 7, False, True),
        (32, 8, False, False),
        (32, 11, True, True),
        (32, 12, True, False),
    ):
        x, w = small(rows, length), small(length, 64)
        w = w.astype("uint8") if unsigned else w
        assert untouched(some, multiply, x, w) is wanted


def test_integers_of_less_than_32_bits_are_short() -> None:
    assert all(is_short(np.dtype(d)) for d in ("int8", "uint8", "int16", "uint16"))
    assert not any(
        is_short(np.dtype(d)) for d in ("int32", "uint64", "float16", "bool")
    )

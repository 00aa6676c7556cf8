"""What a product says of itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from treadle import dtypes
from treadle.kernels.contract import Contraction, Strides, is_half

F, H, B = dtypes.float32, dtypes.float16, dtypes.bfloat16
S = Strides(0, 0, 8, 1)


def product(
    dtype: Any = F, m: int = 2, n: int = 3, k: int = 5, **options: Any
) -> Contraction:
    return Contraction(np.dtype(dtype), m, n, k, S, S, options.pop("c", S), **options)


def test_operands_have_the_dtype_of_the_result_if_nothing_is_said() -> None:
    assert product().dtypes == (F, F, F)
    assert product(a_dtype=H).dtypes == (H, F, F)
    assert product(b_dtype=H).dtypes == (F, H, F)


def test_half_floats_are_those_with_two_bytes() -> None:
    assert is_half(H)
    assert is_half(B)
    assert not any(map(is_half, (F, np.dtype("int16"), np.dtype("float64"))))
    assert product().half is None
    assert product(H).half == H
    assert product(a_dtype=B).half == product(b_dtype=B).half == B
    assert product("int32", a_dtype=np.dtype("int16")).half is None


def test_short_integers_are_those_of_less_than_four_bytes() -> None:
    i8, u8, i16, i32 = map(np.dtype, ("int8", "uint8", "int16", "int32"))
    assert product(i32, a_dtype=i8, b_dtype=u8).short
    assert product(i16).short
    assert not product(i32).short
    assert not product(i32, a_dtype=i8).short
    assert not product(i32, b_dtype=i8).short
    assert not product(H).short


def test_sizes_in_numbers_and_words() -> None:
    what = product(b0=7, b1=11)
    assert what.flops == 2 * 7 * 11 * 2 * 3 * 5
    assert what.sizes == "(77 x 2, 5, 3)"
    assert product().sizes == "(1 x 2, 5, 3)"


@pytest.mark.parametrize("name", ["m", "n", "k", "b0", "b1"])
def test_there_is_something_to_do(name: str) -> None:
    assert product(**{name: 1})
    with pytest.raises(ValueError, match=r"at least 1, not .*0"):
        product(**{name: 0})


def test_rows_of_results_lie_side_by_side() -> None:
    with pytest.raises(ValueError, match="column stride 1, not 2: swap A and B"):
        product(c=Strides(0, 0, 8, 2))
    # There is only one column.
    assert product(n=1, c=Strides(0, 0, 8, 2))

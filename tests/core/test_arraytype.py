"""Array types: equal ones are one object, wherever they come from."""

from __future__ import annotations

import copy
import pickle

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle.arraytype import ArrayType


def test_equal_types_are_one_object() -> None:
    t = ArrayType((2, 3), np.dtype(np.float32))
    for other in (
        ArrayType((2, 3), np.dtype("<f4")),
        td.ShapeDtype([2, 3]),
        tnp.ones((2, 3)).type,
        td.jit(lambda x: x + 1)(np.ones((2, 3), np.float32)).type,
        pickle.loads(pickle.dumps(t)),
        copy.deepcopy(t),
    ):
        assert other is t
    for other in (
        ArrayType((2, 3), np.dtype(np.float32), True),
        ArrayType((2, 3), np.dtype(np.int32)),
        ArrayType((3, 2), np.dtype(np.float32)),
    ):
        assert other != t


def test_sizes_are_pythons_integers() -> None:
    t = ArrayType((np.int64(31), np.int32(7)), np.dtype(np.uint8))
    assert [type(n) for n in t.shape] == [int, int]
    assert repr(t) == "u8[31,7]"
    assert (t.size, t.nbytes) == (217, 217)

"""Padding that crops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.core.fuse.native import runs_natively
from treadle.ops.shape import pad

PADDINGS = [
    ((-1, 2, 0), (0, -3, 0)),
    ((-2, -1, 1), (3, -2, 2)),
    ((-5, 7, 0), (-1, 0, 0)),
    ((0, 0, 0), (-7, 0, 0)),
]


@pytest.mark.parametrize("padding", PADDINGS)
def test_negative_padding_is_native(padding: Any) -> None:
    x = tnp.asarray(np.arange(28.0, dtype="float32").reshape(4, 7))
    runs_natively(lambda x: pad(tnp.sin(x), np.float32(9), padding=padding), x)
    runs_natively(lambda x: pad(x, np.float32(9), padding=padding) * 2, x)

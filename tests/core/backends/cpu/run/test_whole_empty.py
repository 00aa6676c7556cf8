"""Small loops whose sums are over nothing: what such a sum begins with is stored."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle.backends.memory import Buffer, SizeClass

LOOPS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "test": (
        lambda v: td.while_loop(
            lambda i: (i < 3) & (tnp.sum(v) > 0.5), lambda i: i + 1, 0
        ),
        0,
    ),
    "carried": (
        lambda v: td.while_loop(
            lambda s: s[0] < 3,
            lambda s: (s[0] + 1, s[1] * 0.7, s[2] + tnp.sum(s[1]) + 1),
            (0, v, 0.0),
        )[2],
        3,
    ),
}


@pytest.mark.parametrize("name", LOOPS)
@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0)], ids=str)
def test_sums_over_nothing(
    name: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = SizeClass.allocate

    def dirty(self: SizeClass, nbytes: int) -> Buffer:
        made = plain(self, nbytes)
        ctypes.memset(made.address, 0x47, nbytes)
        return made

    monkeypatch.setattr(SizeClass, "allocate", dirty)
    f, wanted = LOOPS[name]
    assert td.jit(f)(np.ones(shape, np.float32)).item() == wanted

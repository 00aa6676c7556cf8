"""Random bits as a pure function of a key and a counter."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.ops.elementwise import elementwise

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)

WORDS = ("first", "second", "xor")


def _threefry(k0: Any, k1: Any, x0: Any, x1: Any, *, word: str) -> Any:
    if word not in WORDS:
        raise ValueError(f"threefry2x32: word {word!r} is none of {WORDS}")
    keys = (k0, k1, k0 ^ k1 ^ _PARITY)
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for group in range(5):
        for distance in _ROTATIONS[group % 2]:
            left, right = np.uint32(distance), np.uint32(32 - distance)
            x0 = x0 + x1
            x1 = ((x1 << left) | (x1 >> right)) ^ x0
        x0 = x0 + keys[(group + 1) % 3]
        x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return {"first": x0, "second": x1}.get(word, x0 ^ x1)


threefry2x32 = elementwise(
    "threefry2x32", _threefry, accepts=lambda d: d == dtypes.uint32
)
"""Threefry-2x32 with 20 rounds: encrypts the counter (x0, x1) with the key (k0, k1).

word: which of the two words of the result to return, or "xor" of both.

J. Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
"""

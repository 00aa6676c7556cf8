"""Handwritten digits: 1797 real images of 8x8 pixels, bundled with scikit-learn.

E. Alpaydin and C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI, 1998.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from treadle import rng
from treadle.optional import needed_for

SIZE = 8
CLASSES = 10
_SPLIT_KEY = 0
_HELD_OUT = 5


class Images(NamedTuple):
    """Images (n, 8, 8) of values from 0 to 1, and which digit each shows (n,)."""

    pixels: np.ndarray
    digits: np.ndarray

    def take(self, numbers: np.ndarray) -> Images:
        """Some of them."""
        return Images(self.pixels[numbers], self.digits[numbers])


def load() -> tuple[Images, Images]:
    """The training set, and the test set: a fifth, always the same."""
    with needed_for("the digits that this recipe learns from"):
        from sklearn.datasets import load_digits

    bundled = load_digits()
    every = Images(
        (bundled.images / 16).astype(np.float32), bundled.target.astype(np.int32)
    )
    count = len(every.digits)
    order = np.asarray(rng.permutation(rng.key(_SPLIT_KEY), count))
    held_out = -(-count // _HELD_OUT)
    return every.take(order[held_out:]), every.take(order[:held_out])

"""Handwritten digits: 1797 real images of 8x8 pixels, bundled with scikit-learn.

E. Alpaydin and C. Kaynak, *Optical Recognition of Handwritten Digits*, UCI, 1998.
"""

from __future__ import annotations

import numpy as np

from treadle import rng
from treadle.data import DataSet, Labelled
from treadle.optional import needed_for

_SPLIT_KEY = 0
_HELD_OUT = 5


def load() -> DataSet:
    """A training set, and a test set: a fifth, always the same. Values from 0 to 1."""
    with needed_for("the digits that this recipe learns from"):
        from sklearn.datasets import load_digits

    bundled = load_digits()
    pixels = (bundled.images / 16).astype(np.float32)
    labels = bundled.target.astype(np.int32)
    count = len(labels)
    order = np.asarray(rng.permutation(rng.key(_SPLIT_KEY), count))
    held_out = -(-count // _HELD_OUT)
    train, test = (
        Labelled(pixels[n], labels[n]) for n in (order[held_out:], order[:held_out])
    )
    return DataSet(
        train,
        test,
        classes=tuple(bundled.target_names.astype(str).tolist()),
        about=f"{count} images of 8x8 in 10 classes",
    )

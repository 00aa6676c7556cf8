"""Trees to save, and what it means that two are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from treadle import tree


class Moments(NamedTuple):
    mu: Any
    nu: Any


@dataclass
class Layer:
    weight: Any
    bias: Any
    name: str = "dense"


tree.register_dataclass(Layer, static=("name",))


def training_state(seed: int = 0, width: int = 3) -> dict[str, Any]:
    """The shape of what a training loop saves."""
    rng = np.random.default_rng(seed)

    def layer(name: str) -> Layer:
        weight = rng.standard_normal((4, width)).astype(np.float32)
        return Layer(weight, np.zeros(width, ml_dtypes.bfloat16), name)

    model = [layer("first"), layer("second")]
    moments = Moments(model[0].weight * 0.5, (np.ones(2), None))
    return {
        "model": model,
        "optimizer": moments,
        "key": np.array([0, seed], np.uint32),
        "step": seed,
        "rate": 1e-3,
        "empty": np.zeros((0, 5), np.int8),
    }


def assert_same(found: Any, expected: Any) -> None:
    """Same containers, same types of leaves, same bits."""
    assert tree.structure(found) == tree.structure(expected)
    pairs = zip(tree.leaves(found), tree.leaves(expected), strict=True)
    for a, b in pairs:
        if not hasattr(b, "__array__"):
            assert (type(a), repr(a)) == (type(b), repr(b))
            continue
        x, y = np.asarray(a), np.asarray(b)
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        assert x.tobytes() == y.tobytes()

"""Layers, losses and activations on batches, lengths and images of any size."""

from __future__ import annotations

from typing import Any

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import agree, gradient_of, rows, written
from tests.nn.sizes import gathered
from treadle import nn, rng

FEW = ((3, 5, 4), (1, 1, 1), (2, 8, 3), (8, 3, 5))
IMAGES = ((3, 6, 4), (1, 2, 2), (2, 8, 17), (5, 4, 4))
EXPRESSIONS: list[str] = gathered("EXPRESSIONS")
ARGS, LAYERS = gathered("ARGS"), gathered("LAYERS")
SIZES, GUARDED = gathered("SIZES"), gathered("GUARDED")
NAMES = {"td": td, "tnp": tnp, "nn": nn, "rng": rng, **LAYERS, **gathered("NAMES")}


@pytest.mark.parametrize("expression", rows(EXPRESSIONS))
def test_a_layer_on_any_size(expression: str) -> None:
    function, args = written(expression, ARGS, NAMES)
    sizes: Any = None
    if expression in SIZES:
        sizes = SIZES[expression]
    elif "im" in expression:
        sizes = IMAGES
    elif len({n for a in args for n in a.names if n}) > 2:
        sizes = FEW
    agree(gradient_of(function), args, sizes, GUARDED.get(expression, ""))


def test_every_layer_and_function_is_tried() -> None:
    tried = " ".join(EXPRESSIONS)
    layers = {type(layer).__name__ for layer in LAYERS.values()}
    others = gathered("NOT_LAYERS")
    for name in dir(nn):
        if name.startswith("_") or not callable(getattr(nn, name)) or name in others:
            continue
        assert f"nn.{name}(" in tried or name in layers, name

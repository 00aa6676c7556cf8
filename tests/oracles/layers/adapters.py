"""Rows: adapters, against their formulas."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tests.oracles.layers.references import Formula
from tests.oracles.layers.rows import Row, named, random
from treadle import nn, rng

KEY = rng.key(0)


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:
    return {
        name: 0.5 * random(*shape, seed=i)
        for i, (name, shape) in enumerate(shapes.items())
    }


def dense(w: Any, x: Any) -> Any:
    frozen = jax.lax.stop_gradient((w["weight"], w["bias"]))
    return x @ frozen[0] + frozen[1] + 4 / 2 * (x @ w["lora_a"] @ w["lora_b"])


def table(w: Any, tokens: Any) -> Any:
    frozen = jax.lax.stop_gradient(w["weight"])
    return frozen[tokens] + w["lora_a"][tokens] @ w["lora_b"]


def convolution(groups: int) -> Any:
    def function(w: Any, x: Any) -> Any:
        kernel = jax.lax.stop_gradient(w["weight"]) + w["lora_a"] @ w["lora_b"]
        out = jax.lax.conv_general_dilated(
            x,
            kernel,
            (1, 1),
            "SAME",
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return out + jax.lax.stop_gradient(w["bias"])

    return function


def bottleneck(w: Any, x: Any) -> Any:
    return x + jax.nn.relu(x @ w["d"] + w["db"]) @ w["u"] + w["ub"]


NAMES = {
    "layer.weight": named("weight"),
    "layer.bias": named("bias"),
    "lora_a": named("lora_a"),
    "lora_b": named("lora_b"),
}


def conv(groups: int) -> Row:
    return Row(
        f"LoRA Conv2d, {groups} groups",
        lambda: nn.LoRA(nn.Conv2d(4, 6, 3, groups=groups, key=KEY), 2, key=KEY),
        lambda: Formula(
            convolution(groups),
            weights(
                weight=(3, 3, 4 // groups, 6),
                bias=(6,),
                lora_a=(3, 3, 4 // groups, 2),
                lora_b=(2, 6),
            ),
        ),
        (random(2, 5, 6, 4),),
        NAMES,
    )


ROWS = [
    Row(
        "LoRA",
        lambda: nn.LoRA(nn.Linear(3, 5, key=KEY), 2, alpha=4, key=KEY),
        lambda: Formula(
            dense, weights(weight=(3, 5), bias=(5,), lora_a=(3, 2), lora_b=(2, 5))
        ),
        (random(4, 3),),
        NAMES,
    ),
    Row(
        "LoRA Embedding",
        lambda: nn.LoRA(nn.Embedding(7, 5, key=KEY), 2, key=KEY),
        lambda: Formula(table, weights(weight=(7, 5), lora_a=(7, 2), lora_b=(2, 5))),
        (np.array([[0, 6, 3], [3, 1, 1]], np.int32),),
        {name: take for name, take in NAMES.items() if name != "layer.bias"},
    ),
    conv(1),
    conv(2),
    Row(
        "Adapter",
        lambda: nn.Adapter(5, 2, key=KEY),
        lambda: Formula(bottleneck, weights(d=(5, 2), db=(2,), u=(2, 5), ub=(5,))),
        (random(4, 5),),
        {
            "down.weight": named("d"),
            "down.bias": named("db"),
            "up.weight": named("u"),
            "up.bias": named("ub"),
        },
    ),
]

"""Rows: layers of every kind of model."""

from __future__ import annotations

import torch

from tests.oracles.layers.references import Torch
from tests.oracles.layers.rows import (
    Row,
    images,
    kernel,
    named,
    random,
    transposed,
)
from treadle import nn, rng

KEY = rng.key(0)
NO_ROW = {"MLP", "Sequential", "Dropout"}
"""Compositions of others, and what is random: tested elsewhere."""

ROWS = [
    Row(
        "Linear",
        lambda: nn.Linear(3, 4, key=KEY),
        lambda: Torch(torch.nn.Linear(3, 4)),
        (random(5, 3),),
        {"weight": transposed("weight"), "bias": named("bias")},
    ),
    Row(
        "Conv2d strided",
        lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, key=KEY),
        lambda: Torch(torch.nn.Conv2d(4, 6, 3, stride=2, padding=1)),
        (random(2, 8, 7, 4),),
        {"weight": kernel("weight"), "bias": named("bias")},
        **images,
    ),
    Row(
        "LayerNorm",
        lambda: nn.LayerNorm(6),
        lambda: Torch(torch.nn.LayerNorm(6)),
        (random(4, 6),),
        {"weight": named("weight"), "bias": named("bias")},
    ),
    Row(
        "BatchNorm",
        lambda: nn.BatchNorm(5),
        lambda: Torch(torch.nn.BatchNorm1d(5)),
        (random(8, 5),),
        {
            "weight": named("weight"),
            "bias": named("bias"),
            "mean.value": named("running_mean"),
            "var.value": named("running_var"),
        },
    ),
]

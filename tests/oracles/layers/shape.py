"""Rows: images of other sizes, and parts of models of images."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import torch

from tests.oracles.layers.references import Formula, Torch
from tests.oracles.layers.rows import (
    Row,
    channels_last,
    images,
    kernel,
    named,
    random,
)
from treadle import nn, rng

KEY = rng.key(0)
INPUTS = {1: random(2, 7, 8), 2: random(2, 4, 6, 8), 3: random(2, 4, 3, 5, 8)}


def same(name: str, rank: int, ours: nn.Module, theirs: torch.nn.Module) -> Row:
    return Row(name, lambda: ours, lambda: Torch(theirs), (INPUTS[rank],), **images)


def upsample(name: str, rank: int, scale: Any, mode: str, **options: Any) -> Row:
    theirs = {"nearest": "nearest-exact"}.get(mode, mode)
    given = {k: v for k, v in options.items() if k != "size"}
    return same(
        name,
        rank,
        nn.Upsample(scale, mode=mode, **options),
        torch.nn.Upsample(options.get("size"), scale, theirs, **given),
    )


class Excite(torch.nn.Module):
    """As it is in torchvision."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1 = torch.nn.Conv2d(8, 2, 1)
        self.fc2 = torch.nn.Conv2d(2, 8, 1)

    def forward(self, x: Any) -> Any:
        scale = torch.nn.functional.adaptive_avg_pool2d(x, 1)
        return torch.sigmoid(self.fc2(torch.relu(self.fc1(scale)))) * x


def cubic(_: Any, x: Any) -> Any:
    return jax.image.resize(x, (2, 8, 9, 8), "cubic", antialias=False)


def dense(name: str) -> Any:
    """A convolution of one pixel as the weight of a linear layer."""
    return lambda values: values[name][:, :, 0, 0].T


def flat(x: np.ndarray) -> np.ndarray:
    return channels_last(x) if x.ndim == 4 else x


ROWS = [
    Row(
        "Flatten",
        nn.Flatten,
        lambda: Torch(torch.nn.Flatten()),
        (INPUTS[2],),
        batched=False,
    ),
    Row(
        "Flatten some",
        lambda: nn.Flatten(-3, -2),
        lambda: Torch(torch.nn.Flatten(1, 2)),
        (INPUTS[2],),
    ),
    Row(
        "Unflatten",
        lambda: nn.Unflatten(-1, (2, -1)),
        lambda: Torch(torch.nn.Unflatten(-1, (2, -1))),
        (random(3, 8),),
    ),
    same("Pad constant", 2, nn.Pad(1, value=3.0), torch.nn.ConstantPad2d(1, 3.0)),
    same("Pad zeros", 1, nn.Pad(((2, 0),)), torch.nn.ZeroPad1d((2, 0))),
    same(
        "Pad reflect",
        2,
        nn.Pad(((1, 2), (0, 3)), mode="reflect"),
        torch.nn.ReflectionPad2d((0, 3, 1, 2)),
    ),
    same(
        "Pad replicate",
        3,
        nn.Pad((1, 2, 0), mode="replicate"),
        torch.nn.ReplicationPad3d((0, 0, 2, 2, 1, 1)),
    ),
    same(
        "Pad circular",
        1,
        nn.Pad(((3, 1),), mode="circular"),
        torch.nn.CircularPad1d((3, 1)),
    ),
    same("PixelShuffle", 2, nn.PixelShuffle(2), torch.nn.PixelShuffle(2)),
    same("PixelUnshuffle", 2, nn.PixelUnshuffle(2), torch.nn.PixelUnshuffle(2)),
    upsample("Upsample", 2, 2, "nearest"),
    upsample("Upsample size", 2, None, "nearest", size=(7, 5)),
    upsample("Upsample linear", 1, (2.5,), "linear"),
    upsample("Upsample half", 2, (1.5, 0.5), "bilinear"),
    upsample("Upsample bilinear", 2, (2, 3), "bilinear"),
    upsample("Upsample smaller", 2, None, "bilinear", size=(3, 9)),
    upsample("Upsample corners", 2, 2, "bilinear", align_corners=True),
    upsample("Upsample pixel", 2, None, "bilinear", size=(1, 9), align_corners=True),
    upsample("Upsample trilinear", 3, (2, 1, 3), "trilinear"),
    upsample("Upsample volume corners", 3, (2, 2, 1), "trilinear", align_corners=True),
    Row(
        "Upsample cubic",
        lambda: nn.Upsample((2, 1.5), mode="cubic"),
        lambda: Formula(cubic, {}),
        (INPUTS[2],),
    ),
    same(
        "LocalResponseNorm", 2, nn.LocalResponseNorm(2), torch.nn.LocalResponseNorm(2)
    ),
    same(
        "LocalResponseNorm strong",
        1,
        nn.LocalResponseNorm(3, alpha=2.0, beta=0.5, k=0.3),
        torch.nn.LocalResponseNorm(3, alpha=2.0, beta=0.5, k=0.3),
    ),
    Row(
        "PatchEmbedding",
        lambda: nn.PatchEmbedding(8, 5, (2, 3), key=KEY),
        lambda: Torch(
            torch.nn.Conv2d(8, 5, (2, 3), stride=(2, 3)),
            lambda m, x: m(x).flatten(2).transpose(1, 2),
        ),
        (INPUTS[2],),
        {"projection.weight": kernel("weight"), "projection.bias": named("bias")},
        to_theirs=images["to_theirs"],
        to_ours=flat,
    ),
    Row(
        "SqueezeExcite",
        lambda: nn.SqueezeExcite(8, 2, key=KEY),
        lambda: Torch(Excite()),
        (INPUTS[2],),
        {
            "squeeze.weight": dense("fc1.weight"),
            "squeeze.bias": named("fc1.bias"),
            "excite.weight": dense("fc2.weight"),
            "excite.bias": named("fc2.bias"),
        },
        **images,
    ),
]

"""Convolutions over any number of axes, and what changes the size of images."""

from __future__ import annotations

from typing import Any

from tests.core.dynamic import floats
from treadle import nn, rng

KEY = rng.key(0)
ARGS = {"seq": floats("n t 4"), "im4": floats("n h w 4"), "vol": floats("n h w 3 4")}
LAYERS: dict[str, Any] = {
    "conv1": nn.Conv1d(4, 3, 3, padding="CAUSAL", dilation=2, key=KEY),
    "same1": nn.Conv1d(4, 4, 3, stride=2, key=KEY),
    "wrapped": nn.Conv1d(4, 2, 3, padding_mode="circular", groups=2, key=KEY),
    "mirrored": nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect", key=KEY),
    "conv3": nn.Conv3d(4, 2, 2, padding="SAME", key=KEY),
    "up1": nn.ConvTranspose1d(4, 3, 4, stride=2, key=KEY),
    "up2": nn.ConvTranspose2d(4, 2, 3, stride=2, padding=1, output_padding=1, key=KEY),
    "up3": nn.ConvTranspose3d(4, 2, 2, groups=2, key=KEY),
    "pad": nn.Pad(((1, 0),), mode="replicate"),
    "upsample": nn.Upsample(2),
    "bilinear": nn.Upsample((3, 2), mode="linear"),
    "corners": nn.Upsample((3,), mode="linear", align_corners=True),
    "shuffle": nn.PixelShuffle(2),
    "unshuffle": nn.PixelUnshuffle(2),
    "tiles": nn.Conv2d(3, 4, 2, stride=2, padding="VALID", key=KEY),
    "patches": nn.PatchEmbedding(4, 3, 2, key=KEY),
    "excite": nn.SqueezeExcite(4, 2, key=KEY),
    "response": nn.LocalResponseNorm(3),
    "flatten": nn.Flatten(-3, -2),
    "unflatten": nn.Unflatten(-1, (2, 2)),
}
EXPRESSIONS = [
    "tiles(im)",
    "conv1(seq), wrapped(seq), up1(seq), pad(seq), response(seq)",
    "same1(seq)",
    "corners(seq)",
    "up2(im4), excite(im4)",
    "upsample(im4), shuffle(im4), flatten(im4), unflatten(im4)",
    "conv3(vol), up3(vol)",
    "mirrored(im4)",
    "bilinear(im4)",
    "patches(im4), unshuffle(im4)",
]
_SAME, _CORNERS, *_, _MIRRORED, _BILINEAR, _PATCHES = EXPRESSIONS[1:]
GUARDED = {
    _SAME: "one more is added before or behind",
    _CORNERS: "a sequence of one element",
    _MIRRORED: "mirrored more than once",
    _BILINEAR: "rows that are short are a product with a matrix",
}
SIZES = {_PATCHES: ((3, 6, 4), (1, 4, 8), (2, 8, 16))}

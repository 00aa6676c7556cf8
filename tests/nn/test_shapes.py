"""What layers say of arrays and options that they can't take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng

KEY = rng.key(0)
IMAGE = tnp.ones((2, 4, 6, 3))
TOKENS = tnp.array([[0, 1], [2, 0]])
BAG = nn.EmbeddingBag(3, 4, key=KEY)

WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "rank": (lambda: nn.Conv3d(3, 2, 3, key=KEY)(IMAGE[0]), r"\(..., depth, height, w"),
    "channels first": (
        lambda: nn.Conv1d(6, 2, 3, key=KEY)(tnp.ones((2, 6, 4))),
        r"channels=6\), got f32\[2,6,4\](.|\n)*`tnp.moveaxis\(x, -2, -1\)`",
    ),
    "causal": (
        lambda: nn.Conv2d(3, 2, 3, padding="CAUSAL", key=KEY),
        'Conv2d: padding is "SAME", "VALID", an int, or an int or a pair',
    ),
    "negative padding": (
        lambda: nn.Conv1d(3, 2, 3, padding=-1, key=KEY),
        'padding is "SAME", "VALID", "CAUSAL", .*got -1',
    ),
    "padding mode": (
        lambda: nn.Conv1d(3, 2, 3, padding_mode="edge", key=KEY),  # type: ignore[arg-type]
        "padding_mode is one of .*'replicate'.*; got 'edge'",
    ),
    "precision": (
        lambda: nn.ConvTranspose2d(3, 2, 3, precision="hi", key=KEY),
        "ConvTranspose2d: precision 'hi' is none of 'default'",
    ),
    "window": (lambda: nn.MaxPool1d(0)(IMAGE[0]), "window is a positive int, got"),
    "window of another rank": (
        lambda: nn.AvgPool3d((2, 2))(IMAGE),
        r"AvgPool3d: window has one entry for each of 3 spatial axes, got \(2, 2\)",
    ),
    "output padding": (
        lambda: nn.ConvTranspose1d(3, 2, 3, stride=2, output_padding=2, key=KEY),
        "output_padding must be less than stride or dilation, got .2,. with stride",
    ),
    "norm": (lambda: nn.lp_pool(IMAGE, 0.5, 2), "the norm must be at least 1, got 0.5"),
    "adaptive": (
        lambda: nn.adaptive_avg_pool(IMAGE, 0),
        "output_size is a positive int or two of them",
    ),
    "flatten": (lambda: nn.Flatten(4)(IMAGE), "axis 4 of f32.2,4,6,3. is out of range"),
    "flatten backwards": (
        lambda: nn.Flatten(2, 1)(IMAGE),
        "axis 2 .* is behind axis 1",
    ),
    "pad": (lambda: nn.Pad(1, mode="edge"), "Pad: mode is one of .*; got 'edge'"),
    "no scale": (lambda: nn.Upsample(), "takes a scale_factor or a size"),
    "corners": (
        lambda: nn.Upsample(2, align_corners=True),
        "got 'nearest' with align_corners",
    ),
    "shuffle": (lambda: nn.PixelShuffle(2)(IMAGE), "3 channels are no multiple of 2²"),
    "unshuffle": (
        lambda: nn.PixelUnshuffle(3)(IMAGE),
        "no multiples of 3: f32.2,4,6,3",
    ),
    "patches": (
        lambda: nn.PatchEmbedding(3, 2, (2, 5), key=KEY)(IMAGE),
        "patches of 2 x 5 pixels leave a rest of f32.2,4,6,3",
    ),
    "residual": (
        lambda: nn.Residual(nn.Flatten())(IMAGE),
        r"made f32\[2,72\] of f32\[2,4,6,3\](.|\n)*`shortcut`",
    ),
    "part": (lambda: nn.Residual(3), "Residual takes layers and functions, got 3"),  # type: ignore[arg-type]
    "general": (
        lambda: nn.LinearGeneral((4, 6), 2, key=KEY)(IMAGE),
        r"lengths \{-2: 4, -1: 6\}, got f32\[2,4,6,3\]",
    ),
    "axes": (
        lambda: nn.LinearGeneral((4, 6), 2, axis=1, key=KEY),
        r"2 in_features \(4, 6\) for the axes \(1,\)",
    ),
    "equation": (
        lambda: nn.Einsum("ij->ji", (2,), key=KEY),
        "Einsum takes an equation",
    ),
    "weight": (
        lambda: nn.Einsum("ij,jk->ik", (2,), key=KEY),
        r"'ij,jk->ik' has 2 axes for a weight of the shape \(2,\)",
    ),
    "bilinear": (
        lambda: nn.Bilinear(3, 4, 2, key=KEY)(IMAGE, IMAGE),
        r"in2_features=4\), got f32",
    ),
    "mode": (
        lambda: nn.EmbeddingBag(3, 4, mode="min", key=KEY),  # type: ignore[arg-type]
        "mode is one of .'sum', 'mean', 'max'.; got 'min'",
    ),
    "offsets": (lambda: BAG(TOKENS, offsets=tnp.array([0])), r"offsets i32\[1\]"),
    "mask": (
        lambda: BAG(TOKENS, mask=tnp.ones(2, bool)),
        r"i32\[2,2\], mask bool\[2\]",
    ),
    "weights": (
        lambda: BAG(TOKENS, weights=tnp.ones((2, 2))),
        "weights are for mode 'sum', not 'mean'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    wrong, message = WRONG[name]
    with pytest.raises((ValueError, TypeError), match=message) as caught:
        wrong()
    assert f"at {__file__}:" in str(caught.value)


def test_pools_of_integers_and_empty_batches() -> None:
    x = np.random.default_rng(0).integers(0, 255, (2, 5, 5, 1)).astype(np.uint8)
    wide = tnp.asarray(x.astype(np.float32))
    for pool in (nn.max_pool, nn.min_pool):
        found = pool(x, 2, 1, 1)
        assert found.dtype == np.uint8
        assert np.array_equal(found, np.asarray(pool(wide, 2, 1, 1)))
    assert np.array_equal(nn.avg_pool(x, 2, 1), nn.avg_pool(wide, 2, 1))
    assert np.array_equal(nn.lp_pool(x, 2, 2), nn.lp_pool(wide, 2, 2))
    assert nn.adaptive_avg_pool(x, 2).dtype == np.float32
    assert nn.adaptive_max_pool(x, 2).dtype == np.uint8
    empty = tnp.ones((0, 5, 5, 1))
    for layer in (nn.MaxPool2d(2, 1), nn.AdaptiveAvgPool2d(2), nn.Upsample(2)):
        assert layer(empty).shape[0] == 0


def test_a_norm_that_is_zero_has_no_slope() -> None:
    grad = td.grad(lambda x: nn.lp_pool(x, 2, (2,)).sum())(tnp.zeros((4, 1)))
    assert not np.asarray(grad).any()


def test_no_output_sees_what_is_later() -> None:
    layer = nn.Conv1d(1, 1, 3, padding="CAUSAL", dilation=2, key=KEY)
    seen = td.jacobian(lambda x: layer(x[:, None])[:, 0])(tnp.ones(9))
    assert not np.triu(np.asarray(seen), 1).any() and np.asarray(seen).any()


def test_adaptive_means_of_doubles_are_doubles() -> None:
    x = np.random.default_rng(0).normal(size=(5, 1))
    found = nn.adaptive_avg_pool(x, (3,))[:, 0]
    wanted = [x[:2].mean(), x[1:4].mean(), x[3:].mean()]
    np.testing.assert_allclose(found, wanted, rtol=1e-14)


def test_what_is_infinite_reaches_no_other_adaptive_mean() -> None:
    x = np.arange(7.0, dtype=np.float32)[:, None]
    x[3] = np.inf
    found = np.asarray(nn.adaptive_avg_pool(x, (3,)))[:, 0]
    np.testing.assert_allclose(found, [x[:3].mean(), np.inf, x[4:].mean()])

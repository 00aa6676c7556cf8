"""diffusion: a U-Net learns to draw what it has seen: your images, or digits.

`treadle sample RUN` lets it draw. In training, noise is added to images, and the
network tells it; to draw, it takes noise away from nothing but noise, step by step. The
weights that draw are averages of those that are trained.

J. Ho et al., *Denoising Diffusion Probabilistic Models*, 2020; with fewer steps and no
new noise: J. Song et al., *Denoising Diffusion Implicit Models*, 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import treadle as td
from treadle import models, nn, optim, rng
from treadle.recipes import supervised
from treadle.recipes.config import MOST_STEPS, Training, option
from treadle.recipes.data import digits
from treadle.recipes.errors import UsageError
from treadle.recipes.task import (
    Data,
    Facts,
    Learner,
    Metrics,
    Recipe,
    Trained,
    adamw,
    averaging,
)

_SCHEDULES: dict[str, Callable[[int], np.ndarray]] = {
    "cosine": models.cosine_schedule,
    "linear": models.linear_schedule,
}
_PREDICTIONS = ("noise", "velocity")
_GROUPS = 8
_TEST_SEED = 0
_GAP = 2
_LEAST_SIDE = 64
"""Pictures of smaller images are enlarged."""


@dataclass(frozen=True)
class Config(Training):
    """The options."""

    steps: int = option(3000, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(64, "images per update", least=1)
    learning_rate: float = option(
        2e-3, "the peak, after a warm-up; then it falls to a tenth", least=0
    )
    data: str | None = option(
        None, "a folder of images, or NPZ or IDX files (default: digits)"
    )
    image_size: int | None = option(None, "height and width that images get", least=1)
    width: int = option(32, "channels at the full size of the image", least=8)
    levels: int = option(
        2, "sizes of the image: each is half of the one before, twice as wide", least=1
    )
    blocks: int = option(1, "blocks at each size", least=1)
    dropout: float = option(0.0, "the share of features left out", least=0, below=1)
    noise_steps: int = option(1000, "steps from an image to noise", least=2)
    schedule: str = option("cosine", "how the noise grows: cosine or linear")
    prediction: str = option("noise", "what the network tells: noise or velocity")
    average: float = option(0.995, "decay of the averaged weights", least=0, below=1)


@dataclass(frozen=True)
class Sampling:
    """What `treadle sample` is asked for."""

    count: int = option(64, "how many images to draw", least=1)
    steps: int = option(100, "how many of the --noise-steps are taken back", least=1)
    eta: float = option(
        0.0, "noise that is drawn anew: 0 is DDIM, 1 DDPM", least=0, below=1.0001
    )
    seed: int = option(0, "other numbers give other images", least=0, below=2**64)


def load(config: Config) -> Data:
    """The images in batches; labels are of no use, and need not be there."""
    if config.data is None:
        found = digits.load()
    else:
        found = supervised.own(config, labelled=False)
    supervised.check_images(config, found, "draws images")
    facts = supervised.describe(found, config.image_size)
    least = float(supervised.prepared(facts, supervised.sample_of(found)).min())
    facts["least"] = -1 if least < 0 else 0
    return supervised.in_batches(found, config, facts)


def process(config: Config) -> models.Diffusion:
    """How noise is added to images, and taken away.

    Raises:
      UsageError: for options that there are not.
    """
    for name, value, known in (
        ("schedule", config.schedule, _SCHEDULES),
        ("prediction", config.prediction, _PREDICTIONS),
    ):
        if value not in known:
            raise UsageError(f"--{name} {value}: expected {' or '.join(known)}")
    signal = _SCHEDULES[config.schedule](config.noise_steps)
    prediction: Any = config.prediction
    return models.Diffusion(signal, prediction=prediction)


def loss(
    facts: Facts,
    diffusion: models.Diffusion,
    model: Any,
    batch: tuple[Any, Any],
    key: rng.Key | None,
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """The squared error about the noise, at random times; tests draw the same ones."""
    images = supervised.prepared(facts, batch[0])
    if facts["least"] == 0:
        images = 2 * images - 1
    noise_key = rng.key(_TEST_SEED)
    if key is not None:
        noise_key, key = rng.split(key)

    def told(images: Any, times: Any) -> td.Array:
        return nn.stateful(model, key=key)(images, times)[0]

    return diffusion.loss(told, images, key=noise_key).mean(), ({}, model)


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The U-Net and its optimizer, which keeps averages of the weights."""
    if config.width % _GROUPS:
        raise UsageError(
            f"--width {config.width}: expected a multiple of {_GROUPS}, such as "
            f"{config.width // _GROUPS * _GROUPS}"
        )
    height, width, channels = facts["shape"]
    most = max(height, width).bit_length()
    if config.levels > most:
        raise UsageError(
            f"--levels {config.levels}: images of {height}x{width} can be halved to "
            f"{most} sizes at most"
        )
    unet = models.DiffusionUNet(
        [config.width * 2**level for level in range(config.levels)],
        config.blocks,
        channels=channels,
        groups=_GROUPS,
        dropout=config.dropout,
        key=key,
    )
    return Learner(
        unet,
        averaging(adamw(config, optim.matrices), config.average),
        partial(loss, facts, process(config)),
        best=("test_loss", "min"),
        evaluated=optim.averaged,
    )


def sample(trained: Trained, wanted: Sampling) -> Iterator[str | np.ndarray]:
    """A picture of many images."""
    config, facts = trained.config, trained.facts
    if wanted.steps > config.noise_steps:
        raise UsageError(
            f"--steps {wanted.steps}: the model knows {config.noise_steps} steps"
        )
    diffusion = process(config)

    @td.jit
    def drawn(model: Any, key: rng.Key) -> td.Array:
        shape = (wanted.count, *facts["shape"])
        return diffusion.sample(
            model, shape, steps=wanted.steps, eta=wanted.eta, clip=1.0, key=key
        )

    images = np.asarray(drawn(nn.inference(trained.model), rng.key(wanted.seed)))
    yield grid((images + 1) / 2)


def grid(images: np.ndarray) -> np.ndarray:
    """Images (n, height, width, channels) from 0 to 1, side by side, as bytes."""
    count, height, width, channels = images.shape
    columns = int(np.ceil(np.sqrt(count)))
    rows = -(-count // columns)
    if channels not in (1, 3):  # transparency can't be seen on a page
        images = images[..., : 3 if channels > 3 else 1]
    pixels = np.round(np.clip(images, 0, 1) * 255).astype(np.uint8)
    larger = max(1, _LEAST_SIDE // max(height, width))
    pixels = pixels.repeat(larger, 1).repeat(larger, 2)
    down, across = height * larger + _GAP, width * larger + _GAP
    out = np.full(
        (rows * down + _GAP, columns * across + _GAP, pixels.shape[-1]), 255, np.uint8
    )
    for n, image in enumerate(pixels):
        top, left = n // columns * down + _GAP, n % columns * across + _GAP
        out[top : top + image.shape[0], left : left + image.shape[1]] = image
    return out[..., 0] if out.shape[-1] == 1 else out


RECIPE = Recipe(
    name="diffusion",
    summary="a U-Net learns to draw images: your own, or digits",
    config=Config,
    load=load,
    learner=learner,
    sample=sample,
    sampling=Sampling,
)

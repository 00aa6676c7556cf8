"""Learning to tell images apart: what the recipes with images share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import treadle as td
from treadle import nn, rng
from treadle.data import DataSet
from treadle.data.augment import random_crop
from treadle.recipes import supervised
from treadle.recipes.config import Training, option
from treadle.recipes.data import digits
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Data, Facts, Learner, Metrics, adamw

_MOVED_BY = 14
"""Images are moved by up to a pixel for so many of their height."""


@dataclass(frozen=True)
class Images(Training):
    """The options of recipes with images."""

    data: str | None = option(
        None, "images by class in folders, or NPZ or IDX files (default: digits)"
    )
    image_size: int | None = option(
        None, "height and width that images in folders get", least=1
    )


def load(config: Images) -> Data:
    """The images in batches: the bundled digits, or one's own."""
    found = images(config)
    return supervised.in_batches(found, config, supervised.describe(found))


def images(config: Images) -> DataSet:
    """The bundled digits, or one's own images.

    Raises:
      UsageError: if these are no images, or not of classes.
    """
    found = digits.load() if config.data is None else supervised.own(config)
    if (
        found.columns
        or found.classes is None
        or not supervised.is_images(supervised.sample_of(found))
    ):
        raise UsageError(
            f"--data {config.data}: this recipe tells images apart by classes; found "
            f"{found.about}"
        )
    return found


def learner(model: nn.Module, config: Training, facts: Facts) -> Learner:
    """A classifier of images (*batch, height, width, channels), trained with AdamW."""
    return Learner(model, adamw(config), partial(loss, facts), ("test_accuracy", "max"))


def loss(
    facts: Facts, model: Any, batch: tuple[Any, Any], key: rng.Key | None
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """The cross-entropy; in training, of images that are moved a little."""
    inputs, labels = batch
    pixels = supervised.prepared(facts, inputs)
    if key is not None:
        move_key, key = rng.split(key)
        reach = max(1, pixels.shape[1] // _MOVED_BY)
        pixels = random_crop(move_key, pixels, padding=reach)
    return supervised.scored(facts, model, pixels, labels, key)

"""Learning to tell images apart: what the recipes with images share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import treadle as td
from treadle import nn, rng
from treadle.data import DataSet
from treadle.data.augment import random_crop
from treadle.recipes import supervised
from treadle.recipes.config import Training, option
from treadle.recipes.data import digits
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Data, Facts, Learner, Metrics, adamw

_CLASSES = 2
_MOVED_BY = 14
"""Images are moved by up to a pixel for so many of their height."""


@dataclass(frozen=True)
class Images(Training):
    """The options of recipes with images."""

    data: str | None = option(
        None, "images by class in folders, or NPZ or IDX files (default: digits)"
    )
    image_size: int | None = option(None, "height and width that images get", least=1)


def load(config: Images) -> Data:
    """The images in batches."""
    found = images(config)
    facts = supervised.describe(found, config.image_size)
    return supervised.in_batches(found, config, facts)


def images(config: Images) -> DataSet:
    """Images of two classes or more: the bundled digits, or one's own.

    Raises:
      UsageError: if there is something else in `--data`.
    """
    found = digits.load() if config.data is None else supervised.own(config)
    supervised.check_images(config, found, "tells images apart by classes")
    labels = found.train.labels
    if found.classes is None:
        raise UsageError(
            f"--data {config.data}: {found.about}, whose labels are no classes\n"
            "Classes are whole numbers or texts."
        )
    if labels is None or len(np.unique(labels)) < _CLASSES:
        raise UsageError(
            f"--data {config.data}: {found.about}; all for training are of one class\n"
            "There is nothing to be told apart: two classes are the least."
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

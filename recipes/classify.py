"""Learning to tell images apart: what the recipes with images share."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.data import DataSet, read
from treadle.data.augment import random_crop
from treadle.recipes.config import Training, option
from treadle.recipes.data import digits
from treadle.recipes.errors import UsageError
from treadle.recipes.task import (
    Data,
    Facts,
    Learner,
    Metrics,
    adamw,
    batches,
    in_turn,
)

_TEST_BATCH = 512
_MOVED_BY = 14
"""Images are moved by up to a pixel for so many of their height."""
_SAMPLE = 256
"""From how many images it is seen what values they have."""


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
    found = digits.load() if config.data is None else _own(config)
    assert found.test is not None and found.classes is not None
    sample = _sample(found)
    shape = sample.shape[1:] if sample.ndim == 4 else (*sample.shape[1:], 1)
    facts = {
        "training": len(found.train),
        "test": len(found.test),
        "examples": "images",
        "shape": list(map(int, shape)),
        "classes": list(found.classes),
        "white": _white(sample),
        "checksum": zlib.crc32(np.ascontiguousarray(sample).tobytes()),
    }
    test = partial(in_turn, found.test.source, _TEST_BATCH)
    return Data(batches(found.train, config), test, facts, found.about)


def _own(config: Images) -> DataSet:
    size = config.image_size
    try:
        found = read(str(config.data), image_size=(size, size) if size else None)
        found = found.split(seed=config.seed)
    except (ValueError, OSError) as error:
        # Where in this file it was read is nothing to the user.
        said = [t for t in str(error).splitlines() if not t.startswith("  at ")]
        raise UsageError(f"--data {config.data}: {'; '.join(said)}") from None
    shape = _sample(found).shape
    if found.classes is None or not (len(shape) == 3 or len(shape) == 4):
        raise UsageError(
            f"--data {config.data}: this recipe tells images apart by classes; found "
            f"{found.about}"
        )
    return found


def _sample(found: DataSet) -> np.ndarray:
    count = min(_SAMPLE, len(found.train))
    return found.train.source.fetch(np.arange(count))[0]


def _white(sample: np.ndarray) -> float:
    """The brightest value that such images have: they are divided by it."""
    if sample.dtype == np.uint8:
        return 255.0
    most = float(np.abs(sample).max(initial=0))
    return 1.0 if most <= 1 else most


def learner(model: nn.Module, config: Training, facts: Facts) -> Learner:
    """A classifier of images (*batch, height, width, channels), trained with AdamW."""
    return Learner(
        model, adamw(config), partial(loss, facts["white"]), ("test_accuracy", "max")
    )


def loss(
    white: float, model: Any, batch: tuple[Any, Any], key: rng.Key | None
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """The cross-entropy; in training, of images that are moved a little."""
    pixels, labels = map(tnp.asarray, batch)
    pixels = pixels.astype(td.float32) / white
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if key is not None:
        move_key, key = rng.split(key)
        reach = max(1, pixels.shape[1] // _MOVED_BY)
        pixels = random_crop(move_key, pixels, padding=reach)
    logits, model = nn.stateful(model, key=key)(pixels)
    value = nn.cross_entropy(logits, labels).mean()
    hits = logits.argmax(-1) == labels
    return value, ({"accuracy": hits.astype(td.float32).mean()}, model)

"""Learning to tell digits apart: what the digits recipes share."""

from __future__ import annotations

from functools import partial
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.recipes.config import Training
from treadle.recipes.data import digits as digits_data
from treadle.recipes.data.batches import Batches, in_turn
from treadle.recipes.data.digits import Images
from treadle.recipes.task import Data, Learner, Metrics, adamw

_TEST_BATCH = 512


def load(config: Training) -> Data:
    """The bundled digits, in batches."""
    train, test = digits_data.load()
    count, held_out = len(train.digits), len(test.digits)
    return Data(
        Batches(train.take, count, config.batch_size, rng.key(config.seed)),
        partial(in_turn, test.take, held_out, min(_TEST_BATCH, held_out)),
        {"training": count, "test": held_out, "examples": "images"},
    )


def learner(model: nn.Module, config: Training) -> Learner:
    """A classifier of images (*batch, 8, 8), trained with AdamW."""
    return Learner(model, adamw(config), loss, best=("test_accuracy", "max"))


def loss(
    model: Any, batch: Images, key: rng.Key | None
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """The cross-entropy; in training, of images that are moved a little."""
    pixels = tnp.asarray(batch.pixels)
    digits = tnp.asarray(batch.digits)
    if key is not None:
        move_key, key = rng.split(key)
        pixels = move(pixels, move_key)
    logits, model = nn.stateful(model, key=key)(pixels)
    value = nn.cross_entropy(logits, digits).mean()
    hits = logits.argmax(-1) == digits
    return value, ({"accuracy": hits.astype(td.float32).mean()}, model)


def move(pixels: td.Array, key: rng.Key) -> td.Array:
    """Each image moved by up to a pixel along each axis; zeros come in.

    >>> move(tnp.ones((5, 8, 8)), rng.key(0)).shape
    (5, 8, 8)
    """
    count, height, width = pixels.shape
    row_key, column_key = rng.split(key)
    padded = tnp.pad(pixels, ((0, 0), (1, 1), (1, 1)))
    rows = rng.randint(row_key, (count, 1, 1), 0, 3)
    columns = rng.randint(column_key, (count, 1, 1), 0, 3)
    # A choice among three slices rather than a gather: it fuses into one pass.
    moved = _choose([padded[:, k : k + height, :] for k in range(3)], rows)
    return _choose([moved[:, :, k : k + width] for k in range(3)], columns)


def _choose(options: list[td.Array], which: td.Array) -> td.Array:
    first, second, third = options
    return tnp.where(which == 0, first, tnp.where(which == 1, second, third))

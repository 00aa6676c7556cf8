"""Learning labels from examples in files: what all recipes do that read `--data`."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.data import DataSet, Source, read
from treadle.recipes.config import Training, option
from treadle.recipes.data import features
from treadle.recipes.errors import UsageError, unplaced
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
_SAMPLE = 256
"""From how many examples it is seen what values they have."""


@dataclass(frozen=True)
class Files(Training):
    """The options of recipes that take any labelled data."""

    data: str | None = option(
        None, "images by class in folders, or an NPZ, IDX or CSV file"
    )
    target: str | None = option(
        None, "the column of a CSV file to be predicted (default: the last)"
    )
    image_size: int | None = option(None, "height and width that images get", least=1)


def own(config: Any, *, labelled: bool = True) -> DataSet:
    """What `--data` names, some of it set apart for testing.

    labelled: whether labels are needed.

    Raises:
      UsageError: if it can't be read, or has no labels where they are needed.
    """
    if config.data is None:
        raise UsageError(
            "--data PATH is missing: images by class in folders, or an NPZ, IDX or CSV "
            "file"
        )
    size = config.image_size
    try:
        found = read(
            config.data,
            target=getattr(config, "target", None),
            image_size=(size, size) if size else None,
        ).split(seed=config.seed)
    except (ValueError, OSError) as error:
        raise UsageError(f"--data {config.data}: {unplaced(error)}") from None
    assert found.test is not None
    if labelled and (found.train.labels is None or found.test.labels is None):
        raise UsageError(
            f"--data {config.data}: {found.about}, but no labels of all of them\n"
            "Labels are an array y of an .npz file, one number for each example; "
            "images in files lie in a folder for each class."
        )
    if labelled and found.classes is not None and len(found.classes) < 2:
        raise UsageError(
            f"--data {config.data}: {found.about}\n"
            "There is nothing to be told apart: two classes are the least."
        )
    for part in (found.train, found.test):
        _check_finite(config, found, part.inputs)
    return found


def _check_finite(config: Any, found: DataSet, values: Any) -> None:
    is_float = isinstance(values, np.ndarray) and values.dtype.kind == "f"
    if not is_float or np.isfinite(values.sum(dtype=np.float64)):
        return
    rows = ~np.isfinite(values).reshape(len(values), -1).all(-1)
    raise UsageError(
        f"--data {config.data}: {found.about}, of which {rows.sum()} have values that "
        "are not finite\n"
        "Leave them out: `keep = np.isfinite(x).reshape(len(x), -1).all(1)`, then "
        "`x[keep]` and `y[keep]`."
    )


def load(config: Files) -> Data:
    """The examples of `--data` in batches, as arrays that a model can take: images and
    vectors as they are, rows of a table as vectors (`features.vectors`)."""
    found = own(config)
    if found.columns:
        return of_table(found, config, vectors=True)
    return in_batches(found, config, describe(found, config.image_size))


def describe(found: DataSet, size: int | None = None) -> Facts:
    """The facts of examples that are arrays.

    size: height and width that images get.
    """
    sample = sample_of(found)
    shape = sample.shape[1:]
    if is_images(sample):
        shape = (*shape, 1)[:3]
        shape = (size or shape[0], size or shape[1], shape[2])
    return {
        **_counts(found, "images" if is_images(sample) else "examples"),
        "shape": list(map(int, shape)),
        "white": _white(sample),
        "checksum": zlib.crc32(np.ascontiguousarray(sample).tobytes()),
    }


def of_table(found: DataSet, config: Any, *, vectors: bool) -> Data:
    """The rows of a table in batches.

    vectors: whether each row is one vector, instead of its numbers and categories.
    """
    columns = features.describe(found)
    made = features.vectors if vectors else features.standardized
    sources = [
        Source(partial(_row_fetch, part.source, columns, made), len(part), slow=False)
        for part in (found.train, found.test)
        if part is not None
    ]
    sample, _ = sources[0].fetch(np.arange(min(_SAMPLE, sources[0].count)))
    parts = [sample] if vectors else [sample["numbers"], sample["categories"]]
    facts = {
        **_counts(found, "rows"),
        "shape": [int(sum(part.shape[-1] for part in parts))],
        "white": None,
        "columns": columns,
        "checksum": zlib.crc32(b"".join(part.tobytes() for part in parts)),
    }
    test = partial(in_turn, sources[1], _TEST_BATCH)
    return Data(batches(sources[0], config), test, facts, found.about)


def _row_fetch(source: Source, columns: Any, made: Any, numbers: np.ndarray) -> Any:
    inputs, labels = source.fetch(numbers)
    return made(inputs, columns), labels


def _counts(found: DataSet, examples: str) -> Facts:
    assert found.test is not None
    facts: Facts = {
        "training": len(found.train),
        "test": len(found.test),
        "examples": examples,
        "classes": None if found.classes is None else list(found.classes),
    }
    if found.classes is None and found.train.labels is not None:
        labels = found.train.labels.astype(np.float64)
        # A model learns values near 1; all equal, they stay as they are.
        facts["mean"], facts["spread"] = (
            float(labels.mean()),
            float(labels.std()) or 1.0,
        )
    return facts


def in_batches(found: DataSet, config: Training, facts: Facts) -> Data:
    """A data set as what a recipe loads."""
    assert found.test is not None
    test = partial(in_turn, telling(found.test.source), _TEST_BATCH)
    return Data(batches(telling(found.train.source), config), test, facts, found.about)


def telling(source: Source) -> Source:
    """A source of which a file that can't be read, when it is needed, is the user's
    to mend."""

    def fetch(numbers: np.ndarray) -> Any:
        try:
            return source.fetch(numbers)
        except (ValueError, OSError) as error:
            raise UsageError(f"--data: {unplaced(error)}") from None

    return replace(source, fetch=fetch)


def sample_of(found: DataSet) -> np.ndarray:
    """The inputs of some examples: they are evenly spread, for the first may all be
    alike."""
    count = len(found.train)
    chosen = np.linspace(0, count - 1, min(_SAMPLE, count)).astype(np.int64)
    return telling(found.train.source).fetch(chosen)[0]


def check_images(config: Any, found: DataSet, purpose: str) -> None:
    """
    purpose: what the recipe does with images.

    Raises:
      UsageError: if a data set has other examples.
    """
    sample = None if found.columns else found.train.source.fetch(np.arange(1))[0]
    if sample is not None and is_images(sample):
        return
    first = sample is not None and sample.ndim == 4 and sample.shape[1] in (1, 3, 4)
    raise UsageError(
        f"--data {config.data}: this recipe {purpose}; found {found.about}"
        + "\nChannels come last: save `np.moveaxis(x, 1, -1)`." * first
    )


def is_images(sample: np.ndarray) -> bool:
    """Whether examples are images, with or without an axis of channels."""
    return sample.ndim == 3 or (sample.ndim == 4 and sample.shape[-1] in (1, 3, 4))


def _white(sample: np.ndarray) -> float | None:
    """The brightest value that such images have: they are divided by it."""
    if not is_images(sample):
        return None
    if sample.dtype == np.uint8:
        return 255.0
    most = float(np.abs(sample).max(initial=0))
    return 1.0 if most <= 1 else most


def outputs_for(facts: Facts) -> int:
    """How many numbers a model gives for an example: one a class, or one."""
    return 1 if facts["classes"] is None else len(facts["classes"])


def learner(model: Any, config: Training, facts: Facts) -> Learner:
    """A model of these data, trained with AdamW."""
    optimizer, measured = adamw(config), partial(loss, facts)
    if facts["classes"] is not None:
        return Learner(model, optimizer, measured, ("test_accuracy", "max"))
    return Learner(model, optimizer, measured, ("test_error", "min"))


def loss(
    facts: Facts, model: Any, batch: tuple[Any, Any], key: rng.Key | None
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """How far the model's outputs are from the labels."""
    inputs, labels = batch
    return scored(facts, model, prepared(facts, inputs), labels, key)


def prepared(facts: Facts, inputs: Any) -> Any:
    """Inputs as a model takes them: images have channels, values up to 1, and the size
    that the facts say; other floats have 32 bits, though NumPy's usual ones have 64."""
    white = facts["white"]
    if white is None:
        wide = getattr(inputs, "dtype", None) == np.float64
        return inputs.astype(td.float32) if wide else inputs
    pixels = tnp.asarray(inputs).astype(td.float32) / white
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    wanted = (pixels.shape[0], *facts["shape"])
    if pixels.shape == wanted:
        return pixels
    return td.image.resize(pixels, wanted, "linear")


def scored(
    facts: Facts, model: Any, inputs: Any, labels: Any, key: rng.Key | None
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """Of classes, the cross-entropy, and which share is right (accuracy); of numbers,
    the mean squared error in units of their spread, and by how much they are missed on
    average (error), in their own units."""
    labels = tnp.asarray(labels)
    name = type(model).__name__
    outputs, model = nn.stateful(model, key=key)(inputs)
    _check_outputs(name, outputs, labels.shape[0], facts)
    if facts["classes"] is not None:
        value = nn.cross_entropy(outputs, labels).mean()
        hits = outputs.argmax(-1) == labels
        return value, ({"accuracy": hits.astype(td.float32).mean()}, model)
    mean, spread = facts["mean"], facts["spread"]
    missed = outputs.reshape(labels.shape) - (labels - mean) / spread
    return (missed**2).mean(), ({"error": tnp.abs(missed).mean() * spread}, model)


def _check_outputs(name: str, outputs: Any, count: int, facts: Facts) -> None:
    wanted = outputs_for(facts)
    shape = getattr(outputs, "shape", None)
    if shape == (count, wanted) or (wanted == 1 and shape == (count,)):
        return
    found = type(outputs).__name__ if shape is None else f"shape {shape}"
    what = "a number for each class" if facts["classes"] is not None else "one number"
    raise UsageError(
        f"{name} gives {found} for {count} examples, expected ({count}, {wanted}): "
        f"{what} for each example"
    )

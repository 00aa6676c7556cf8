"""resnet: a residual network tells images apart: your own, or handwritten digits.

`--data` takes images by class in folders, NPZ or IDX files; `--pretrained` begins with
the weights of a Hugging Face folder. What is usual for such networks is here: images
normalised by the mean and spread of the data, moved and mirrored at random in the
compiled step, smoothed labels, weight decay of kernels alone, a warm-up and half a
cosine, and averaged weights.

`--average` averages the weights, and with them the statistics of norms.

K. He et al., *Deep Residual Learning for Image Recognition*, 2015.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import metrics, models, nn, optim, rng
from treadle.data import augment
from treadle.recipes import classify, supervised
from treadle.recipes.config import MOST_STEPS, option
from treadle.recipes.errors import UsageError, unplaced
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

_SMALL = 64
"""Networks for larger images begin with a stride."""
_SHOWN = 20


@dataclass(frozen=True)
class Config(classify.Images):
    """The options."""

    steps: int = option(1000, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(64, "examples per update", least=1)
    learning_rate: float = option(
        3e-3, "the peak, after a warm-up; then it falls to a tenth", least=0
    )
    weight_decay: float = option(0.05, "how fast unused kernels shrink", least=0)
    depth: int = option(20, "layers: 20, 32, 44, 56, 110; wide: 18, 34, 50, 101, 152")
    pretrained: str | None = option(
        None, "a Hugging Face folder of a ResNet to begin with, instead of --depth"
    )
    smoothing: float = option(
        0.1, "the share of a label spread over all classes", least=0, below=1
    )
    shift: float = option(
        0.125, "images move by up to this share of their size", least=0, below=1
    )
    flip: bool = option(False, "whether images are mirrored: true for most photographs")
    jitter: float = option(
        0.0, "by how much brightness and contrast change", least=0, below=1
    )
    erase: float = option(
        0.0, "how often a rectangle of an image is blotted out", least=0, below=1
    )
    mixup: float = option(
        0.0, "alpha of mixup, which blends pairs of images (0: none)", least=0
    )
    average: float = option(
        0.0, "decay of the averaged weights, such as 0.999 (0: none)", least=0, below=1
    )


def load(config: Config) -> Data:
    """The images in batches, and what they are normalised by."""
    found = classify.images(config)
    facts = supervised.describe(found, config.image_size)
    if config.pretrained is None:
        pixels = supervised.prepared(facts, supervised.sample_of(found))
        mean, std = pixels.mean((0, 1, 2)), pixels.std((0, 1, 2))
        # A channel that is always the same stays as it is.
        std = tnp.where(std > 0, std, 1)
    else:
        mean, std = map(tnp.asarray, _as_pretrained(Path(config.pretrained)))
    facts |= {"mean": np.asarray(mean).tolist(), "std": np.asarray(std).tolist()}
    return supervised.in_batches(found, config, facts)


def _as_pretrained(folder: Path) -> tuple[list[float], list[float]]:
    """The mean and spread that a network was trained with; else those of ImageNet."""
    path = folder / "preprocessor_config.json"
    said = json.loads(path.read_text()) if path.exists() else {}
    mean = said.get("image_mean", [0.485, 0.456, 0.406])
    return mean, said.get("image_std", [0.229, 0.224, 0.225])


def normalised(facts: Facts, inputs: Any) -> td.Array:
    """Images with a mean near 0 and a spread near 1 in each channel."""
    pixels = supervised.prepared(facts, inputs)
    # What was trained with colours has three of each: grey images become coloured.
    mean, std = tnp.asarray(facts["mean"]), tnp.asarray(facts["std"])
    return (pixels - mean) / std


def augmented(
    config: Config, key: rng.Key, images: td.Array, targets: td.Array
) -> tuple[td.Array, td.Array]:
    """Images and targets (batch, classes), changed at random."""
    keys = rng.split(key, 5)
    reach = round(config.shift * max(images.shape[1:3]))
    if reach:
        images = augment.random_crop(keys[0], images, padding=reach, mode="edge")
    if config.flip:
        images = augment.random_flip(keys[1], images)
    if config.jitter:
        images = augment.color_jitter(
            keys[2], images, brightness=config.jitter, contrast=config.jitter
        )
    if config.erase:
        images = augment.random_erasing(keys[3], images, config.erase)
    if config.mixup:
        images, targets = augment.mixup(keys[4], images, targets, config.mixup)
    return images, targets


def loss(
    config: Config,
    facts: Facts,
    model: Any,
    batch: tuple[Any, Any],
    key: rng.Key | None,
) -> tuple[td.Array, tuple[Metrics, Any]]:
    """The cross-entropy; in training, of changed images and smoothed labels."""
    images, labels = normalised(facts, batch[0]), tnp.asarray(batch[1])
    targets = nn.one_hot(labels, len(facts["classes"]))
    smoothing = 0.0
    if key is not None:
        change_key, key = rng.split(key)
        images, targets = augmented(config, change_key, images, targets)
        smoothing = config.smoothing
    logits, model = nn.stateful(model, key=key)(images)
    value = nn.cross_entropy(logits, targets, smoothing=smoothing).mean()
    hits = logits.argmax(-1) == labels
    return value, ({"accuracy": hits.astype(td.float32).mean()}, model)


def network(config: Config, facts: Facts, key: rng.Key) -> models.ResNet:
    """The network as it is at first."""
    height, width, channels = facts["shape"]
    classes = len(facts["classes"])
    if config.pretrained is not None:
        return _pretrained(config.pretrained, classes, channels, key)
    small = max(height, width) < _SMALL
    try:
        return models.ResNet.of_depth(
            config.depth, classes, channels=channels, small=small, key=key
        )
    except ValueError as error:
        wrong = unplaced(error).removeprefix("ResNet.of_depth: ")
        raise UsageError(f"--depth {config.depth}: {wrong}") from None


def _pretrained(
    folder: str, classes: int, channels: int, key: rng.Key
) -> models.ResNet:
    """A network that has learnt from other images, with a new head."""
    try:
        found = models.from_huggingface(folder)
    except (ValueError, OSError) as error:
        raise UsageError(f"--pretrained: {unplaced(error)}") from None
    if not isinstance(found, models.ResNet):
        raise UsageError(
            f"--pretrained {folder}: is of a {type(found).__name__}, no ResNet"
        )
    takes = found.stem.conv.weight.shape[-2]
    if channels not in (1, takes):
        raise UsageError(
            f"--pretrained {folder}: takes images of {takes} channels, those of the "
            f"data have {channels}"
        )
    features = found.stages[-1][-1].layers[-1].norm.features
    return nn.training(found.replace(head=nn.Linear(features, classes, key=key)))


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The network and its optimizer: kernels decay, biases and norms don't."""
    optimizer = adamw(config, optim.matrices)
    made = Learner(
        network(config, facts, key),
        optimizer,
        partial(loss, config, facts),
        best=("test_accuracy", "max"),
    )
    if not config.average:
        return made
    return replace(
        made,
        optimizer=averaging(optimizer, config.average),
        evaluated=optim.averaged,
    )


def details(trained: Trained, data: Data) -> Iterator[str]:
    """How many images of each class are told right, the hardest classes first."""
    facts = trained.facts
    model, names = nn.inference(trained.model), facts["classes"]
    counted = metrics.ConfusionMatrix(len(names))

    @td.jit
    def more(model: Any, counted: Any, batch: Any) -> Any:
        return counted.update(model(normalised(facts, batch[0])), batch[1])

    for batch, _ in data.test():
        counted = more(model, counted, batch)
    matrix = np.asarray(counted.compute())
    there, right = matrix.sum(1), matrix.diagonal()
    shares = right / np.maximum(there, 1)
    wrong = matrix - np.diag(right)
    order = [n for n in np.argsort(shares, kind="stable") if there[n]]
    size = max(len(str(names[n])) for n in order)
    for n in order[:_SHOWN]:
        taken = wrong[n].argmax()
        note = f"  {wrong[n, taken]} taken for {names[taken]}" if wrong[n].any() else ""
        yield f"  {names[n]:<{size}}  {shares[n]:.3f} of {there[n]}{note}"
    if len(order) > _SHOWN:
        yield f"  and {len(order) - _SHOWN} classes that are easier"


RECIPE = Recipe(
    name="resnet",
    summary="a residual network tells images apart: your own, or digits",
    config=Config,
    load=load,
    learner=learner,
    details=details,
)

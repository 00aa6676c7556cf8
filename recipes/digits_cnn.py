"""digits-cnn: a convolutional network reads handwritten digits, or tells apart what
`--data` holds.

Two convolutions with batch normalisation, each followed by pooling.
"""

from __future__ import annotations

from dataclasses import dataclass

import treadle as td
from treadle import nn, rng
from treadle.recipes import classify
from treadle.recipes.config import MOST_STEPS, option
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Facts, Learner, Recipe

_LEAST = 4
"""Each side is halved twice."""


@dataclass(frozen=True)
class Config(classify.Images):
    """The options."""

    steps: int = option(1000, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(64, "examples per update", least=1)
    learning_rate: float = option(
        3e-3, "the peak, after a warm-up; then it falls to a tenth", least=0
    )
    channels: int = option(
        16, "channels of the first convolution; the second has twice as many", least=1
    )
    dropout: float = option(0.1, "the share of features left out", least=0, below=1)


class Classifier(nn.Module):
    """Images (*batch, height, width, channels) to logits (*batch, classes)."""

    first: nn.Conv2d
    first_norm: nn.BatchNorm
    second: nn.Conv2d
    second_norm: nn.BatchNorm
    dropout: nn.Dropout
    out: nn.Linear

    def __init__(self, config: Config, facts: Facts, *, key: rng.Key) -> None:
        height, width, channels = facts["shape"]
        first_key, second_key, out_key = rng.split(key, 3)
        narrow, wide = config.channels, 2 * config.channels
        self.first = nn.Conv2d(channels, narrow, 3, padding="SAME", key=first_key)
        self.first_norm = nn.BatchNorm(narrow)
        self.second = nn.Conv2d(narrow, wide, 3, padding="SAME", key=second_key)
        self.second_norm = nn.BatchNorm(wide)
        self.dropout = nn.Dropout(config.dropout)
        features = (height // 4) * (width // 4) * wide
        self.out = nn.Linear(features, len(facts["classes"]), key=out_key)

    def __call__(self, images: td.Array) -> td.Array:
        x = nn.max_pool(nn.relu(self.first_norm(self.first(images))), 2)
        x = nn.max_pool(nn.relu(self.second_norm(self.second(x))), 2)
        x = x.reshape(*images.shape[:-3], self.out.in_features)
        return self.out(self.dropout(x))


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The network and its optimizer."""
    if min(facts["shape"][:2]) < _LEAST:
        raise UsageError(
            f"images of {facts['shape']} are too small: {_LEAST}x{_LEAST} is the least"
        )
    return classify.learner(Classifier(config, facts, key=key), config, facts)


RECIPE = Recipe(
    name="digits-cnn",
    summary="a convolutional network reads handwritten digits",
    config=Config,
    load=classify.load,
    learner=learner,
)

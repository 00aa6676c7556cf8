"""digits-mlp: a multilayer perceptron reads handwritten digits, or tells apart what
`--data` holds. The default recipe.

97 of 100 digits that it has never seen are read correctly after a few seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import treadle as td
from treadle import nn, rng
from treadle.recipes import classify
from treadle.recipes.config import MOST_STEPS, option
from treadle.recipes.task import Facts, Learner, Recipe


@dataclass(frozen=True)
class Config(classify.Images):
    """The options."""

    steps: int = option(2000, "how many updates to make", least=1, below=MOST_STEPS)
    learning_rate: float = option(
        3e-3, "the peak, after a warm-up; then it falls to a tenth", least=0
    )
    width: int = option(256, "units in each hidden layer", least=1)
    depth: int = option(2, "hidden layers", least=1)
    dropout: float = option(0.1, "the share of units left out", least=0, below=1)


class Classifier(nn.Module):
    """Images (*batch, height, width, channels) to logits (*batch, classes)."""

    hidden: list[nn.Linear]
    dropout: nn.Dropout
    out: nn.Linear

    def __init__(self, config: Config, facts: Facts, *, key: rng.Key) -> None:
        out_key, *keys = rng.split(key, config.depth + 1)
        sizes = [math.prod(facts["shape"])] + [config.width] * config.depth
        self.hidden = [
            nn.Linear(n, config.width, key=k)
            for n, k in zip(sizes[:-1], keys, strict=True)
        ]
        self.dropout = nn.Dropout(config.dropout)
        self.out = nn.Linear(config.width, len(facts["classes"]), key=out_key)

    def __call__(self, images: td.Array) -> td.Array:
        x = images.reshape(*images.shape[:-3], self.hidden[0].in_features)
        for layer in self.hidden:
            x = self.dropout(nn.relu(layer(x)))
        return self.out(x)


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The perceptron and its optimizer."""
    return classify.learner(Classifier(config, facts, key=key), config, facts)


RECIPE = Recipe(
    name="digits-mlp",
    summary="a multilayer perceptron reads handwritten digits (the default)",
    config=Config,
    load=classify.load,
    learner=learner,
)

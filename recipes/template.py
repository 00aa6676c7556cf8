"""my-recipe: a perceptron tells two spirals apart, or the classes that --data holds.

Train it:          treadle train FILE
See its options:   treadle train FILE --help
With your data:    treadle train FILE --data examples.npz    (arrays x and y)

What follows is yours to change: the options, the data, the model, the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import data, nn, rng
from treadle.recipes.config import Training, option
from treadle.recipes.task import Data, Facts, Learner, Recipe, adamw, batches, in_turn


# Each field is an option of the command line: `width` is --width. `Training` has those
# that every recipe has: --steps, --batch-size, --learning-rate, --seed and more.
@dataclass(frozen=True)
class Config(Training):
    """The options."""

    data: str | None = option(None, "an .npz file with x and y (default: spirals)")
    width: int = option(64, "units in each hidden layer", least=1)


def spirals(seed: int) -> data.Labelled:
    """A thousand points (x, y) on two spirals."""
    random = np.random.default_rng(seed)
    labels = (np.arange(1000) % 2).astype(np.int32)
    turn = random.uniform(0.5, 3, 1000) * np.pi
    angle = turn + np.pi * labels
    points = turn[:, None] / 4 * np.stack([np.cos(angle), np.sin(angle)], -1)
    points += random.normal(0, 0.1, points.shape)
    return data.Labelled(points.astype(np.float32), labels)


# The facts are kept with the run: plain numbers, texts and lists. A run goes on only
# with data whose facts are the same, so put in what would tell others from these.
def load(config: Config) -> Data:
    """The data in batches, for training and for testing."""
    if config.data is None:
        found = data.DataSet(spirals(config.seed), None, ("0", "1"), "two spirals")
    else:
        found = data.read(config.data)
    found = found.split(0.2, seed=config.seed)
    assert found.test is not None and found.classes is not None
    facts = {
        "training": len(found.train),
        "test": len(found.test),
        "examples": "examples",
        "features": found.train.inputs.shape[-1],
        "classes": list(found.classes),
        "sum": float(np.sum(found.train.inputs, dtype=np.float64)),
    }
    test = partial(in_turn, found.test.source, 512)
    return Data(batches(found.train, config), test, facts, found.about)


class Model(nn.Module):
    """Examples (*batch, features) to logits (*batch, classes)."""

    mlp: nn.MLP

    def __init__(self, config: Config, facts: Facts, *, key: rng.Key) -> None:
        sizes = (facts["features"], config.width, config.width, len(facts["classes"]))
        self.mlp = nn.MLP(sizes, activation=nn.relu, key=key)

    def __call__(self, x: td.Array) -> td.Array:
        return self.mlp(x)


# The loss of a batch, which is differentiated and compiled. Without a key it is a test.
# What else is returned by name is logged, drawn and reported.
def loss(model: Any, batch: Any, key: rng.Key | None) -> Any:
    """The cross-entropy, and which share is right."""
    x, labels = map(tnp.asarray, batch)
    logits, model = nn.stateful(model, key=key)(x.astype(td.float32))
    value = nn.cross_entropy(logits, labels).mean()
    accuracy = (logits.argmax(-1) == labels).astype(td.float32).mean()
    return value, ({"accuracy": accuracy}, model)


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The model as it is at first, its optimizer, and what tells how good it is."""
    model = Model(config, facts, key=key)
    return Learner(model, adamw(config), loss, best=("test_accuracy", "max"))


RECIPE = Recipe(
    name="my-recipe",
    summary="a perceptron tells two spirals apart",
    config=Config,
    load=load,
    learner=learner,
)

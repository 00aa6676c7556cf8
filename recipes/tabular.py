"""tabular: a multilayer perceptron predicts a column of a table from the others.

`--data FILE.csv` gives it your own: classes or numbers, with missing values. Categories
become vectors that are learned (C. Guo and F. Berkhahn, *Entity Embeddings of
Categorical Variables*, 2016).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.data import Column, DataSet, Labelled
from treadle.optional import needed_for
from treadle.recipes import supervised
from treadle.recipes.config import MOST_STEPS, Training, option
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Data, Facts, Learner, Recipe

_MOST_PER_CATEGORY = 32


@dataclass(frozen=True)
class Config(Training):
    """The options."""

    steps: int = option(1000, "how many updates to make", least=1, below=MOST_STEPS)
    batch_size: int = option(64, "rows per update", least=1)
    data: str | None = option(
        None, "a CSV file with a header (default: tumours, benign or malignant)"
    )
    target: str | None = option(None, "the column to be predicted (default: the last)")
    width: int = option(64, "units in each hidden layer", least=1)
    depth: int = option(2, "hidden layers", least=1)
    dropout: float = option(0.1, "the share of units left out", least=0, below=1)

    @property
    def image_size(self) -> None:
        """There are no images."""


class Predictor(nn.Module):
    """Numbers and categories of rows to outputs (*batch, outputs)."""

    embeddings: list[nn.Embedding]
    hidden: list[nn.Linear]
    dropout: nn.Dropout
    out: nn.Linear

    def __init__(self, config: Config, facts: Facts, *, key: rng.Key) -> None:
        columns = facts["columns"]
        counts = [len(c["categories"]) + 1 for c in columns["categories"]]
        out_key, embed_key, *keys = rng.split(key, config.depth + 2)
        # Half as many numbers as there are categories: a usual choice.
        self.embeddings = [
            nn.Embedding(n, min(_MOST_PER_CATEGORY, (n + 1) // 2), key=k)
            for n, k in zip(counts, rng.split(embed_key, len(counts) + 1), strict=False)
        ]
        numbers = facts["shape"][0] - len(counts)
        embedded = sum(e.weight.shape[-1] for e in self.embeddings)
        sizes = [numbers + embedded] + [config.width] * config.depth
        self.hidden = [
            nn.Linear(n, config.width, key=k)
            for n, k in zip(sizes[:-1], keys, strict=True)
        ]
        self.dropout = nn.Dropout(config.dropout)
        self.out = nn.Linear(config.width, supervised.outputs_for(facts), key=out_key)

    def __call__(self, rows: Mapping[str, Any]) -> td.Array:
        categories = tnp.asarray(rows["categories"])
        embedded = [e(categories[..., i]) for i, e in enumerate(self.embeddings)]
        x = tnp.concatenate([tnp.asarray(rows["numbers"]), *embedded], axis=-1)
        for layer in self.hidden:
            x = self.dropout(nn.relu(layer(x)))
        return self.out(x)


def load(config: Config) -> Data:
    """The rows in batches: those of the bundled table, or one's own."""
    found = _tumours(config.seed) if config.data is None else supervised.own(config)
    if not found.columns:
        raise UsageError(
            f"--data {config.data}: this recipe reads tables in .csv files; found "
            f"{found.about}"
        )
    return supervised.of_table(found, config, vectors=False)


def _tumours(seed: int) -> DataSet:
    """W. Street et al., *Nuclear feature extraction for tumor diagnosis*, 1993."""
    with needed_for("the table that this recipe learns from"):
        from sklearn.datasets import load_breast_cancer

    bundled = load_breast_cancer()
    count = len(bundled.data)
    inputs = {
        "numbers": bundled.data.astype("float32"),
        "categories": tnp.zeros((count, 0), td.int32).__array__(),
    }
    return DataSet(
        Labelled(inputs, bundled.target.astype("int32")),
        None,
        tuple(map(str, bundled.target_names)),
        f"{count} rows of 30 numbers; whether a tumour is benign is to be predicted",
        tuple(Column(str(name)) for name in bundled.feature_names),
    ).split(seed=seed)


def learner(config: Config, facts: Facts, key: rng.Key) -> Learner:
    """The perceptron and its optimizer."""
    return supervised.learner(Predictor(config, facts, key=key), config, facts)


RECIPE = Recipe(
    name="tabular",
    summary="a perceptron predicts a column of a table, or of --data FILE.csv",
    config=Config,
    load=load,
    learner=learner,
)

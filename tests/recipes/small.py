"""Runs that are small enough for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from treadle import tree
from treadle.checkpoint import Manager
from treadle.recipes import digits_mlp, loop, runs
from treadle.recipes import metrics as metrics_file
from treadle.recipes.config import Training
from treadle.recipes.runs import Run
from treadle.recipes.task import Recipe

SMALL = digits_mlp.Config(
    steps=12, batch_size=500, width=8, depth=1, log_every=2, checkpoint_every=4
)


class Silent:
    """A display that keeps what it is told, and may interrupt the training."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.interrupt_at = interrupt_at
        self.notes: list[str] = []
        self.steps: list[int] = []
        self.tests: list[int] = []

    def start(self, step: int, steps: int) -> None:
        self.steps.append(step)

    def update(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.steps.append(step)
        if step == self.interrupt_at:
            os.kill(os.getpid(), signal.SIGINT)

    def test(self, step: int, metrics: Mapping[str, Any]) -> None:
        self.tests.append(step)

    def note(self, text: str) -> None:
        self.notes.append(text)

    def close(self) -> None:
        pass


def table(path: Path, rows: int = 300) -> Path:
    """A table: a colour and a size make the price; each eighth size is missing."""
    random = np.random.default_rng(0)
    with path.open("w") as file:
        print("size,colour,price", file=file)
        for row in range(rows):
            size, red = random.uniform(0, 50), random.random() < 0.3
            price = 1000 * size + 40000 * red
            colour = "red" if red else "blue" if row % 3 else "green"
            print(f"{size if row % 8 else ''},{colour},{price:.2f}", file=file)
    return path


def begin(
    folder: Path, config: Training = SMALL, recipe: Recipe = digits_mlp.RECIPE
) -> Run:
    """A run that has not been trained yet."""
    return runs.create(recipe, config, recipe.load(config).facts, folder)


def train(run: Run, display: Silent | None = None) -> loop.Outcome:
    """Trains a run, from its latest checkpoint."""
    data = run.recipe.load(run.config)
    learner = loop.learner_of(run.recipe, run.config, run.facts)
    return loop.train(run, data, learner, display or Silent())


def final_leaves(folder: Path) -> dict[str, bytes]:
    """Everything in a run's latest checkpoint, as bytes by path."""
    manager = Manager(folder / "checkpoints")
    leaves, form = tree.flatten(manager.restore())
    return {
        tree.key_name(path): np.asarray(leaf).tobytes()
        for path, leaf in zip(tree.paths(form), leaves, strict=True)
    }


def rows(folder: Path) -> list[dict[str, Any]]:
    """A run's metrics without the times."""
    found = metrics_file.read(folder / "metrics.jsonl")
    return [{k: v for k, v in row.items() if k != "seconds"} for row in found]


def assert_same_run(found: Path, expected: Path) -> None:
    """Two runs ended with the same bits, and have the same metrics at every step."""
    a, b = final_leaves(found), final_leaves(expected)
    assert a.keys() == b.keys()
    assert [name for name in a if a[name] != b[name]] == []
    assert rows(found) == rows(expected)

"""The digits recipes learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.recipes.small import begin, train
from treadle import rng
from treadle.recipes import classify, digits_cnn, digits_mlp
from treadle.recipes.config import Training
from treadle.recipes.task import Recipe


def test_move_shifts_whole_images() -> None:
    images = rng.uniform(rng.key(0), (20, 8, 8))
    moved = np.asarray(classify.move(images, rng.key(1)))
    padded = np.pad(np.asarray(images), ((0, 0), (1, 1), (1, 1)))
    shifts = []
    for before, after in zip(padded, moved, strict=True):
        fits = [
            (row, column)
            for row in range(3)
            for column in range(3)
            if np.array_equal(before[row : row + 8, column : column + 8], after)
        ]
        assert len(fits) == 1
        shifts += fits
    assert len(set(shifts)) > 5


def test_a_test_depends_on_no_chance() -> None:
    config = digits_mlp.Config(width=8, dropout=0.5)
    data = classify.load(config)
    learner = digits_mlp.learner(config, data.facts, rng.key(0))
    batch, _ = next(iter(data.test()))
    quiet = classify.nn.inference(learner.model)
    first, second = (classify.loss(quiet, batch, None)[0] for _ in range(2))
    assert tnp.array_equal(first, second)


@pytest.mark.parametrize(
    ("recipe", "config", "least"),
    [
        (digits_mlp.RECIPE, digits_mlp.Config(steps=300, checkpoint_every=300), 0.93),
        pytest.param(
            digits_cnn.RECIPE,
            digits_cnn.Config(checkpoint_every=1000),
            0.98,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            digits_mlp.RECIPE, digits_mlp.Config(), 0.975, marks=pytest.mark.slow
        ),
    ],
    ids=["mlp-short", "cnn", "mlp"],
)
def test_it_learns(
    tmp_path: Path, recipe: Recipe, config: Training, least: float
) -> None:
    run = begin(tmp_path / "run", replace(config, seed=1), recipe)
    assert train(run).tested["test_accuracy"] >= least

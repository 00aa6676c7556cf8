"""The digits recipes learn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.recipes.small import begin, train
from treadle import nn, rng
from treadle.recipes import classify, digits_cnn, digits_mlp
from treadle.recipes.config import Training
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Recipe


def test_one_s_own_images(tmp_path: Path) -> None:
    """Bytes, with colours, of another size and other classes."""
    random = np.random.default_rng(0)
    labels = np.array(["red", "green", "blue"])[np.arange(90) % 3]
    pixels = random.integers(0, 80, (90, 12, 10, 3), np.uint8)
    for i in range(90):
        pixels[i, ..., i % 3] += 100
    np.savez(tmp_path / "mine.npz", images=pixels, labels=labels)
    for recipe, config in (
        (digits_mlp.RECIPE, digits_mlp.Config(steps=60, batch_size=32, width=16)),
        (digits_cnn.RECIPE, digits_cnn.Config(steps=60, batch_size=32, channels=4)),
    ):
        config = replace(config, data=str(tmp_path / "mine.npz"), checkpoint_every=60)
        run = begin(tmp_path / recipe.name, config, recipe)
        assert run.facts["shape"] == [12, 10, 3]
        assert run.facts["classes"] == ["blue", "green", "red"]
        assert train(run).tested["test_accuracy"] > 0.9


def test_data_that_can_not_be_learnt_from(tmp_path: Path) -> None:
    def refused(*parts: str, **options: Any) -> None:
        with pytest.raises(UsageError) as caught:
            config = digits_cnn.Config(data=str(tmp_path / "a.npz"), **options)
            data = classify.load(config)
            digits_cnn.learner(config, data.facts, rng.key(0))
        for part in parts:
            assert part in str(caught.value)
        assert ".py:" not in str(caught.value)

    refused("--data", "there is nothing at")
    np.savez(tmp_path / "a.npz", x=np.zeros((10, 5)), y=np.arange(10) % 2)
    refused("tells images apart by classes", "10 examples of shape (5,)")
    np.savez(tmp_path / "a.npz", x=np.zeros((10, 3, 3)), y=np.arange(10) % 2)
    refused("--batch-size 64: there are 8 training examples")
    refused("[3, 3, 1] are too small: 4x4 is the least", batch_size=2)


def test_a_test_depends_on_no_chance() -> None:
    config = digits_mlp.Config(width=8, dropout=0.5)
    data = classify.load(config)
    learner = digits_mlp.learner(config, data.facts, rng.key(0))
    batch, _ = next(iter(data.test()))
    quiet = nn.inference(learner.model)
    first, second = (learner.loss(quiet, batch, None)[0] for _ in range(2))
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

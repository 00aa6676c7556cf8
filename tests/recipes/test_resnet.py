"""The recipe of residual networks: it learns, and says what it can't take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treadle.numpy as tnp
from tests.recipes.small import begin, image_model, images, train
from treadle import nn, optim, rng, tree
from treadle.recipes import resnet
from treadle.recipes.errors import UsageError
from treadle.recipes.task import Trained, averaging


def learn(folder: Path, **options: Any) -> tuple[Any, Trained, Any]:
    """What becomes of a pretrained network that learns three colours."""
    config = resnet.Config(
        data=str(images(folder / "images.npz")),
        pretrained=str(image_model(folder / "model")),
        batch_size=16,
        checkpoint_every=1000,
    )
    run = begin(folder / "run", replace(config, **options), resnet.RECIPE)
    outcome = train(run)
    trained = Trained(outcome.model, run.config, run.facts, run.folder)
    return outcome, trained, resnet.load(run.config)


def test_it_learns_from_pretrained_weights(tmp_path: Path) -> None:
    outcome, trained, data = learn(tmp_path, steps=40, flip=True)
    assert outcome.tested["test_accuracy"] > 0.9
    told = list(resnet.details(trained, data))
    assert len(told) == 3
    (batch, count), *_ = data.test()
    pixels = resnet.normalised(trained.facts, batch[0])
    hits = np.asarray(nn.inference(trained.model)(pixels)).argmax(-1) == batch[1]
    for line in told:
        name, share, _, there = line.split()[:4]
        of_class = batch[1] == int(name)
        assert int(there) == of_class.sum()
        assert float(share) == pytest.approx(hits[of_class].mean(), abs=1e-3)
    assert count == 12


def test_images_are_normalised_by_the_data(tmp_path: Path) -> None:
    config = resnet.Config(data=str(images(tmp_path / "images.npz")), batch_size=8)
    data = resnet.load(config)
    with np.load(tmp_path / "images.npz") as file:
        x = resnet.normalised(data.facts, file["x"])
    np.testing.assert_allclose(x.mean((0, 1, 2)), 0, atol=0.1)
    np.testing.assert_allclose(x.std((0, 1, 2)), 1, atol=0.1)
    larger = resnet.load(replace(config, image_size=16))
    assert larger.facts["shape"] == [16, 16, 3]
    batch = next(iter(larger.batches))
    assert resnet.normalised(larger.facts, batch[0]).shape == (8, 16, 16, 3)


def test_kernels_alone_decay() -> None:
    """Without gradients, what moves is what decays."""
    facts = {"shape": [8, 8, 1], "classes": ["a", "b"], "mean": [0.0], "std": [1.0]}
    config = resnet.Config(weight_decay=0.5, steps=100)
    made = resnet.learner(config, facts, rng.key(0))
    state = made.optimizer.init(made.model)
    zeros = tree.map(tnp.zeros_like, nn.partition(made.model)[0])
    for _ in range(2):  # The first is of the rate 0.
        updates, state = made.optimizer.update(zeros, state, made.model)
    moved = {n: bool((u != 0).any()) for n, u in nn.parameters(updates).items()}
    assert {n for n, is_moved in moved.items() if is_moved} == {
        n for n in moved if n.endswith(("conv.weight", "head.weight"))
    }


def test_averages_follow_soon_at_first() -> None:
    optimizer = averaging(optim.sgd(1.0), 0.25)
    weight = tnp.array([0.0])
    state, expected = optimizer.init(weight), 0.0
    for keep in (1 / 10, 2 / 11, 0.25, 0.25):
        updates, state = optimizer.update(tnp.array([-1.0]), state, weight)
        weight = optim.apply_updates(weight, updates)
        expected = keep * expected + (1 - keep) * float(weight[0])
        found = float(optim.averaged(weight, state)[0])
        assert found == pytest.approx(expected, rel=1e-6)


def test_what_can_not_be_trained(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"

    def refused(*parts: str, **options: Any) -> None:
        config = resnet.Config(data=str(path), batch_size=4, **options)
        with pytest.raises(UsageError) as caught:
            resnet.learner(config, resnet.load(config).facts, rng.key(0))
        for part in parts:
            assert part in str(caught.value)
        assert ".py:" not in str(caught.value)

    x, y = np.zeros((10, 8, 8)), np.arange(10) % 2
    np.savez(path, x=x, y=np.full(10, 3))
    refused("all for training are of one class", "two classes are the least")
    np.savez(path, x=np.zeros((10, 3, 8, 8)), y=y)
    refused("Channels come last", "(3, 8, 8)")
    np.savez(path, x=x + np.nan, y=y)
    refused("8 have values that are not finite")
    np.savez(path, x=x, y=y / 2)
    refused("whose labels are no classes")
    np.savez(path, x=x, y=y)
    refused("--depth 19: depth is one of", depth=19)
    refused("--pretrained", "has no config.json", pretrained=str(tmp_path))
    np.savez(path, x=np.zeros((10, 8, 8, 4)), y=y)
    model = str(image_model(tmp_path / "model"))
    refused("takes images of 3 channels", "have 4", pretrained=model)


@pytest.mark.slow
def test_it_reads_digits(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", resnet.Config(), resnet.RECIPE)
    assert train(run).tested["test_accuracy"] >= 0.98

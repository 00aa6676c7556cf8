"""The recipe of diffusion: its data, its loss, and its pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import treadle.numpy as tnp
from tests.recipes.small import begin, images, train
from treadle import optim, rng
from treadle.recipes import cli, diffusion
from treadle.recipes.errors import UsageError


def test_it_draws_a_picture_of_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Photographs without labels, in a folder as it is."""
    monkeypatch.chdir(tmp_path)
    with np.load(images(tmp_path / "images.npz", 12)) as file:
        pixels = file["x"]
    Path("photos").mkdir()
    for n, one in enumerate(pixels):
        Image.fromarray(one).save(f"photos/{n}.png")
    options = ["--data=photos", "--steps=2", "--batch-size=4", "--width=8"]
    options += ["--levels=1", "--checkpoint-every=2", "--run-dir=run"]
    assert cli.main(["train", "diffusion", *options]) == 0
    assert "data: 12 images of 6x5x3; 2 of them" in capsys.readouterr().out
    sizes = ["--count=5", "--steps=3"]
    assert cli.main(["sample", "run", *sizes]) == 0
    assert capsys.readouterr().out == "picture: run/sample-2-0.png\n"
    drawn = Image.open("run/sample-2-0.png")
    # Two rows of three, ten times as large, with two pixels around each.
    assert (drawn.size, drawn.mode) == ((3 * 52 + 2, 2 * 62 + 2), "RGB")
    assert cli.main(["sample", "run", *sizes]) == 0
    again = Image.open("run/sample-2-0.png")
    assert drawn.tobytes() == again.tobytes()
    assert cli.main(["sample", "run", "--steps=1001"]) == 2
    assert "the model knows 1000 steps" in capsys.readouterr().err
    assert cli.main(["sample", "run", "--prompt=x"]) == 2
    assert "no option of `treadle sample` is called" in capsys.readouterr().err
    assert cli.main(["export", "run", "out"]) == 2
    assert "which has no form of its own" in capsys.readouterr().err


def test_a_grid() -> None:
    x = np.arange(3.0)[:, None, None, None] * np.ones((40, 30, 1)) / 2
    found = diffusion.grid(x)
    assert found.shape == (2 * 42 + 2, 2 * 32 + 2)
    assert [found[20, 10], found[20, 44], found[60, 10], found[60, 44]] == [
        0,
        128,
        255,
        255,
    ]


def test_pixels_are_around_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class Recorded:
        def loss(self, model: Any, x: Any, *, key: rng.Key) -> Any:
            seen.append(np.asarray(x))
            return tnp.zeros(2)

    facts = {"shape": [2, 2, 1], "white": 255.0, "least": 0}
    batch = np.array([0, 255], np.uint8)[:, None, None] * np.ones((2, 2), np.uint8)
    recorded: Any = Recorded()
    diffusion.loss(facts, recorded, None, (batch, None), None)
    diffusion.loss(
        facts | {"white": 1.0, "least": -1},
        recorded,
        None,
        (batch.astype(np.float64) / 127.5 - 1, None),
        rng.key(0),
    )
    for x in seen:
        assert (x.dtype, x.shape, x.min(), x.max()) == (np.float32, (2, 2, 2, 1), -1, 1)


def test_options_that_there_are_not() -> None:
    facts = {"shape": [8, 8, 1], "least": 0}
    for options, message in (
        ({"width": 20}, "--width 20: expected a multiple of 8, such as 16"),
        ({"levels": 5}, "--levels 5: images of 8x8 can be halved to 4 sizes at most"),
        ({"schedule": "cos"}, "--schedule cos: expected cosine or linear"),
        ({"prediction": "eps"}, "--prediction eps: expected noise or velocity"),
    ):
        with pytest.raises(UsageError, match=message):
            diffusion.learner(diffusion.Config(**options), facts, rng.key(0))
    learner = diffusion.learner(diffusion.Config(width=8), facts, rng.key(0))
    assert learner.evaluated is optim.averaged


@pytest.mark.slow
@pytest.mark.parametrize("prediction", ["noise", "velocity"])
def test_it_learns(tmp_path: Path, prediction: str) -> None:
    config = diffusion.Config(steps=300, checkpoint_every=300, prediction=prediction)
    run = begin(tmp_path / "run", config, diffusion.RECIPE)
    assert train(run).tested["test_loss"] < 0.25

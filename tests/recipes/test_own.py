"""Recipes, models and data of one's own, from the command line."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.recipes.small import rows, table
from treadle.data import Loader
from treadle.recipes import catalogue, cli, curves, digits_mlp, loop, runs
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.errors import UsageError

MODEL = '''
from treadle import nn, rng

class Net(nn.Module):
    """A small network."""
    hidden: nn.Linear
    out: nn.Linear

    def __init__(self, in_features, classes, width: int = 8, *, key):
        a, b = rng.split(key)
        self.hidden = nn.Linear(in_features, width, key=a)
        self.out = nn.Linear(width, classes, key=b)

    def __call__(self, x):
        return self.out(nn.relu(self.hidden(x.reshape(x.shape[0], -1))))
'''
RATE = "--learning-rate=0.01"
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(curves, "draw", lambda *arguments: None)  # It takes long.
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "model.py").write_text(MODEL)
    random = np.random.default_rng(0)
    x = random.random((200, 5, 4), np.float32)
    y = np.arange(200) % 2
    x[y == 1, :, 0] += 0.5
    np.savez(tmp_path / "data.npz", x=x, y=y)
    return tmp_path


def train(*arguments: str) -> None:
    assert cli.main(["train", *arguments, "--batch-size=50", "--run-dir=run"]) == 0


def fails(captured: Captured, *arguments: str) -> str:
    assert cli.main(arguments) == 2
    return captured.readouterr().err


def test_a_model_in_a_file(capsys: Captured, here: Path) -> None:
    train("model.py", "--data=data.npz", "--steps=150", "--width=12", RATE)
    output = capsys.readouterr().out
    assert "model: 278 parameters, 160 images to train with, 40 to test" in output
    assert rows(here / "run")[-1]["test_accuracy"] > 0.85
    assert (here / "run" / "recipe.py").read_text() == MODEL
    assert cli.main(["eval", "run"]) == 0
    assert "accuracy" in capsys.readouterr().out
    (here / "model.py").write_text(MODEL + "\n")
    assert cli.main(["resume", "run", "--steps=151", "--learning-rate=0.005"]) == 0
    output = capsys.readouterr().out
    assert "--steps 151 (it was 150)" in output
    assert "--learning-rate 0.005 (it was 0.01)" in output
    assert "model.py, since the run began" in output
    assert json.loads((here / "run/run.json").read_text())["config"]["width"] == 12


def test_a_table(here: Path) -> None:
    """A mean of the prices is 20000 off, and 0.47 of the colours are blue."""
    name = str(table(here / "prices.csv"))
    options = [f"--data={name}", "--steps=300", "--learning-rate=0.01"]
    train("tabular", *options, "--target=price", "--width=16")
    assert rows(here / "run")[-1]["test_error"] < 6000
    assert cli.main(["train", "model.py", *options, "--target=colour"]) == 0
    (other,) = (here / "runs").iterdir()
    assert rows(other)[-1]["test_accuracy"] > 0.6


def test_a_recipe_that_new_wrote(capsys: Captured, here: Path) -> None:
    assert cli.main(["new", "two-spirals"]) == 0
    assert "treadle train two_spirals.py" in capsys.readouterr().out
    train("two_spirals.py", "--steps=200", "--learning-rate=0.01")
    assert rows(here / "run")[-1]["test_accuracy"] > 0.9
    assert "two_spirals.py exists" in fails(capsys, "new", "two-spirals")
    assert "is no name of a recipe" in fails(capsys, "new", "../two")


@pytest.mark.parametrize(
    ("code", "parts"),
    [
        ("", ("neither a RECIPE nor a model", "treadle new")),
        ("import nothing_of_this_name", (":1: ModuleNotFoundError",)),
        ("x = (", (":1: SyntaxError: '(' was never closed",)),
        (MODEL + MODEL.replace("Net", "Other"), ("several models: Net, Other",)),
        (MODEL.replace("classes,", "classes, size,"), ("its argument `size`?",)),
        (MODEL.replace("width:", "steps:"), ("its argument `steps`?", "--steps")),
    ],
)
def test_a_file_that_can_not_be_trained(
    capsys: Captured, here: Path, code: str, parts: tuple[str, ...]
) -> None:
    (here / "other.py").write_text(code)
    message = fails(capsys, "train", "other.py", "--data=data.npz")
    for part in parts:
        assert part in message


def test_which_of_several_models(here: Path) -> None:
    (here / "both.py").write_text(MODEL + MODEL.replace("Net", "Other"))
    train("both.py:Other", "--data=data.npz", "--steps=1")
    assert runs.load(here / "run", RECIPES).recipe.place.endswith("both.py:Other")


def test_what_is_missing_is_said(capsys: Captured, here: Path) -> None:
    assert "there is no file" in fails(capsys, "train", "none.py")
    assert "--data PATH is missing" in fails(capsys, "train", "model.py")
    np.savez(here / "bare.npz", x=np.zeros((9, 2)))
    assert "no labels" in fails(capsys, "train", "model.py", "--data=bare.npz")
    assert "treadle train model.py" in fails(capsys, "model.py")
    train("model.py", "--data=data.npz", "--steps=1")
    (here / "model.py").unlink()
    message = fails(capsys, "resume", "run")
    assert "run.json: there is no file" in message


def test_options_that_make_another_model(capsys: Captured, here: Path) -> None:
    train("model.py", "--data=data.npz", "--steps=2")
    before = (here / "run/run.json").read_text()
    message = fails(capsys, "resume", "run", "--width=3")
    assert "model.hidden.weight: float32[20,3] expected, float32[20,8]" in message
    assert (here / "run/run.json").read_text() == before
    assert "did you mean '--width'" in fails(capsys, "resume", "run", "--widht=3")


@pytest.mark.parametrize(("size", "left"), [(50, 60), (40, 40), (60, 0), (7, 49)])
def test_a_changed_batch_size_repeats_no_example(size: int, left: int) -> None:
    """Two batches of 50 were seen of 160 examples."""
    before, after = (Loader(np.arange(160), n) for n in (50, size))
    first = before.repeat()
    seen = {*next(first).tolist(), *next(first).tolist()}
    epoch, batch = loop.Position(*before.place, 50).of(after)
    after.restore(after.state() | {"epoch": epoch, "batch": batch})
    if epoch == 0:
        rest = np.concatenate(list(after)).tolist()
        assert not seen & {*rest}
        assert len(rest) == left // size * size
    else:
        assert (epoch, batch, left) == (1, 0, 0)


def test_recipes_of_other_packages(
    capsys: Captured, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "plugged.py").write_text("from treadle.recipes.digits_mlp import RECIPE\n")
    (here / "broken.py").write_text("RECIPE = 3\n")

    def points(group: str) -> EntryPoints:
        assert group == "treadle.recipes"
        names = {"of-another": "plugged", "broken": "broken:RECIPE"}
        return EntryPoints(EntryPoint(n, v, group) for n, v in names.items())

    monkeypatch.setattr(catalogue, "entry_points", points)
    assert RECIPES["of-another"].config is digits_mlp.Config
    assert "of-another" in list(RECIPES)
    options: Any = ["train", "of-another", "--steps=1", "--run-dir=run", "--width=8"]
    assert cli.main(options) == 0
    assert runs.load(here / "run", RECIPES).recipe.name == "of-another"
    capsys.readouterr()
    assert "'broken'" in fails(capsys, "train", "broken")
    with pytest.raises(UsageError, match="is no Recipe, but int"):
        RECIPES["broken"]
    assert cli.main(["list"]) == 0
    listed = capsys.readouterr()
    assert "of-another" in listed.out
    assert "is no Recipe" in listed.out

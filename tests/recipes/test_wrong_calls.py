"""Wrong calls end in a message that names the value, what is expected, and the remedy;
on the command line without a traceback, and with nothing half-written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treadle import data, nn, recipes, rng
from treadle.checkpoint import Manager
from treadle.recipes import cli
from treadle.recipes.errors import DivergedError, UsageError

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = (X.sum(-1) > 0).astype(np.int32)
MODEL = """
from treadle import nn

class Net(nn.Module):
    layer: nn.Linear

    def __init__(self, classes, *, key):
        self.layer = nn.Linear({inputs}, {outputs}, key=key)

    def __call__(self, x):
        return {call}
"""
RIGHT = {"inputs": 3, "outputs": "classes", "call": "self.layer(x)"}
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def wrong_arrays() -> dict[str, tuple[dict[str, Any], str]]:
    nan, labels_nan = X.copy(), np.ones(40)
    nan[7, 1] = labels_nan[3] = np.nan
    return {
        "complex": ({"x": X + 1j, "y": Y}, "has dtype complex64: examples are numbers"),
        "words": ({"x": np.array(["a"] * 40), "y": Y}, "has dtype <U1: examples are"),
        "scalar": ({"x": X[0, 0], "y": Y[0]}, "has shape (): there are no examples"),
        "empty": ({"x": X[:0], "y": Y[:0]}, "has shape (0, 3): there are no examples"),
        "short": ({"x": X, "y": Y[:30]}, "40 examples, but labels of shape (30,)"),
        "one-hot": ({"x": X, "y": np.eye(2)[Y]}, "`y.argmax(-1)`"),
        "nan": ({"x": nan, "y": Y}, "1 have values that are not finite"),
        "nan-label": ({"x": X, "y": labels_nan}, "that of example 3 is nan"),
        "objects": ({"x": np.array([{}] * 40), "y": Y}, "no arrays of numbers"),
        "one-class": ({"x": X, "y": Y * 0}, "two classes are the least"),
        "no-labels": ({"x": X}, "Labels are an array y of an .npz file"),
        "other-test": (
            {"x_train": X, "y_train": Y, "x_test": X[:, :2], "y_test": Y},
            "has examples of shape (2,), those for training have (3,)",
        ),
    }


@pytest.mark.parametrize("name", wrong_arrays())
def test_arrays_in_files(name: str, here: Path, capsys: Captured) -> None:
    arrays, said = wrong_arrays()[name]
    np.savez(here / "a.npz", **arrays)
    (here / "right.py").write_text(MODEL.format(**RIGHT))
    assert cli.main(["train", "right.py", "--data", "a.npz", "--batch-size=8"]) == 2
    errors = capsys.readouterr().err
    assert said in errors and "a.npz" in errors and "  at " not in errors
    assert not Path("runs").exists()


TABLES = {
    "infinite": ("a,b,y\n1,2,0\ninf,2,1\n", "line 3: a is inf"),
    "infinite target": ("a,y\n1,0.5\n2,-inf\n", "line 3: y is -inf"),
    "no target": ("a,y\n1,0.5\n2,\n", "1 rows have no y, the first in line 3"),
    "ragged": ("a,b,y\n1,2,0\n1,2\n", "line 3: 2 values, where the header has 3"),
    "one class": ("a,y\n" + "1,x\n2,x\n" * 20, "two classes are the least"),
    "no rows": ("a,b,y\n", "The first line has the names of columns"),
    "other text": ("größe,y\n1,2\n".encode("latin-1"), "iconv -f latin1 -t utf-8"),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str, here: Path, capsys: Captured) -> None:
    text, said = TABLES[name]
    content = text if isinstance(text, bytes) else text.encode()
    (here / "a.csv").write_bytes(content)
    assert cli.main(["train", "tabular", "--data", "a.csv"]) == 2
    errors = capsys.readouterr().err
    assert said in errors and "a.csv" in errors
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        (
            {"inputs": 7},
            1,
            "ValueError: Linear takes arrays of shape (..., in_features",
        ),
        ({"call": "x['k']"}, 1, "return x['k']"),
        ({"outputs": 1}, 2, "Net gives shape (8, 1) for 8 examples, expected (8, 2)"),
        ({"call": "self.layer(x).sum(-1)"}, 2, "expected (8, 2): a number for each"),
        ({"call": "None"}, 2, "Net gives NoneType for 8 examples"),
    ],
)
def test_models_show_their_own_lines(
    changed: dict[str, Any], status: int, said: str, here: Path, capsys: Captured
) -> None:
    name = f"model_{abs(hash(said))}.py"
    (here / name).write_text(MODEL.format(**(RIGHT | changed)))
    np.savez(here / "a.npz", x=X, y=Y)
    arguments = ["train", name, "--data", "a.npz", "--batch-size=8", "--run-dir=run"]
    assert cli.main(arguments) == status
    errors = capsys.readouterr().err
    assert said in errors and "Traceback" not in errors
    assert "recipes/" not in errors
    assert status == 2 or f'{name}", line 1' in errors


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("train --config a.toml", "recipe = 3, expected a name"),
        (
            "train right.py --data a.npz --batch-size 99",
            "there are 32 training examples",
        ),
        ("compare run run --page none/a.html", "--page none/a.html: No such file"),
        ("checkpoint convert saved a.toml.npz", "add --overwrite"),
    ],
)
def test_commands(command: str, said: str, here: Path, capsys: Captured) -> None:
    (here / "a.toml").write_text("recipe = 3\n")
    (here / "right.py").write_text(MODEL.format(**RIGHT))
    np.savez(here / "a.npz", x=X, y=Y)
    (here / "a.toml.npz").mkdir()
    if "saved" in command:
        with Manager("saved") as manager:
            manager.save(1, {"a": X})
        Path("a.toml.npz").rmdir()
        assert cli.main(["checkpoint", "convert", "saved", "a.toml.npz"]) == 0
    if "compare" in command:
        fit(MLP, (X, Y), run_dir="run")
    assert cli.main(command.split()) == 2
    assert said in capsys.readouterr().err


MLP = nn.MLP((3, 4, 2), activation=nn.relu, key=rng.key(0))


def fit(model: Any, examples: Any, **options: Any) -> recipes.Fitted:
    usual = {"steps": 1, "batch_size": 10, "show": False}
    usual = {n: v for n, v in usual.items() if n != "steps" or "epochs" not in options}
    return recipes.fit(model, examples, **(usual | options))


class ReturnsTrue(recipes.Callback):
    def on_step(self, progress: recipes.Progress) -> Any:
        return True


@pytest.mark.parametrize(
    ("model", "examples", "options", "said"),
    [
        (MLP, X, {}, "gives batches of ndarray, and a model learns from pairs"),
        (MLP, (X, Y, Y), {}, "gives batches of 3 parts"),
        (MLP, (X, Y + 1), {}, "from 1 to 2, but the model gives 2 numbers"),
        (MLP, (X, Y - 1), {}, "from -1 to 0, but the model gives 2 numbers"),
        (MLP, (X, np.eye(2, dtype=int)[Y]), {}, "`y.argmax(-1)`"),
        (MLP, (X, Y.astype(str)), {}, "np.unique(y, return_inverse=True)"),
        (MLP, (X.astype(object), Y), {}, "the inputs have dtype object"),
        (None, (X, Y), {}, "None is no model"),
        (nn.MLP, (X, Y), {}, "is no model: fit takes an object"),
        (MLP, (X, Y), {"lr": 1}, "did you mean 'learning_rate'?"),
        (MLP, (X, Y), {"epochs": -1}, "epochs=-1: expected a number above 0"),
        (MLP, (X, Y), {"epochs": "3"}, "epochs='3': expected a number above 0"),
        (MLP, (X, Y), {"epochs": float("nan")}, "epochs=nan: expected a number"),
        (MLP, (X, Y), {"epochs": 1, "batch_size": 0}, "the least is 1"),
        (MLP, (X, Y), {"test": 20}, "test=20 is no share of the data"),
        (MLP, (X, Y), {"test": -0.2}, "test=-0.2 is no share of the data"),
        (MLP, (X, Y), {"optimizer": "adam"}, "optimizer='adam': expected one of"),
        (MLP, (X, Y), {"loss": "mse"}, "loss='mse': expected a function"),
        (MLP, (X, Y), {"metrics": ["a"]}, "metrics=['a']: expected functions"),
        (MLP, (X, Y), {"callbacks": recipes.Callback()}, "expected a list of objects"),
        (MLP, (X, Y), {"callbacks": [print]}, "expected a list of objects"),
        (MLP, (X, Y), {"run_dir": "/proc/none"}, "run_dir='/proc/none': No such file"),
    ],
)
def test_fit(model: Any, examples: Any, options: Any, said: str) -> None:
    with pytest.raises(UsageError) as error:
        fit(model, examples, **options)
    assert said in str(error.value)


PYTHON: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "seed": (lambda: data.Loader((X, Y), 2, seed="a"), ValueError, "seed is an int"),
    "path": (lambda: data.read(3), TypeError, "path is that of a folder or a file"),
    "size": (lambda: data.read(".", image_size=8), TypeError, "(height, width), two"),
    "no size": (lambda: data.read(".", image_size=(0, 8)), ValueError, "got (0, 8)"),
    "share": (
        lambda: data.DataSet(data.Labelled(X, Y), None, None, "").split("a"),
        TypeError,
        "share is a number between 0 and 1, got 'a'",
    ),
    "returned": (
        lambda: fit(MLP, (X, Y), callbacks=[ReturnsTrue()]),
        TypeError,
        "ReturnsTrue.on_step returned True: a text ends the training",
    ),
    "event": (
        lambda: type("Mine", (recipes.Callback,), {"on_stp": print}),
        TypeError,
        "Mine: no event of a callback is called 'on_stp': did you mean 'on_step'?",
    ),
}


@pytest.mark.parametrize("name", PYTHON)
def test_from_python(name: str) -> None:
    call, kind, said = PYTHON[name]
    with pytest.raises(kind) as error:
        call()
    assert said in str(error.value)


def test_what_is_not_kept_is_not_named() -> None:
    with pytest.raises(DivergedError) as error:
        fit(MLP, (X * np.nan, Y))
    assert "kept: " not in str(error.value)
    assert "With run_dir=, what was before that step is kept." in str(error.value)


def test_dates_and_decimal_commas_are_numbers(here: Path) -> None:
    rows = [f"2024-01-{i + 1:02d};{i},5;{i}" for i in range(28)]
    (here / "a.csv").write_text("day;length;y\n" + "\n".join(rows))
    numbers = data.read("a.csv").train.inputs["numbers"]
    days = np.arange("2024-01-01", "2024-01-29", dtype="datetime64[D]").astype(int)
    np.testing.assert_array_equal(numbers, np.stack([days, np.arange(28) + 0.5], -1))


def test_labels_that_are_far_apart_are_names(here: Path) -> None:
    np.savez(here / "a.npz", x=X, y=Y * 10**9)
    found = data.read("a.npz")
    assert found.classes == ("0", "1000000000")
    np.testing.assert_array_equal(found.train.labels, Y)

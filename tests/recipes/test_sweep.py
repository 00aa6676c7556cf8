"""Several runs: sweeps, comparisons, and files of options."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.recipes.small import assert_same_run, rows
from treadle.recipes import cli, curves, digits_mlp, loop, runs
from treadle.recipes.catalogue import RECIPES
from treadle.recipes.step import make_step

SHORT = ["--steps=6", "--batch-size=500", "--width=8", "--depth=1", "--log-every=1"]
SHORT += ["--checkpoint-every=3"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(curves, "draw", lambda *arguments: None)  # It takes long.
    return tmp_path


def config_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "run.json").read_text())["config"]


def fails(captured: Captured, *arguments: str) -> str:
    assert cli.main(arguments) == 2
    return captured.readouterr().err


def test_a_sweep_is_runs_like_others(capsys: Captured, here: Path) -> None:
    options = [*SHORT, "--learning-rate=1e-2,1e-5,1e37", "--run-dir=all"]
    assert cli.main(["sweep", "digits-mlp", *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    folders = {config_of(f)["learning_rate"]: f for f in (here / "all").glob("*/")}
    assert {*folders} == {1e-2, 1e-5, 1e37}
    single = [*SHORT, "--learning-rate=1e-2", "--run-dir=one"]
    assert cli.main(["train", "digits-mlp", *single]) == 0
    assert_same_run(folders[1e-2], here / "one")
    # The best first; what diverged last.
    table = [line for line in lines if line.startswith("learning-rate-")]
    found = [line.split()[0] for line in table]
    assert found[0] == "learning-rate-0.01" and "diverged" in table[-1]
    best = max(row.get("test_accuracy", 0) for row in rows(folders[1e-2]))
    assert f" {best:.4f} " in table[0]
    assert (here / "all/curves.png").read_bytes().startswith(b"\x89PNG")
    capsys.readouterr()
    assert cli.main(["compare", "all", "one"]) == 0
    shown = capsys.readouterr().out
    assert "learning" in shown and "one" in shown and "width" not in shown


def test_a_sweep_that_was_stopped_goes_on(
    capsys: Captured, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["sweep", "digits-mlp", *SHORT, "--seed=1,2", "--run-dir=all"]
    steps = []

    def interrupting(*arguments: Any) -> Any:
        step = make_step(*arguments)

        def run(*values: Any) -> Any:
            steps.append(1)
            if len(steps) == 8:
                os.kill(os.getpid(), signal.SIGINT)
            return step(*values)

        return run

    monkeypatch.setattr(loop, "make_step", interrupting)
    assert cli.main(command) == 130
    assert "same command with --run-dir all" in capsys.readouterr().out
    assert cli.main(command) == 0
    assert len(steps) == 12
    whole = ["train", "digits-mlp", *SHORT, "--seed=2", "--run-dir=whole"]
    assert cli.main(whole) == 0
    assert_same_run(here / "all/seed-2", here / "whole")


def test_a_file_of_options(capsys: Captured, here: Path) -> None:
    file = here / "some.toml"
    file.write_text('recipe = "digits-mlp"\nlearning-rate = 1\nwidth = 8\nsteps = 3')
    options = ["--config=some.toml", "--steps=1", "--run-dir=run"]
    assert cli.main(["train", *options]) == 0
    found = runs.load(here / "run", RECIPES).config
    assert found == digits_mlp.Config(learning_rate=1.0, width=8, steps=1)
    assert type(found.learning_rate) is float
    file.write_text("steps = [1, 2]\nwidth = 8")
    assert cli.main(["sweep", "--config=some.toml", "--run-dir=both"]) == 0
    assert {config_of(f)["steps"] for f in (here / "both").glob("*/")} == {1, 2}


@pytest.mark.parametrize(
    ("content", "command", "part"),
    [
        ("width = ", "train", "--config some.toml: Invalid value"),
        ("widht = 3", "train", "did you mean 'width'?"),
        ("width = 1.5", "train", "--config some.toml: --width 1.5: expected a whole"),
        ("width = 0", "sweep", "--width 0: the least is 1"),
        ("width = 8", "sweep", "give an option several values"),
        ('recipe = "digits"', "train", "no recipe is called 'digits'"),
        ("", "sweep --width 8,x", "--width x: expected a whole number"),
    ],
)
def test_what_is_wrong_with_a_file(
    capsys: Captured, here: Path, content: str, command: str, part: str
) -> None:
    (here / "some.toml").write_text(content)
    assert part in fails(capsys, *command.split(), "--config=some.toml")


def test_runs_that_are_not_there(capsys: Captured, here: Path) -> None:
    assert "no run is called 'nothing'" in fails(capsys, "compare", "nothing")
    assert "none.toml: No such file" in fails(capsys, "train", "--config=none.toml")

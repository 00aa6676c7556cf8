"""`treadle checkpoint`, on checkpoints of ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from treadle import weights
from treadle.checkpoint import Manager, save
from treadle.recipes.cli import main


@pytest.fixture
def run(tmp_path: Path) -> Path:
    with Manager(tmp_path / "run" / "checkpoints", keep_best=2) as manager:
        for step in (1, 2):
            tree = {"w": np.full(300, float(step)), "step": step}
            manager.save(step, tree, {"loss": 0.5 / step})
    return tmp_path / "run"


def test_ls_and_show(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "ls", str(run)]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.split()[0] == "1" and first.endswith("kB  loss 0.5")
    assert second.split()[0] == "2" and second.endswith("loss 0.25")
    assert main(["checkpoint", "show", str(run)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{run}/checkpoints/2",
        "  step  Python int",
        "  w     float64[300]",
    ]


def test_diff(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = (str(run / "checkpoints" / step) for step in "12")
    assert main(["checkpoint", "diff", one, two]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "step: 1 against 2",
        "w: 300 of 300 elements differ, by up to 1",
    ]
    assert main(["checkpoint", "diff", str(run), two]) == 0
    assert capsys.readouterr().out == "the same\n"


def test_verify(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "verify", str(run)]) == 0
    steps = [str(run / "checkpoints" / step) for step in "12"]
    assert capsys.readouterr().out.splitlines() == [f"{s}: intact" for s in steps]
    (run / "checkpoints" / "1" / "default" / "treadle.json").write_text("{")
    assert main(["checkpoint", "verify", str(run)]) == 1
    damaged, reason, intact = capsys.readouterr().out.splitlines()
    assert damaged == f"{steps[0]}: DAMAGED" and "treadle.json is damaged" in reason
    assert intact == f"{steps[1]}: intact"


def test_convert(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(run / "w.safetensors")
    assert main(["checkpoint", "convert", str(run), file]) == 0
    told = capsys.readouterr()
    assert told.out == f"wrote {file}\n" and "no arrays: step" in told.err
    assert (weights.load(file)["w"] == 2).all()
    assert main(["checkpoint", "convert", str(run), file]) == 2
    assert "exists" in capsys.readouterr().err
    again = ["checkpoint", "convert", file, str(run / "back"), "--only", "w"]
    assert main(again) == 0


def test_what_is_wrong_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["checkpoint", "ls", str(tmp_path)]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith(f"treadle: no checkpoint at {tmp_path}: a step, a folder")
    assert main(["checkpoint", "list"]) == 2
    assert "treadle checkpoint --help" in capsys.readouterr().err
    save(tmp_path / "a", {"x": 1})
    assert main(["checkpoint", "show", str(tmp_path / "a"), "--item", "b"]) == 1
    assert "no item 'b'" in capsys.readouterr().err

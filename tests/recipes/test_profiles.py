"""`--profile`: what is kept of it, and that it changes nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.recipes.small import SMALL, assert_same_run, begin, train
from treadle.recipes import cli, profiles


def test_a_profiled_training_is_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(SMALL, accumulate=2, dropout=0.3)
    plain = begin(tmp_path / "plain", config)
    train(plain)
    run = begin(tmp_path / "run", replace(config, profile=2))
    train(run)
    assert_same_run(run.folder, plain.folder)
    table = (run.profile / "profile.txt").read_text()
    assert "the quickest of 2" in table and "GFLOP/s" in table
    events = json.loads((run.profile / "trace.json").read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    kept = profiles.read(run.profile)
    assert kept is not None and "before step 1" in kept["about"]
    kernels = {row[0] for row in kept["rows"]}
    assert kernels & names and len(kernels) > 5
    shares = [float(row[3].rstrip(" %")) for row in kept["rows"]]
    assert sum(shares) == pytest.approx(100, abs=0.1 * len(shares))
    assert cli.main(["report", str(run.folder)]) == 0
    assert "Measured in the training, before step 1." in run.page.read_text()


def test_a_damaged_profile_is_none(tmp_path: Path) -> None:
    for text in ("", "[]", '{"about": "x"}', '{"about": "x", "rows": 3}'):
        (tmp_path / "kernels.json").write_text(text)
        assert profiles.read(tmp_path) is None

"""Logs for TensorBoard, read by TensorBoard's own reader."""

from __future__ import annotations

import subprocess
import sys
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.recipes.small import SMALL, Silent, begin, train
from treadle import nn, recipes, rng
from treadle.recipes import metrics, runs
from treadle.recipes.catalogue import RECIPES

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # It is not for us to mend.
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

CONFIG = replace(SMALL, tensorboard=True, log_every=1)


def assert_mirrors(log: Path, rows: list[metrics.Row]) -> None:
    """Each value of the rows is in the log once, and nothing else."""
    read = EventAccumulator(str(log), size_guidance={"scalars": 0}).Reload()
    names = {name: None for row in rows for name in row}
    expected = {}
    for name in names:
        if name not in ("step", "seconds"):
            part = "test" if name.startswith("test_") else "train"
            tag = f"{part}/{name.removeprefix('test_')}"
            expected[tag] = metrics.series(rows, name)
    assert set(read.Tags()["scalars"]) == set(expected)
    for tag, (steps, values) in expected.items():
        events = read.Scalars(tag)
        assert [event.step for event in events] == steps
        found = [event.value for event in events]
        np.testing.assert_array_equal(np.float32(found), np.float32(values))
        times = [event.wall_time for event in events]
        assert times == sorted(times)
    (file,) = log.glob("events.out.tfevents.*")
    # None is hidden by the reader, either.
    steps = [event.step for event in EventFileLoader(str(file)).Load() if event.step]
    assert len(steps) == sum(len(found) for found, _ in expected.values())


def test_a_run(tmp_path: Path) -> None:
    run = begin(tmp_path / "run", CONFIG)
    train(run, Silent(interrupt_at=6))
    rows = metrics.read(run.metrics)
    assert rows[-1]["step"] == 6
    assert_mirrors(run.logs, rows)
    (run.logs / "events.out.tfevents.1.other").write_bytes(b"")
    train(run)
    (run.logs / "events.out.tfevents.1.other").unlink()
    rows = metrics.read(run.metrics)
    assert [row["step"] for row in rows] == [*range(1, 13)]
    assert_mirrors(run.logs, rows)


def test_a_run_that_was_killed(tmp_path: Path) -> None:
    """The rows after its last checkpoint are written again, by another process."""
    folder = tmp_path / "run"
    options = ["--steps=300", "--width=8", "--depth=1", "--log-every=1"]
    options += ["--checkpoint-every=100", "--tensorboard", f"--run-dir={folder}"]
    command = [sys.executable, "-m", "treadle.recipes", "train", "digits-mlp"]
    with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL) as process:
        while len(metrics.read(folder / "metrics.jsonl")) < 120:
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    run = runs.load(folder, RECIPES)
    train(run)
    rows = metrics.read(run.metrics)
    assert [row["step"] for row in rows] == [*range(1, 301)]
    assert_mirrors(run.logs, rows)


@pytest.mark.parametrize("begins_at", [0, 10])
def test_fit(tmp_path: Path, begins_at: int) -> None:
    """Where the log begins later, it has what was before."""
    x = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    for steps in (10, 20):
        callbacks = []
        if begins_at < steps:
            callbacks.append(recipes.TensorBoard(tmp_path / "log"))
        fitted = recipes.fit(
            nn.Linear(3, 1, key=rng.key(0)),
            (x, x.sum(-1)),
            test=0.2,
            steps=steps,
            batch_size=20,
            log_every=2,
            checkpoint_every=5,
            run_dir=tmp_path / "run",
            callbacks=callbacks,
            show=False,
        )
    assert_mirrors(tmp_path / "log", fitted.rows)

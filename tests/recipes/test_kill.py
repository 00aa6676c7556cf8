"""A run that is killed at any moment and resumed ends with the same bits."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.recipes.small import assert_same_run

COMMAND = [sys.executable, "-m", "treadle.recipes"]
# So many checkpoints that a kill often hits the writing of one.
OPTIONS = ["--steps=240", "--checkpoint-every=3", "--log-every=1"]
OPTIONS += ["--batch-size=200", "--width=8", "--depth=1"]


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    return output


def kill_after(process: subprocess.Popen[str], delay: float) -> None:
    """Kills a training `delay` seconds after it has begun."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step"):
            break
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)


def killed_and_resumed(folder: Path, kills: int) -> None:
    whole, killed = folder / "whole", folder / "killed"
    process = start("train", "digits-mlp", *OPTIONS, "--run-dir", str(whole))
    assert process.stdout is not None
    began = time.monotonic()
    for line in process.stdout:
        if line.startswith("step"):
            began = time.monotonic()
            break
    output = finish(process)
    seconds = time.monotonic() - began
    assert "test accuracy: " in output.splitlines()[-1]

    choose = random.Random(kills)
    process = start("train", "digits-mlp", *OPTIONS, "--run-dir", str(killed))
    for _ in range(kills):
        kill_after(process, choose.uniform(0, seconds / kills))
        process = start("resume", str(killed))
    finish(process)
    assert_same_run(killed, whole)


def test_killed_and_resumed(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 3)


@pytest.mark.slow
def test_killed_and_resumed_often(tmp_path: Path) -> None:
    killed_and_resumed(tmp_path, 25)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_a_run_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    folder = str(tmp_path / "run")
    options = [*OPTIONS, "--steps", "1000000", "--run-dir", folder]
    process = start("train", "digits-mlp", *options)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step"):
            break
    process.send_signal(number)
    output = process.communicate(timeout=60)[0]
    assert process.returncode == 128 + number, output
    stopped, resume = output.splitlines()[-2:]
    assert stopped.startswith(f"stopped by {number.name} after step ")
    assert resume == f"resume: treadle resume {folder}"

    step = int(stopped.split("after step ")[1].split(",")[0])
    output = finish(start("resume", folder, "--steps", str(step + 2)))
    assert f"training from step {step} to {step + 2};" in output

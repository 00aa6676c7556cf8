"""A run that is killed or signalled at any moment ends, resumed, with the same bits."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.recipes.small import assert_same_run
from treadle.checkpoint import Manager
from treadle.recipes import cli, metrics

COMMAND = [sys.executable, "-m", "treadle.recipes"]
# So many checkpoints that a kill often hits the writing of one.
OFTEN = ["--checkpoint-every=3", "--log-every=1", "--width=8"]
OPTIONS = [*OFTEN, "--batch-size=200", "--depth=1"]
SMALL = ["--layers=1", "--heads=2", "--dropout=0.1"]
SMALL += ["--tokens=bpe", "--vocabulary=300"]
RECIPES = {
    "digits-mlp": [*OPTIONS, "--steps=240"],
    "cartpole-ppo": [*OFTEN, "--steps=150", "--batch-size=4", "--moves=16"],
    "char-gpt": [*OFTEN, "--steps=200", "--batch-size=4", "--context=16", *SMALL],
}
TEXT = "".join(f"{n} times {n} is {n * n}.\n" for n in range(500))


@pytest.fixture(autouse=True)
def signals_are_not_ignored() -> Iterator[None]:
    """Even if whoever runs the tests has them ignored, as a shell does for what it runs
    in the background: what is handled is inherited as the default."""
    hang_up = signal.signal(signal.SIGHUP, lambda number, frame: None)
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGHUP, hang_up)
    signal.signal(signal.SIGINT, interrupt)


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
    until_it_steps(process)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)


def until_it_steps(process: subprocess.Popen[str]) -> str:
    """Waits for the first step, or the end; what was written till then."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if line.startswith("step"):
            break
    return "".join(lines)


class Whole(NamedTuple):
    """A run that was trained to its end.

    command: what trained it, but for its folder.
    seconds: what its steps took.
    """

    command: list[str]
    folder: Path
    seconds: float


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    """Trains a recipe once, in this process: the others end with the same bits."""

    @cache
    def trained(name: str) -> Whole:
        folder = tmp_path_factory.mktemp(name)
        command = ["train", name, *RECIPES[name]]
        if name == "char-gpt":
            (folder / "corpus.txt").write_text(TEXT)
            command.append(f"--data={folder / 'corpus.txt'}")
        assert cli.main([*command, "--run-dir", str(folder / "run")]) == 0
        times = [row["seconds"] for row in metrics.read(folder / "run/metrics.jsonl")]
        return Whole(command, folder / "run", times[-1] - times[0])

    return trained


def killed_and_resumed(folder: Path, whole: Whole, kills: int) -> None:
    killed = folder / "killed"
    choose = random.Random(kills)
    command = [*whole.command, "--run-dir", str(killed)]
    for _ in range(kills):
        kill_after(start(*command), choose.uniform(0, whole.seconds / kills))
        command = ["resume", str(killed)]
    assert cli.main(command) == 0
    assert_same_run(killed, whole.folder)


def test_killed_and_resumed(tmp_path: Path, whole: Callable[[str], Whole]) -> None:
    killed_and_resumed(tmp_path, whole("digits-mlp"), 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kills"), [("digits-mlp", 34), ("cartpole-ppo", 33), ("char-gpt", 33)]
)
def test_killed_and_resumed_often(
    tmp_path: Path, whole: Callable[[str], Whole], name: str, kills: int
) -> None:
    killed_and_resumed(tmp_path, whole(name), kills)


ENDING = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


def signalled_and_resumed(folder: Path, whole: Whole, storms: int) -> None:
    """Several signals in quick succession; a Ctrl-C among them may end it at once."""
    stormy = folder / "stormy"
    choose = random.Random(storms)
    command = [*whole.command, "--run-dir", str(stormy)]
    latest = 0
    for _ in range(storms):
        process = start(*command)
        output = until_it_steps(process)
        time.sleep(choose.uniform(0, whole.seconds / storms))
        sent = []
        for _ in range(choose.randint(1, 6)):
            sent.append(choose.choice(ENDING))
            process.send_signal(sent[-1])
            time.sleep(choose.choice([0, 0, 0.002, 0.02]))
        output += process.communicate(timeout=120)[0]
        # The second may come when the handlers have been taken away, at the end.
        codes = {0, *(128 + n for n in ENDING), *(-n for n in ENDING)}
        assert process.returncode in codes, (sent, output)
        if signal.SIGINT not in sent[1:]:
            assert "Traceback" not in output, (sent, output)
        step = Manager(stormy / "checkpoints").latest_step()
        assert step is not None and step >= latest
        latest = step
        command = ["resume", str(stormy)]
    assert cli.main(command) == 0
    assert_same_run(stormy, whole.folder)
    assert all(path.name.isdecimal() for path in (stormy / "checkpoints").iterdir())


def test_signalled_and_resumed(tmp_path: Path, whole: Callable[[str], Whole]) -> None:
    signalled_and_resumed(tmp_path, whole("digits-mlp"), 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", RECIPES)
def test_signalled_and_resumed_often(
    tmp_path: Path, whole: Callable[[str], Whole], name: str
) -> None:
    signalled_and_resumed(tmp_path, whole(name), 14)


@pytest.mark.parametrize(
    "number",
    [signal.SIGTERM, *(pytest.param(n, marks=pytest.mark.slow) for n in ENDING[::2])],
)
def test_a_signal_stops_a_run_cleanly(
    tmp_path: Path, number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    options = [*OPTIONS, "--steps", "1000000", "--run-dir", folder]
    process = start("train", "digits-mlp", *options)
    until_it_steps(process)
    process.send_signal(number)
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 128 + number, output
    stopped, resume = output.splitlines()[-2:]
    assert stopped.startswith(f"stopped by {number.name} after step ")
    assert resume == f"resume: treadle resume {folder}"

    step = int(stopped.split("after step ")[1].split(",")[0])
    assert cli.main(["resume", folder, "--steps", str(step + 2)]) == 0
    expected = f"training from step {step} to {step + 2};"
    assert expected in capsys.readouterr().out


def steps_saved(folder: Path) -> tuple[int, int]:
    """The latest step that is saved, and the latest that is in the metrics."""
    latest = Manager(folder / "checkpoints").latest_step()
    assert latest is not None
    return latest, metrics.read(folder / "metrics.jsonl")[-1]["step"]


ENDLESS = ["--steps=1000000", "--checkpoint-every=1000000", "--log-every=1"]


def test_a_terminal_that_goes_away_stops_a_run_cleanly(tmp_path: Path) -> None:
    """Its signal comes, and whatever is still written to it fails."""
    master, terminal = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "train", "digits-mlp", *OPTIONS, *ENDLESS, "--run-dir", "run"],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        cwd=tmp_path,
    )
    os.close(terminal)
    shown = b""
    while b"steps/s" not in shown:
        shown += os.read(master, 1000)
    os.close(master)
    assert process.wait(timeout=120) == 128 + signal.SIGHUP
    latest, logged = steps_saved(tmp_path / "run")
    assert latest == logged > 0


def test_a_reader_that_goes_away_stops_a_run_cleanly(tmp_path: Path) -> None:
    process = start(
        "train", "digits-mlp", *OPTIONS, *ENDLESS, "--run-dir", str(tmp_path / "run")
    )
    until_it_steps(process)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=120) == 0
    latest, logged = steps_saved(tmp_path / "run")
    assert latest == logged > 0


def test_a_run_that_ignores_hang_ups_goes_on(tmp_path: Path) -> None:
    command = ["nohup", *COMMAND, "train", "digits-mlp", *OPTIONS, "--steps=60"]
    process = subprocess.Popen(
        [*command, "--run-dir", str(tmp_path / "run")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until_it_steps(process)
    process.send_signal(signal.SIGHUP)
    assert "test accuracy: " in finish(process)

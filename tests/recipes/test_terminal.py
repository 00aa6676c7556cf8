"""What is shown, in a real terminal: that of tmux."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="no tmux on PATH"),
]
TREADLE = f"{shlex.quote(sys.executable)} -m treadle.recipes"
OPTIONS = "--steps=100000 --batch-size=100 --width=8 --checkpoint-every=400"


class Terminal:
    """A window of tmux."""

    def __init__(self, folder: Path) -> None:
        self._socket = str(folder / "socket")

    def tmux(self, *arguments: str) -> str:
        command = ["tmux", "-S", self._socket, "-f", os.devnull, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout

    def run(self, command: str, width: int) -> None:
        """Runs a command; the window stays as it is when that has ended."""
        size = ["-x", str(width), "-y", "50"]
        # A shell may have told others how wide the window is: it will be another.
        script = f"unset COLUMNS LINES; {command}; echo; echo DONE; sleep 600"
        self.tmux("new-session", "-d", *size, script)

    def resize(self, width: int) -> None:
        self.tmux("resize-window", "-x", str(width))

    def lines(self) -> list[str]:
        """What is to be seen."""
        text = self.tmux("capture-pane", "-p")
        return [line.rstrip() for line in text.splitlines() if line.strip()]

    def until(self, seen: Callable[[list[str]], bool]) -> list[str]:
        """Waits until it shows something."""
        end = time.monotonic() + 120
        while not seen(lines := self.lines()):
            assert time.monotonic() < end, "\n".join(lines)
            time.sleep(0.1)
        return lines


@pytest.fixture
def terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TMUX", raising=False)
    found = Terminal(tmp_path)
    yield found
    found.tmux("kill-server")


def has(pattern: str) -> Callable[[list[str]], bool]:
    return lambda lines: any(re.search(pattern, line) for line in lines)


def bars(lines: list[str]) -> list[str]:
    return [line for line in lines if "━" in line or re.match(r" *\d+/100000", line)]


def test_a_training_wide_then_narrow(terminal: Terminal) -> None:
    terminal.run(f"{TREADLE} train digits-mlp {OPTIONS} --run-dir=run", 110)
    line = r"^ *\d+/100000 ━+ loss \d\.\d{4}  accuracy \d\.\d{4} \d+ steps/s +\S+ left"
    shown = terminal.until(lambda x: has(line)(x) and has("^step +400  test loss")(x))
    assert len(bars(shown)) == 1
    assert bars(shown)[0] == shown[-1]
    terminal.resize(42)
    shown = terminal.until(has(r"^ *\d+/100000 ━ loss \d\.\d{4} \S+ left$"))
    shown = terminal.until(has("^step +1200  test loss"))
    assert len(bars(shown)) == 1
    # No number is broken in two.
    place = next(n for n, text in enumerate(shown) if re.match("step +1200", text))
    assert re.fullmatch(r"step +1200  test loss \d\.\d{4}", shown[place])
    assert re.fullmatch(r"  test accuracy \d\.\d{4}", shown[place + 1])
    terminal.tmux("send-keys", "C-c")
    shown = terminal.until(has("^DONE"))
    assert bars(shown) == []
    assert has("^stopped by SIGINT after step")(shown)


def test_a_comparison_wide_and_narrow(terminal: Terminal, tmp_path: Path) -> None:
    options = "--learning-rate=1e-3,1e-2 --steps=20 --width=8 --checkpoint-every=10"
    sweep = f"{TREADLE} sweep digits-mlp {options} --run-dir=all"
    subprocess.run(shlex.split(sweep), check=True, capture_output=True)
    terminal.run(f"{TREADLE} compare all", 120)
    shown = terminal.until(has("^DONE"))
    table = [line for line in shown if line.startswith("learning-rate-")]
    assert len(table) == 2
    cells = r"learning-rate-\S+ +0\.\d+ +0\.\d{4} +\d+ +\d\.\d{4} +20 +\d:\d\d"
    assert [line for line in table if not re.fullmatch(cells, line)] == []
    terminal.tmux("kill-server")
    terminal.run(f"{TREADLE} compare all", 50)
    shown = terminal.until(has("^DONE"))
    assert not has("…")(shown)
    assert has(r"  learning rate 0\.01\b")(shown)
    assert has(r"last test loss \d\.\d{4}")(shown)

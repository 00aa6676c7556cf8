"""Draws what a training shows in a terminal: `python benchmarks/picture.py`.

A real run in a real terminal (tmux), written to docs/images/run.svg by rich.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "run.svg"
SIZE = (88, 24)
LIMIT = 300.0  # seconds


def screen(commands: list[str]) -> str:
    """The screen of a terminal after some commands, with its colours."""
    columns, lines = map(str, SIZE)
    socket = ["tmux", "-L", "treadle-picture"]
    with tempfile.TemporaryDirectory() as folder:
        shell = (
            f"cd {folder}; PS1='$ ' PATH={Path(sys.executable).parent}:$PATH exec sh"
        )
        new = ["-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", lines]
        subprocess.run([*socket, *new, shell], check=True)
        try:
            for number, command in enumerate(commands):
                typed = f"{command}; touch done-{number}"
                subprocess.run([*socket, "send-keys", typed, "Enter"], check=True)
                _wait(Path(folder, f"done-{number}"))
            time.sleep(0.5)  # the next prompt
            shown = [*socket, "capture-pane", "-e", "-p"]
            return subprocess.run(
                shown, check=True, capture_output=True, text=True
            ).stdout.replace(folder, "~")
        finally:
            subprocess.run([*socket, "kill-server"], check=True)


def _wait(path: Path) -> None:
    end = time.monotonic() + LIMIT
    while not path.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{path.name} is not there after {LIMIT} s")
        time.sleep(0.1)


def svg(text: str, title: str) -> str:
    """A picture of a screen that asks no other machine for a font."""
    with open("/dev/null", "w") as nowhere:
        console = Console(record=True, width=SIZE[0], file=nowhere)
        # What was typed, without what told this script that it was done.
        console.print(Text.from_ansi(re.sub(r"; touch done-\d+", "", text.rstrip())))
        found = console.export_svg(title=title)
    found = re.sub(r"@font-face \{.*?\}", "", found, flags=re.DOTALL)
    found = re.sub(r"^ *\n|[ \t]+$", "", found, flags=re.MULTILINE)
    return found.replace("Fira Code", "ui-monospace, DejaVu Sans Mono")


if __name__ == "__main__":
    found = screen(["clear; treadle train digits-mlp"])
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(svg(found, "treadle train digits-mlp"))

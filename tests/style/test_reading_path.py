"""The README of the core: a path to read, and a word on every file that it passes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

CORE = Path(__file__).parents[2] / "core"
README = (CORE / "README.md").read_text()
MOST_LINES = 2500

PROFILED = """
import json, os, sys, threading
import treadle
import treadle.compile  # what importing runs is not the way
from treadle.backends import installed
installed.forget()
root = os.path.dirname(os.path.realpath(treadle.__file__))
files = set()
def entered(frame, event, arg):
    path = os.path.realpath(frame.f_code.co_filename)
    if event == "call" and path.startswith(root):
        files.add(os.path.relpath(path, root))
threading.setprofile(entered)
sys.setprofile(entered)
{example}
sys.setprofile(None)
print(json.dumps(sorted(files)))
"""


def path() -> list[str]:
    """The files to read, in their order."""
    section = README.split("## From a function to a running kernel")[1]
    return re.findall(r"^\d+\. `([\w/]+\.py)`", section.split("\n## ")[0], re.MULTILINE)


def named() -> set[str]:
    """The files on which there is a line."""
    section = README.split("## What the example passes besides")[1].split("\n## ")[0]
    return set(re.findall(r"^- `([\w/]+\.py)`: \S", section, re.MULTILINE))


def test_the_path_is_short() -> None:
    files = path()
    assert len(files) == len(set(files)) > 5
    lines = {file: len((CORE / file).read_text().splitlines()) for file in files}
    assert sum(lines.values()) <= MOST_LINES, lines


def test_the_example_meets_only_what_is_named() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    out = subprocess.run(
        [sys.executable, "-c", PROFILED.replace("{example}", example)],
        # Nothing compiled is found: all of the way is gone.
        env={**os.environ, "TREADLE_CACHE_DIR": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    passed = set(json.loads(out.stdout.splitlines()[-1]))
    assert len(set(path()) - passed) <= 2, "only definitions of data are not run"
    assert passed - set(path()) <= named()
    # Other machines and versions of Python take a few others.
    assert len(named() - passed) <= 5
    assert all((CORE / file).exists() for file in named())

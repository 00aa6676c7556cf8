"""The `treadle` command before anything is imported."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("module", ["__init__", "recipes/__init__", "recipes/cli"])
def test_an_interrupt_while_importing(tmp_path: Path, module: str) -> None:
    """A package of that name stands in, which is interrupted where it is imported."""
    (tmp_path / "treadle" / "recipes").mkdir(parents=True)
    for name in ("__init__", "recipes/__init__", "recipes/cli"):
        (tmp_path / "treadle" / f"{name}.py").touch()
    place = tmp_path / "treadle" / f"{module}.py"
    place.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    (tmp_path / "treadle_command.py").write_bytes(
        (ROOT / "treadle_command.py").read_bytes()
    )
    # Where signals are ignored when Python starts, it leaves them so.
    code = "import signal; signal.signal(2, signal.default_int_handler)\n"
    code += "import sys, treadle_command; sys.exit(treadle_command.main())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
    )
    assert done.stderr == "treadle: interrupted\n"
    assert done.returncode == 130


def test_it_is_what_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["scripts"] == {"treadle": "treadle_command:main"}
    assert project["tool"]["setuptools"]["py-modules"] == ["treadle_command"]
    code = "import sys; sys.argv = ['treadle', 'list']\n"
    code += "import treadle_command; sys.exit(treadle_command.main())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0 and "digits-mlp" in done.stdout, done.stderr

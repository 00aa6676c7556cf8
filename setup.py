"""Compiles kernels when the library is installed (the rest is in `pyproject.toml`).

Without them all works, too: first calls take longer. So whatever goes wrong here is
said, and the library is installed nevertheless.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
FOLDER = Path("backends", "installed_objects")
SECONDS = 300

# Runs the library as it lies here, whatever `treadle` is installed.
PROGRAM = """
import importlib.util, runpy, sys
root, folder = sys.argv[1:]
places = [f"{root}/core", root]
spec = importlib.util.spec_from_file_location(
    "treadle", f"{root}/core/__init__.py", submodule_search_locations=places)
sys.modules["treadle"] = library = importlib.util.module_from_spec(spec)
spec.loader.exec_module(library)
sys.argv[1:] = [folder]
runpy.run_module("treadle.install", run_name="__main__", alter_sys=True)
"""


class BuildWithKernels(build_py):
    """Copies the library's files, and adds what is compiled for this machine."""

    def run(self) -> None:
        super().run()
        library = (
            ROOT / "core" if self.editable_mode else Path(self.build_lib, "treadle")
        )
        compile_kernels((library / FOLDER).resolve())


def compile_kernels(folder: Path) -> None:
    """Says what was made, or why there is nothing."""
    settings = {k: v for k, v in os.environ.items() if not k.startswith("TREADLE_")}
    if "TREADLE_CPU" in os.environ:
        settings["TREADLE_CPU"] = os.environ["TREADLE_CPU"]
    command = [sys.executable, "-B", "-c", PROGRAM, str(ROOT), str(folder)]
    try:
        done = subprocess.run(
            command,
            env=settings,
            capture_output=True,
            text=True,
            errors="replace",  # what it writes in is not always what is read here
            timeout=SECONDS,
        )
        lines = (done.stdout or done.stderr).strip().splitlines()
        said = lines[-1] if lines else "nothing was said"
    except subprocess.TimeoutExpired:
        said = f"kernels are compiled when they are needed: {SECONDS} s were not enough"
    except (OSError, subprocess.SubprocessError) as error:
        said = f"kernels are compiled when they are needed: {error}"
    print(f"treadle: {said}".encode("ascii", "backslashreplace").decode())


if __name__ == "__main__":
    setup(cmdclass={"build_py": BuildWithKernels})

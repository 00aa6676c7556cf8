"""Small files, small functions, few arguments, and nothing of one machine."""

from __future__ import annotations

import re
from pathlib import Path

from tests.style.sources import AROUND, LIBRARY, PROJECT, ROOT, facts, module, name

FILE_LINES = 500
FUNCTION_LINES = 80

TEXTS = sorted(
    path
    for pattern in ("*.md", "*.toml", "Makefile", ".ci/*", "docs/**/*.md")
    for path in ROOT.glob(pattern)
    if path.is_file()
)
# A home directory, a scratch folder: right on one machine only.
MACHINE_PATH = re.compile(r"(?<![\w.])/(home|root|work|Users|tmp)/\w")


def test_files_are_small() -> None:
    long = [
        f"{name(path)}: {lines} lines"
        for path in LIBRARY + AROUND
        if (lines := len(path.read_text().splitlines())) > FILE_LINES
    ]
    assert not long, "split it by what the parts are about:\n" + "\n".join(long)


def test_functions_are_small() -> None:
    long = [
        f"{name(path)}:{function.line}: {function.name} has {function.lines} lines"
        for path in LIBRARY + AROUND
        for function in facts(path).functions
        if function.lines > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_no_machine_paths() -> None:
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for path in LIBRARY + AROUND + TEXTS
        if path != Path(__file__)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found, "\n".join(found)


def test_packages_are_the_folders() -> None:
    folders = {module(p) for p in LIBRARY if p.name == "__init__.py"}
    files = {module(p.parent / "__init__.py") for p in LIBRARY}
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    assert files <= folders, f"no __init__.py: {sorted(files - folders)}"
    assert listed == folders, f"pyproject.toml: {sorted(listed ^ folders)}"

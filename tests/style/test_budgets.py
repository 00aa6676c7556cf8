"""Small files, small functions, few arguments, and nothing of one machine."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.style.sources import AROUND, LIBRARY, PROJECT, ROOT, module, name, nodes

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


@pytest.mark.parametrize("path", LIBRARY + AROUND, ids=name)
def test_file_is_small(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= FILE_LINES, f"{lines} lines: split it by what the parts are about"


@pytest.mark.parametrize("path", LIBRARY + AROUND, ids=name)
def test_functions_are_small(path: Path) -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = [
        f"{name(path)}:{node.lineno}: {node.name} has {lines} lines"
        for node in nodes(path)
        if isinstance(node, functions)
        and (lines := (node.end_lineno or 0) - node.lineno + 1) > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("path", LIBRARY + AROUND + TEXTS, ids=name)
def test_no_machine_paths(path: Path) -> None:
    if path == Path(__file__):
        return
    lines = path.read_text().splitlines()
    found = [
        f"{name(path)}:{number}: {line.strip()}"
        for number, line in enumerate(lines, 1)
        if MACHINE_PATH.search(line)
    ]
    assert not found, "\n".join(found)


def test_packages_are_the_folders() -> None:
    folders = {module(p) for p in LIBRARY if p.name == "__init__.py"}
    files = {module(p.parent / "__init__.py") for p in LIBRARY}
    listed = set(PROJECT["tool"]["setuptools"]["packages"])
    assert files <= folders, f"no __init__.py: {sorted(files - folders)}"
    assert listed == folders, f"pyproject.toml: {sorted(listed ^ folders)}"

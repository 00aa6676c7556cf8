"""The library's source files as data: where they lie, their trees, what they import."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOLDERS: dict[str, str] = PROJECT["tool"]["setuptools"]["package-dir"]

LIBRARY = sorted(
    path for folder in FOLDERS.values() for path in (ROOT / folder).rglob("*.py")
)
AROUND = sorted(
    path
    for folder in ("tests", "benchmarks", "examples")
    for path in (ROOT / folder).rglob("*.py")
)


def name(path: Path) -> str:
    """A path as test ids show it."""
    return path.relative_to(ROOT).as_posix()


def module(path: Path) -> str:
    """The dotted name under which a library file is imported.

    >>> module(ROOT / "core" / "ops" / "unary.py")
    'treadle.ops.unary'
    """
    parts = path.relative_to(ROOT).with_suffix("").parts
    prefix = next(name for name, folder in FOLDERS.items() if folder == parts[0])
    inside = parts[1:-1] if parts[-1] == "__init__" else parts[1:]
    return ".".join((prefix, *inside))


class Function(NamedTuple):
    """Where a function begins, its name, and how many lines it has."""

    line: int
    name: str
    lines: int


class Facts(NamedTuple):
    """What the rules ask of a file, without what only a type checker sees.

    imports: (line, dotted module) of every import.
    late: those that stand inside functions.
    texts: (line, value) of every string.
    """

    imports: list[tuple[int, str]]
    late: list[tuple[int, str]]
    functions: list[Function]
    texts: list[tuple[int, str]]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


# The trees of all files are two million objects, which every collection of garbage and
# every test that looks for leaks would go through: only what is asked of them is kept.
@cache
def facts(path: Path) -> Facts:
    found = Facts([], [], [], [])
    waiting: list[tuple[ast.AST, bool]] = [(parse(path), False)]
    while waiting:
        node, inside = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = True
            lines = (node.end_lineno or 0) - node.lineno + 1
            found.functions.append(Function(node.lineno, node.name, lines))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for target in _targets(node):
                found.imports.append((node.lineno, target))
                if inside:
                    found.late.append((node.lineno, target))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.texts.append((node.lineno, node.value))
        waiting += [
            (child, inside)
            for child in ast.iter_child_nodes(node)
            if not _for_type_checkers(child)
        ]
    return found


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def _targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = "." * node.level + (node.module or "")
    # `from treadle import tree` names a module, `from treadle import grad` a value:
    # only a source file tells them apart.
    return [
        f"{base}.{a.name}" if f"{base}.{a.name}" in _modules() else base
        for a in node.names
    ]


@cache
def _modules() -> frozenset[str]:
    return frozenset(module(path) for path in LIBRARY)

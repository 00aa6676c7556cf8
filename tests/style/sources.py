"""The library's source files as data: where they lie, their trees, what they import."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path

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


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes, except what only a type checker sees."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = [parse(path)]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += [
            child
            for child in ast.iter_child_nodes(node)
            if not _for_type_checkers(child)
        ]
    return found


def _targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        # `from treadle import tree` names a module, `from treadle import grad` a
        # value: only a source file tells them apart.
        return [
            f"{base}.{a.name}" if f"{base}.{a.name}" in _modules() else base
            for a in node.names
        ]
    return []


@cache
def _modules() -> frozenset[str]:
    return frozenset(module(path) for path in LIBRARY)


@cache
def imports(path: Path) -> list[tuple[int, str]]:
    """(line, dotted module) of every import in a file."""
    found = [(getattr(n, "lineno", 0), t) for n in nodes(path) for t in _targets(n)]
    return sorted(found)


def late_imports(path: Path) -> list[tuple[int, str]]:
    """The imports that stand inside functions."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found = {
        (getattr(inner, "lineno", 0), target)
        for outer in nodes(path)
        if isinstance(outer, functions)
        for inner in ast.walk(outer)
        for target in _targets(inner)
    }
    return sorted(found)

"""The middle of the compiler asks records, never names: which op an equation has is
found by identity or by its lowering."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import treadle as td
from tests.style.sources import LIBRARY, ROOT, name, parse
from treadle.trace.op import registry

assert td.Array is not None  # All ops are registered once the library is loaded.
ROOMS = ("passes", "fuse", "kernels", "plan", "control")
MAKERS = ("Op", "_CustomOp", "_callback", "_collective", "_reduction")
MIDDLE = [p for p in LIBRARY if p.relative_to(ROOT).parts[1] in ROOMS]


def _parameter_names(tree: ast.AST) -> Iterator[ast.AST]:
    """Where a string is a parameter's name: an index or a key."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            yield node.slice
        elif isinstance(node, ast.Dict):
            yield from (key for key in node.keys if key is not None)


def _registrations(tree: ast.AST) -> Iterator[ast.AST]:
    """Where an op gets its name: the first argument of what makes records."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in MAKERS:
            yield from node.args[:1]


def _literals(path: Path) -> Iterator[str]:
    tree = parse(path)
    allowed = {id(n) for n in (*_parameter_names(tree), *_registrations(tree))}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and node.value in registry
            and id(node) not in allowed
        ):
            yield f"{name(path)}:{node.lineno}: {node.value!r}"


def test_no_literal_names_an_op() -> None:
    wrong = [literal for path in MIDDLE for literal in _literals(path)]
    assert not wrong, "compare records, or use `treadle.ir.scalar`:\n" + "\n".join(
        wrong
    )

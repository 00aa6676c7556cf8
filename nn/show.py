"""How models look: `repr`, and what arrays they have."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

import treadle as td
from treadle import tree

_WIDTH = 80


def describe(name: str, fields: dict[str, Any]) -> str:
    """Source-like text for an object: on one line if that is short."""
    return _bracket(f"{name}(", [f"{k}={text_of(v)}" for k, v in fields.items()], ")")


def text_of(value: Any) -> str:
    """A field as the `repr` of its module shows it."""
    if td.is_array(value) and not isinstance(value, np.generic):
        return repr(td.typeof(value))
    if type(value) is dict:
        return _bracket("{", [f"{k!r}: {text_of(v)}" for k, v in value.items()], "}")
    if type(value) is list:
        return _bracket("[", [text_of(v) for v in value], "]")
    if type(value) is tuple:
        close = ",)" if len(value) == 1 else ")"
        return _bracket("(", [text_of(v) for v in value], close)
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    return repr(value)


def _bracket(opening: str, parts: list[str], closing: str) -> str:
    line = f"{opening}{', '.join(parts)}{closing}"
    if len(line) <= _WIDTH and "\n" not in line:
        return line
    inside = "".join("  " + part.replace("\n", "\n  ") + ",\n" for part in parts)
    return f"{opening}\n{inside}{closing.lstrip(',')}"


class Row(NamedTuple):
    """One array of a model."""

    path: str
    type: str
    elements: int
    bytes: int
    trainable: bool


def rows(model: Any) -> list[Row]:
    """The arrays of a model, by path. Integers, and what State cells hold, are not
    trainable."""
    leaves, form = tree.flatten(model)
    found = []
    for path, leaf, constant in zip(
        tree.paths(form), leaves, tree.constants(form), strict=True
    ):
        # `td.eval_shape` gives models of types: they are counted without being made.
        if not td.is_array(leaf) and not isinstance(leaf, td.ArrayType):
            continue
        t = leaf if isinstance(leaf, td.ArrayType) else td.typeof(leaf)
        trainable = not constant and td.dtypes.is_differentiable(t.dtype)
        name = tree.key_name(path).lstrip(".")
        found.append(Row(name, repr(t), t.size, t.nbytes, trainable))
    return found


def parameters(model: Any) -> dict[str, Any]:
    """The trainable arrays of a model by path: not integers, not what State cells hold.

    >>> from treadle import nn, rng
    >>> list(parameters(nn.Linear(3, 4, key=rng.key(0))))
    ['weight', 'bias']
    """
    leaves, form = tree.flatten(model)
    trainable = {row.path for row in rows(model) if row.trainable}
    names = [tree.key_name(path).lstrip(".") for path in tree.paths(form)]
    return {n: x for n, x in zip(names, leaves, strict=True) if n in trainable}


def count(model: Any) -> int:
    """The number of trainable numbers in a model.

    >>> from treadle import nn, rng
    >>> count(nn.Linear(3, 4, key=rng.key(0)))
    16
    """
    return sum(row.elements for row in rows(model) if row.trainable)


def size_text(size: int) -> str:
    """A number of bytes with three digits and a binary unit.

    >>> size_text(64), size_text(5_000_000)
    ('64 B', '4.77 MiB')
    """
    power = min(int(math.log2(max(size, 1)) // 10), 5)
    if power == 0:
        return f"{size} B"
    value = size / 1024**power
    digits = max(0, 2 - int(math.log10(value)))
    return f"{value:.{digits}f} {'KMGTP'[power - 1]}iB"

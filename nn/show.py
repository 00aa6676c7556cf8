"""How models look: `repr`, and what arrays they have."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    if isinstance(value, np.dtype):
        return str(value)
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


def trainable(leaves: Sequence[Any], form: tree.Structure) -> list[bool]:
    """For each leaf of a model, whether it is trained: arrays, but not integers, and
    not what State cells hold."""
    return [
        not constant
        # `td.eval_shape` gives models of types: they are counted without being made.
        and (td.is_array(x) or isinstance(x, td.ArrayType))
        and td.dtypes.is_differentiable(_type(x).dtype)
        for x, constant in zip(leaves, tree.constants(form), strict=True)
    ]


def _type(x: Any) -> td.ArrayType:
    return x if isinstance(x, td.ArrayType) else td.typeof(x)


def rows(model: Any) -> list[Row]:
    """The arrays of a model, by path."""
    leaves, form = tree.flatten(model)
    found = []
    for path, leaf, trained in zip(
        tree.paths(form), leaves, trainable(leaves, form), strict=True
    ):
        if not td.is_array(leaf) and not isinstance(leaf, td.ArrayType):
            continue
        t = _type(leaf)
        found.append(Row(tree.dotted(path), repr(t), t.size, t.nbytes, trained))
    return found


def parameters(model: Any) -> dict[str, Any]:
    """The trainable arrays of a model by path (``layers.0.weight``): not integers, not
    what State cells hold.

    >>> from treadle import nn, rng
    >>> list(parameters(nn.MLP((3, 4, 1), key=rng.key(0))))[:2]
    ['layers.0.weight', 'layers.0.bias']
    """
    leaves, form = tree.flatten(model)
    paths, trained = tree.paths(form), trainable(leaves, form)
    found = zip(paths, leaves, trained, strict=True)
    return {tree.dotted(path): x for path, x, wanted in found if wanted}


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

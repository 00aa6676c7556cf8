"""What of a checkpoint goes where in a template, and what does not fit."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from treadle.checkpoint import naming
from treadle.checkpoint.manifest import Leaf, Manifest
from treadle.errors import StructureError, warn

Name = tuple[str, ...]
Names = Mapping[str, str] | Callable[[str], str | None] | None

KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
# From each kind of number to those after it, without losing more than digits.
_CASTS = ("bool", "uint", "int", "bfloat", "float", "complex")
_SHOWN = 40
_REMEDY = (
    "Build the template with the settings that the saved one was built with. Without a "
    "template, restore gives all that was saved as dicts and lists."
)
_A_PART = "To restore only what the template has, pass partial=True."
_CAST = "To convert what was saved to the template's dtypes, pass cast=True."


def saved_names(manifest: Manifest, names: Names) -> dict[Name, int]:
    """The number of each saved leaf, by the name that it has in the template.

    Raises:
      ValueError: if `names` speaks of what was not saved, or gives one name twice.
    """
    found: dict[Name, int] = {}
    rename = _prefixes(manifest, names) if isinstance(names, Mapping) else names
    for number, path in enumerate(manifest.paths):
        name: Name | None = tuple(step.text for step in path)
        if rename is not None:
            old = naming.shown(path)
            new = rename(old)
            if new != old:
                name = None if new is None else tuple(new.split(".")) if new else ()
        if name is None:
            continue
        if name in found:
            both = [naming.shown(manifest.paths[n]) for n in (found[name], number)]
            raise ValueError(
                f"names gives {'.'.join(name)!r} to two leaves: {' and '.join(both)}"
            )
        found[name] = number
    return found


def _prefixes(manifest: Manifest, names: Mapping[str, str]) -> Callable[[str], str]:
    """Renames by the longest beginning of a path that has another name."""
    paths = [naming.shown(path) for path in manifest.paths]
    for old in names:
        if not any(f"{path}.".startswith(f"{old}.") for path in paths):
            near = difflib.get_close_matches(old, paths, 3, 0.3)
            raise ValueError(
                f"names has {old!r}, which is no path in the checkpoint, nor the "
                f"beginning of one{'; near are: ' * bool(near)}{', '.join(near)}"
            )

    def rename(path: str) -> str:
        fitting = [old for old in names if f"{path}.".startswith(f"{old}.")]
        if not fitting:
            return path
        longest = max(fitting, key=len)
        return (names[longest] + path[len(longest) :]).strip(".")

    return rename


def match(
    path: str,
    manifest: Manifest,
    wanted: Mapping[Name, Any],
    saved: Mapping[Name, int],
    *,
    partial: bool,
    strict: bool,
    cast: bool,
) -> dict[Name, int]:
    """The number of the saved leaf for each name of the template.

    Raises:
      StructureError: with all differences. Unless `strict`, these are a warning, and
        what does not fit is left out; but a type cannot stay where an array is to be.
    """
    wrong: dict[Name, str] = {}
    castable = True
    for name, like in wanted.items():
        if name not in saved:
            wrong[name] = f"{_expected(like)} expected, not saved"
            castable = False
        elif not _fits(manifest.leaves[saved[name]], like, cast):
            leaf = manifest.leaves[saved[name]]
            wrong[name] = f"{_expected(like)} expected, {leaf} saved"
            castable = castable and _fits(leaf, like, True)
    more = {
        name: f"not expected, {manifest.leaves[saved[name]]} saved"
        for name in ([] if partial else saved)
        if name not in wanted
    }
    lines = _lines({**wrong, **more})
    text = f"the checkpoint at {path} does not fit the template:\n{lines}"
    if strict and (wrong or more):
        remedy = _REMEDY
        if wanted and not wrong:
            remedy = _A_PART
        elif wrong and castable and not more:
            remedy = _CAST
        raise StructureError(f"{text}\n{remedy}")
    empty = {name: wrong[name] for name in wrong if is_type(wanted[name])}
    if empty:
        raise StructureError(
            f"there is nothing for some types in the template:\n{_lines(empty)}\n"
            "Where nothing is restored, the template's own value stays: make it a "
            "model rather than the types of one."
        )
    if wrong or more:
        warn(f"{text}\nAll else is restored; these are as they were.")
    return {name: saved[name] for name in wanted if name not in wrong}


def is_type(like: Any) -> bool:
    """Whether a leaf of a template has a shape and a dtype, and no elements."""
    return hasattr(like, "shape") and not hasattr(like, "__array__")


def _lines(problems: Mapping[Name, str]) -> str:
    lines = [f"  {'.'.join(name) or '<root>'}: {t}" for name, t in problems.items()]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"  … and {len(lines) - _SHOWN} more"]
    return "\n".join(lines)


def _expected(like: Any) -> str:
    if hasattr(like, "shape") and hasattr(like, "dtype"):
        return str(Leaf(tuple(like.shape), np.dtype(like.dtype).name))
    return f"Python {type(like).__name__}"


def _fits(leaf: Leaf, like: Any, cast: bool) -> bool:
    """Whether a leaf can stand where the template has `like`.

    A Python number and an array with one element stand for each other: a step counter
    that starts as 0 is an array once a compiled function has returned it.
    """
    if hasattr(like, "shape") and hasattr(like, "dtype"):
        shape, dtype = tuple(like.shape), np.dtype(like.dtype).newbyteorder("=")
        if leaf.python:
            return shape == () and KINDS.get(dtype.kind) == leaf.python
        return shape == leaf.shape and (
            dtype == np.dtype(leaf.dtype)
            or (cast and _rank(leaf.dtype) <= _rank(dtype.name))
        )
    if leaf.python or leaf.shape:
        return type(like).__name__ == leaf.python
    return KINDS.get(np.dtype(leaf.dtype).kind) == type(like).__name__


def _rank(dtype: str) -> int:
    """Numbers of higher ranks take those of lower ones."""
    kind = dtype.partition("_")[0].rstrip("0123456789")
    rank = _CASTS.index(kind)
    return rank - 1 if kind in ("int", "float") else rank

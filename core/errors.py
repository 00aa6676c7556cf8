"""The exceptions that are Treadle's own, and where in the user's code they happened."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import numpy as np

from treadle.scopes import Source, current, source_of

_HERE = os.path.dirname(os.path.abspath(__file__))
_LAYERS = ("nn", "optim", "rng", "metrics", "models", "weights", "data", "checkpoint")


def _folders() -> tuple[str, ...]:
    """The library's folders. The layers lie beside the core in a checkout, and inside
    it once installed, where folders beside it are other people's."""
    installed = os.path.isdir(os.path.join(_HERE, _LAYERS[0]))
    beside = () if installed else _LAYERS
    root = os.path.dirname(_HERE)
    return _HERE + os.sep, *(os.path.join(root, name) + os.sep for name in beside)


# NumPy calls back into the library, threads begin in it: no line there is the user's.
_LIB = os.path.dirname(os.__file__) + os.sep
_PACKAGES = tuple(_LIB + name + os.sep for name in ("site-packages", "dist-packages"))
_PYTHON = tuple(
    [_LIB + name for name in ("contextlib.py", "threading.py", "concurrent")]
)
_OURS = (*_folders(), os.path.dirname(np.__file__) + os.sep, *_PYTHON)
# Recipes are programs as a user would write them.
_RECIPES = os.path.join(_HERE, "recipes") + os.sep
_ours: dict[str, bool] = {}
_passed_by: dict[str, bool] = {}

FOREIGN = "It is another library's array: take it over with `tnp.asarray(...)`."
"""The remedy for what is `foreign`."""


class TracerError(TypeError):
    """A traced value was used where only a concrete one can be."""


class LeakError(RuntimeError):
    """A traced value outlived the transformation that made it."""


class MutationError(RuntimeError):
    """A function under a transform changed one of its arguments."""


class SideEffectWarning(UserWarning):
    """A function under a transform did something that happens when it is traced, not
    each time it runs; or it uses a value that was another one when it was traced."""


class KeyReuseError(RuntimeError):
    """A random key was used twice, under `td.debug.key_reuse`."""


class DonatedError(RuntimeError):
    """An array was used after its memory had been given to a jitted function."""


class CheckError(RuntimeError):
    """A condition held that a program was told to stop at: `td.debug.error_if`."""


class MissingPackageError(ImportError):
    """A package is not installed that this function needs; the library has others."""


class StructureError(ValueError):
    """Two pytrees that must have the same structure do not.

    container: the class of a container that the other tree has a leaf in place of.
    """

    container: type | None = None


class InternalError(AssertionError):
    """Treadle broke one of its own invariants: please report it."""


def foreign(value: object) -> bool:
    """Whether a value is another library's array, such as PyTorch's. (A class of such,
    or of NumPy's numbers, has their methods, too.)"""
    return hasattr(value, "__array__") and not isinstance(value, np.generic | type)


def is_ours(filename: str) -> bool:
    """Whether a source file belongs to the library rather than to its user."""
    known = _ours.get(filename)
    if known is None:
        inside = filename.startswith(_OURS) and not filename.startswith(_RECIPES)
        known = _ours[filename] = inside or filename.startswith("<frozen")
    return known


def user_frame() -> FrameType | None:
    """The innermost frame of the call stack that is the user's: not in the library, nor
    in Python's own, which works for whoever called it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        filename = frame.f_code.co_filename
        # Looked up here first: every operation of a trace asks for its line.
        known = _passed_by.get(filename)
        passed = _is_passed_by(filename) if known is None else known
        if not passed and not _is_generated(frame.f_code):
            break
        frame = frame.f_back
    return frame


def _is_passed_by(filename: str) -> bool:
    inside = filename.startswith(_LIB) and not filename.startswith(_PACKAGES)
    passed = _passed_by[filename] = inside or is_ours(filename)
    return passed


def _is_generated(code: CodeType) -> bool:
    """Whether `dataclasses` wrote it, in a file that there isn't."""
    return code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn")


_MOST_KNOWN = 100_000
_known: dict[tuple[str, int, str], Source] = {}


def user_source() -> Source:
    """``file:line`` of the user's innermost line, or an empty string, with the names of
    the parts of the program around it."""
    line = current.line or _user_line()
    if line is None:
        return Source("", current.place.path)
    # Looked up: the same few thousand places ask in each trace.
    key = *line, current.place.path
    try:
        return _known[key]
    except KeyError:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[key] = Source(f"{key[0]}:{key[1]}", key[2])
        return found


def _user_line() -> tuple[str, int] | None:
    frame = user_frame()
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


@contextmanager
def on_one_line() -> Iterator[None]:
    """For a block that calls nothing of the user's: their line is the same for all that
    happens there, and is looked for once."""
    before = current.line
    current.line = before or _user_line()
    try:
        yield
    finally:
        current.line = before


_warned: dict[str, dict[Any, Any]] = {}
"""By file, what Python remembers of the warnings given for its lines."""


def warn(
    text: str, category: type[Warning] = UserWarning, source: str | None = None
) -> None:
    """Warns of a line of the user's, ``file:line``, by default the one that runs.

    As with every warning of Python, the filters say whether it is shown each time, once
    a line, or raised.
    """
    file, _, line = (user_source() if source is None else source).rpartition(":")
    file = file or "treadle"
    registry = _warned.setdefault(file, {})
    warnings.warn_explicit(text, category, file, int(line or 0), registry=registry)


def at(source: str) -> str:
    """The clause that points an error message at the user's line, and says in which
    layer it runs."""
    place = source_of(source).place
    return f"\n  at {source}{f', {place}' * bool(place)}" if source else ""

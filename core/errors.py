"""The exceptions that are Treadle's own, and where in the user's code they happened."""

from __future__ import annotations

import os
import sys
from types import FrameType

_HERE = os.path.dirname(os.path.abspath(__file__))
_ROOT = os.path.dirname(_HERE)
# `nn`, `optim`… lie beside this folder in a checkout and inside it once installed.
_OURS = tuple(
    os.path.join(_ROOT, name) + os.sep
    for name in (os.path.basename(_HERE), "nn", "optim", "rng", "checkpoint")
)
_ours: dict[str, bool] = {}


class TracerError(TypeError):
    """A traced value was used where only a concrete one can be."""


class LeakError(RuntimeError):
    """A traced value outlived the transformation that made it."""


class DonatedError(RuntimeError):
    """An array was used after its memory had been given to a jitted function."""


class StructureError(ValueError):
    """Two pytrees that must have the same structure do not."""


class InternalError(AssertionError):
    """Treadle broke one of its own invariants: please report it."""


def is_ours(filename: str) -> bool:
    """Whether a source file belongs to the library rather than to its user."""
    known = _ours.get(filename)
    if known is None:
        inside = filename.startswith(_OURS) or filename.startswith("<frozen")
        known = _ours[filename] = inside or os.sep + "contextlib.py" in filename
    return known


def user_frame() -> FrameType | None:
    """The innermost frame of the call stack that is not in the library."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def user_source() -> str:
    """``file:line`` of the user's innermost line, or an empty string."""
    frame = user_frame()
    if frame is None:
        return ""
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def at(source: str) -> str:
    """The clause that points an error message at the user's line."""
    return f"\n  at {source}" if source else ""

"""Whose code it is that computes with a size, found by the frames of the stack."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

from treadle.errors import is_ours, user_frame

_LIBRARY = __name__.partition(".")[0]
_PYTHON = (sysconfig.get_path("stdlib") + os.sep, "<frozen")


def asked_by_user() -> bool:
    """Whether what computes with a size is the user's code, not the library's. What
    Python's own library and NumPy do, they do for whoever called them."""
    frame: FrameType | None = sys._getframe(1)
    inside = __name__.rpartition(".")[0]
    while frame is not None and frame.f_globals.get("__name__", "").startswith(inside):
        frame = frame.f_back
    return is_user(frame)


def users_line() -> str:
    """``file:line`` of the user's innermost line; not one of Python's own library, nor
    of what it has written (the methods of a dataclass)."""
    frame = user_frame()
    first = frame
    while frame is not None:
        code = frame.f_code
        written = code.co_filename == "<string>" and code.co_name.startswith("__")
        if not (written or code.co_filename.startswith(_PYTHON)) and not is_ours(
            code.co_filename
        ):
            return f"{code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return f"{first.f_code.co_filename}:{first.f_lineno}" if first else ""


def is_user(frame: FrameType | None) -> bool:
    """Whether a frame of the stack is the user's, or works for one of his."""
    while frame is not None:
        # By its module, not its file: methods that dataclasses write have none.
        package, _, rest = frame.f_globals.get("__name__", "").partition(".")
        if package == _LIBRARY:
            return rest.startswith("recipes")
        if package != "numpy" and not frame.f_code.co_filename.startswith(_PYTHON):
            return True
        frame = frame.f_back
    return False

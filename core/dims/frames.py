"""Whose code it is that computes with a size, found by the frames of the stack."""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

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

"""Where the library meets its user: errors leave it with the user's own lines.

Whatever runs a user's function is decorated by `boundary`. An error that passes it
loses the library's frames, so that a traceback reads as if the user's functions had
called each other; a debugger's post-mortem then starts at the user's line. The type of
the error, its message and the user's frames stay as they are.

An error that the library did not mean to raise keeps every frame: it is for those who
mend the library. ``TREADLE_TRACEBACK=full`` in the environment keeps them always.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, TypeVar, cast

import numpy as np

from treadle.api.keywords import add_remedy
from treadle.errors import InternalError, TracerError, is_ours

_NUMPY = os.path.dirname(np.__file__) + os.sep
_Function = TypeVar("_Function", bound=Callable[..., Any])


def boundary(function: _Function) -> _Function:
    """Decorates a function that users call and that may call theirs."""

    @wraps(function)
    def entry(*args: Any, **kwargs: Any) -> Any:
        try:
            try:
                return function(*args, **kwargs)
            except ValueError as error:
                cause = error.__cause__
                if not isinstance(cause, TracerError):
                    raise
                # NumPy's "setting an array element with a sequence" hides the remedy.
                raise cause.with_traceback(error.__traceback__) from None
        except Exception as error:
            add_remedy(error, function)
            tidy(error)
            # A bare `raise` goes on with the traceback that the error has now: the
            # frame of this function is not written into it again.
            raise

    entry.boundary = True  # type: ignore[attr-defined]
    return cast(_Function, entry)


def tidy(error: BaseException) -> None:
    """Takes the library's frames out of an error and of those that led to it."""
    if os.environ.get("TREADLE_TRACEBACK") == "full":
        return
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        one = chain.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        chain += [one.__cause__, one.__context__]
        if not _unexpected(one):
            one.__traceback__ = _of_user(one.__traceback__)


def _unexpected(error: BaseException) -> bool:
    """Whether an error comes from the library and was not written for its user: what is
    names the user's line."""
    if error.__traceback__ is None or isinstance(error, InternalError):
        return True
    files = [e.tb_frame.f_code.co_filename for e in _frames(error.__traceback__)]
    # What NumPy refuses is the concern of whoever called it.
    caller = next((f for f in reversed(files) if not f.startswith(_NUMPY)), "")
    if not is_ours(caller):
        return False
    return not any(isinstance(text, str) and "\n  at " in text for text in error.args)


def _frames(traceback: TracebackType | None) -> list[TracebackType]:
    """The entries of a traceback, the outermost first."""
    found = []
    while traceback is not None:
        found.append(traceback)
        traceback = traceback.tb_next
    return found


def _of_user(traceback: TracebackType | None) -> TracebackType | None:
    kept: TracebackType | None = None
    for entry in reversed(_frames(traceback)):
        if not is_ours(entry.tb_frame.f_code.co_filename):
            kept = TracebackType(kept, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return kept

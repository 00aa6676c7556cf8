"""What a user got wrong on the command line, and what is right."""

from __future__ import annotations

import difflib
import errno
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any


class UsageError(Exception):
    """The request can't be carried out as it is; the message says what to change."""


class DivergedError(UsageError):
    """The loss or the model is not finite any more."""


def unknown(kind: str, name: str, valid: Iterable[str]) -> UsageError:
    """The error for a name that doesn't exist: it lists those that do.

    >>> print(unknown("recipe", "digits-mpl", ["digits-cnn", "digits-mlp"]))
    no recipe is called 'digits-mpl': did you mean 'digits-mlp'?
    There are: digits-cnn, digits-mlp
    """
    names = list(valid)
    meant = _meant(name, names)
    hint = f": did you mean {meant!r}?" if meant else ""
    listing = ", ".join(names) if names else "none yet"
    return UsageError(f"no {kind} is called {name!r}{hint}\nThere are: {listing}")


_FROM_PYTHON: ContextVar[bool] = ContextVar("from_python", default=False)


@contextmanager
def from_python() -> Iterator[None]:
    """While it is entered, messages name options as arguments of a call."""
    token = _FROM_PYTHON.set(True)
    try:
        yield
    finally:
        _FROM_PYTHON.reset(token)


def option_text(name: str, *value: Any) -> str:
    """An option, with its value if given, as its user writes it.

    >>> option_text("batch_size", 32), option_text("batch_size")
    ('--batch-size 32', '--batch-size')
    >>> with from_python():
    ...     option_text("batch_size", 32), option_text("batch_size")
    ('batch_size=32', 'batch_size')
    """
    if _FROM_PYTHON.get():
        return "=".join([name, *map(repr, value)])
    return " ".join(["--" + name.replace("_", "-"), *map(str, value)])


def unplaced(error: BaseException) -> str:
    """What an error says, but for where in the recipe: that is nothing to the user."""
    return "\n".join(t for t in str(error).splitlines() if not t.startswith("  at "))


_WRITABLE = ("Choose a folder that can be written to.",)
_REMEDIES = {
    errno.ENOSPC: ("Make room there, or choose another folder.",),
    errno.EROFS: _WRITABLE,
    errno.EACCES: _WRITABLE,
}
_SYSTEM_ERROR = re.compile(r"os_error_code='(\d+)'")


def brief(error: BaseException) -> str:
    """An error of the system without the details in which a library wraps it, and what
    to do about it.

    >>> print(brief(OSError("could not write: in a driver: [os_error_code='28']")))
    could not write: No space left on device
    Make room there, or choose another folder.
    """
    text = str(error) or type(error).__name__
    found = _SYSTEM_ERROR.search(text)
    code = getattr(error, "errno", None) if found is None else int(found[1])
    if code is None:
        return text
    what = text.partition(":")[0] if found else getattr(error, "filename", None)
    said = os.strerror(code) if what is None else f"{what}: {os.strerror(code)}"
    return "\n".join([said, *_REMEDIES.get(code, ())])


def _meant(name: str, valid: list[str]) -> str:
    """The name that a wrong one stands for: by its initials, its beginning, or by
    being near to it."""
    plain = {v.lstrip("-").replace("_", "-"): v for v in valid}
    short = name.lstrip("-").replace("_", "-")
    initials = [p for p in plain if "".join(w[:1] for w in p.split("-")) == short]
    longer = [p for p in plain if short and p.startswith(short)]
    for found in (initials if len(short) > 1 else [], longer):
        if len(found) == 1:
            return plain[found[0]]
    close = difflib.get_close_matches(short, plain, n=1)
    return plain[close[0]] if close else ""


def command(*arguments: object) -> str:
    """A `treadle` command that the user can paste into a shell.

    >>> command("resume", "my runs/first")
    "treadle resume 'my runs/first'"
    """
    return shlex.join([_program(), *map(str, arguments)])


def _program() -> str:
    """The command's name: with its path if need be."""
    typed = sys.argv[0]
    if os.path.basename(typed) != "treadle":
        return "treadle"
    found = shutil.which("treadle")
    if found is None or not os.path.exists(typed):
        return typed
    return "treadle" if os.path.samefile(found, typed) else typed

"""What a user got wrong on the command line, and what is right."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
from collections.abc import Iterable


class UsageError(Exception):
    """The request can't be carried out as it is; the message says what to change."""


def unknown(kind: str, name: str, valid: Iterable[str]) -> UsageError:
    """The error for a name that doesn't exist: it lists those that do.

    >>> print(unknown("recipe", "digits-mpl", ["digits-cnn", "digits-mlp"]))
    no recipe is called 'digits-mpl': did you mean 'digits-mlp'?
    There are: digits-cnn, digits-mlp
    """
    names = list(valid)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f": did you mean {close[0]!r}?" if close else ""
    listing = ", ".join(names) if names else "none yet"
    return UsageError(f"no {kind} is called {name!r}{hint}\nThere are: {listing}")


def command() -> str:
    """The `treadle` command as the user can type it: with its path if need be."""
    typed = sys.argv[0]
    if os.path.basename(typed) != "treadle":
        return "treadle"
    found = shutil.which("treadle")
    if found is None or not os.path.exists(typed):
        return typed
    return "treadle" if os.path.samefile(found, typed) else typed

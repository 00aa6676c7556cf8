"""The LAPACK that NumPy's wheel carries: OpenBLAS, with 64-bit integers."""

from __future__ import annotations

import ctypes
import importlib
import os
from functools import cache
from typing import Any

import numpy as np

_NAMINGS = (("scipy_", "_64_"), ("", "_64_"), ("", "64_"))
"""What surrounds the names of routines, in NumPy's builds of OpenBLAS."""


class Library:
    """A loaded library.

    threads: words for `kernel`: where it notes how many threads OpenBLAS had before it
      took all but one away, and the functions that say and set how many it has.
    """

    def __init__(self, handle: Any, before: str, behind: str) -> None:
        self._handle, self._before, self._behind = handle, before, behind
        self._state = np.zeros(3, np.int64)
        if hasattr(os, "register_at_fork"):
            # Threads that were inside are not there in a child.
            os.register_at_fork(after_in_child=lambda: self._state.fill(0))
        stem = f"{before}openblas_{{}}_num_threads{behind.lstrip('_')}"
        functions = [self._find(stem.format(what)) for what in ("get", "set")]
        self.threads = [self._state.ctypes.data, *functions]

    @cache  # noqa: B019 (there is one library)
    def address(self, name: str) -> int:
        """The address of a routine, by its name in lower case."""
        return self._find(self._before + name + self._behind)

    def _find(self, symbol: str) -> int:
        function = getattr(self._handle, symbol)
        address = ctypes.cast(function, ctypes.c_void_p).value
        assert address is not None
        return address


@cache
def library() -> Library | None:
    """NumPy's LAPACK, or None if it is another one, or can't be found."""
    try:
        linked = importlib.import_module("numpy.linalg._umath_linalg").__file__
        # What NumPy's own module was linked with is found through it.
        handle = ctypes.CDLL(linked)
    except (ImportError, OSError):
        return None
    for before, behind in _NAMINGS:
        try:
            found = Library(handle, before, behind)
            found.address("dpotrf")
        except AttributeError:
            continue
        return found
    return None

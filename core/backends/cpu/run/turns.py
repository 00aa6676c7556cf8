"""Python's threads take shorter turns while kernels compile beside a busy one.

A thread that compiles is in LLVM, without Python's lock, and needs the lock between two
calls: each time it would wait for a whole turn of the thread that traces or plans.
"""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import Future
from typing import Any

_SHORT = 0.0005
"""Seconds of a turn. Python's own are ten times as long."""


class ShortTurns:
    """Turns that are short as long as some work is not done."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = 0
        self._usual = self._set = 0.0
        if hasattr(os, "register_at_fork"):
            # The child has none of the threads that work.
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self._lock = threading.Lock()
        if self._open:
            self._open = 0
            self._restore()

    def shorten_until(self, work: Future[Any]) -> None:
        """Has turns short until a future is done, too."""
        with self._lock:
            self._open += 1
            if self._open == 1:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(_SHORT, self._usual))
                self._set = sys.getswitchinterval()
        work.add_done_callback(self._done)

    def _done(self, work: Future[Any]) -> None:
        with self._lock:
            self._open -= 1
            if not self._open:
                self._restore()

    def _restore(self) -> None:
        # Who has set another one meanwhile keeps it.
        if sys.getswitchinterval() == self._set:
            sys.setswitchinterval(self._usual)

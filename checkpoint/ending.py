"""The signals that ask a training to end, and when it does."""

from __future__ import annotations

import signal
import threading
from typing import Any

ENDING = [
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
]
"""A system may lack the second."""


class Ending:
    """Handles the signals where nobody else does: by default they would end the process
    in the middle of a save.

    Args:
      wait: whether the first of them is only noted, in `noted`.
    """

    def __init__(self, wait: bool) -> None:
        self._wait = wait
        self.noted: int | None = None
        self._old: dict[signal.Signals, Any] = {}

    def begin(self) -> None:
        """Handles them from now on. Whoever has a handler, or ignores the signal, keeps
        to that; and threads other than the first one can't."""
        if threading.current_thread() is threading.main_thread():
            for number in ENDING:
                if signal.getsignal(number) is signal.SIG_DFL:
                    self._old[number] = signal.signal(number, self._handle)

    def end(self) -> None:
        """Gives back what handled them before."""
        while self._old:
            signal.signal(*self._old.popitem())

    def _handle(self, number: int, frame: Any) -> None:
        if self._wait and self.noted is None:
            self.noted = number
        else:
            raise SystemExit(128 + number)

"""Ctrl-C and SIGTERM end a training between two steps rather than within one."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While it is entered, the first signal is only remembered.

    The second Ctrl-C ends the program at once.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        # Python lets only the main thread handle signals.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)

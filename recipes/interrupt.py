"""Signals end a training between two steps rather than within one.

These are Ctrl-C, SIGTERM, and SIGHUP, which comes when the terminal goes away.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupts:
    """While it is entered, the first signal is only remembered.

    A Ctrl-C after it ends the program at once. Other signals don't: whoever ends a
    session or a service may send several.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._old: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Interrupts:
        # Python lets only the main thread handle signals.
        if threading.current_thread() is threading.main_thread():
            for number in _numbers():
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
        if self.received is None:
            self.received = signal.Signals(number)
        elif number == signal.SIGINT and not _in_finalizer(frame):
            raise KeyboardInterrupt


def _in_finalizer(frame: FrameType | None) -> bool:
    """Whether Python would print what is raised here, and go on."""
    while frame is not None and frame.f_code.co_name != "__del__":
        frame = frame.f_back
    return frame is not None


def _numbers() -> list[signal.Signals]:
    found = [signal.SIGINT, signal.SIGTERM]
    # `nohup` has it ignored, so that a training outlives its terminal.
    if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        found.append(signal.SIGHUP)
    return found

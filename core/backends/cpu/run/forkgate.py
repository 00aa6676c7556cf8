"""Keeps forks away from the middle of LLVM's work.

A forked child has only the thread that forked. A lock that another thread held at that
moment, in LLVM or llvmlite, would stay locked in the child for ever. So a fork waits
for the threads inside the gate, and threads that want in wait for the fork.
"""

from __future__ import annotations

import os
import threading


class ForkGate:
    """A context manager for what a fork must not interrupt. Do not nest it."""

    def __init__(self) -> None:
        self._reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._close,
                after_in_parent=self._open,
                after_in_child=self._reset,
            )

    def _reset(self) -> None:
        self._condition = threading.Condition()
        self._inside = 0
        self._forks = 0

    def __enter__(self) -> None:
        with self._condition:
            self._condition.wait_for(lambda: not self._forks)
            self._inside += 1

    def __exit__(self, *exception: object) -> None:
        with self._condition:
            self._inside -= 1
            self._condition.notify_all()

    def _close(self) -> None:
        with self._condition:
            self._forks += 1
            self._condition.wait_for(lambda: not self._inside)

    def _open(self) -> None:
        with self._condition:
            self._forks -= 1
            self._condition.notify_all()

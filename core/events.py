"""What traces and compilations tell: lines of a log, or an error where there must be
none."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from treadle.errors import at, user_source

logger = logging.getLogger("treadle")

_FORBIDDEN = """\
{what} inside of no_tracing{at}
{reason}
no_tracing began{began}
Call it with such arguments before the block; or pass what changes as an array or a \
number, and keep its shape, dtype and structure."""


class _State(threading.local):
    forbidden: str | None = None
    logged: bool = False


_state = _State()


@contextmanager
def no_tracing() -> Iterator[None]:
    """Makes it an error in the block to trace or to compile anything: the reason is
    that which ``jit(f).report()`` would give. For loops whose every step should be the
    same program. A new size of an axis that is open is no trace.

    Raises:
      RuntimeError: in the block, for the first trace or compilation of this thread.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.jit(lambda x: x * 2)
    >>> y = f(tnp.ones(3))
    >>> with td.debug.no_tracing():
    ...     y = f(tnp.zeros(3))
    ...     y = f(tnp.ones(3, dtype="int32"))
    Traceback (most recent call last):
    RuntimeError: <lambda> would be traced inside of no_tracing...
    """
    previous = _state.forbidden
    _state.forbidden = user_source()
    try:
        yield
    finally:
        _state.forbidden = previous


@contextmanager
def log_compiles() -> Iterator[None]:
    """Logs each trace with its reason and each compilation with its time, as warnings
    of the logger ``treadle``, so that they are seen without any set-up.

    ``TREADLE_LOG_COMPILES=1`` in the environment does so everywhere.

    >>> import treadle as td
    >>> with td.debug.log_compiles():
    ...     y = td.jit(lambda x: x * 2)(1.0)
    """
    previous = _state.logged
    _state.logged = True
    try:
        yield
    finally:
        _state.logged = previous


def tracing(name: str, reason: str) -> None:
    """Says that a function is about to be traced, and why.

    Raises:
      RuntimeError: inside of `no_tracing`.
    """
    _check(f"{name} would be traced", f"Because {reason}.")


def traced(name: str, signature: str, reason: str, seconds: float) -> None:
    """Says that a function was traced."""
    if _logs():
        where = user_source()
        logger.warning(
            "traced %s(%s) in %.3g ms, because %s%s",
            name,
            signature,
            seconds * 1e3,
            reason,
            f" ({where})" if where else "",
        )


@contextmanager
def compiling(name: str, equations: int) -> Iterator[None]:
    """For the block that compiles a program.

    Raises:
      RuntimeError: inside of `no_tracing`.
    """
    _check(f"{name or 'a program'} would be compiled", "It has not run before.")
    began = perf_counter()
    yield
    if _logs():
        logger.warning(
            "compiled %s (%d equations) in %.3g ms",
            name or "a program",
            equations,
            (perf_counter() - began) * 1e3,
        )


def _logs() -> bool:
    return _state.logged or os.environ.get("TREADLE_LOG_COMPILES", "0") not in ("", "0")


def _check(what: str, reason: str) -> None:
    if _state.forbidden is not None:
        raise RuntimeError(
            _FORBIDDEN.format(
                what=what,
                at=at(user_source()),
                reason=reason,
                began=at(_state.forbidden).replace("\n ", ""),
            )
        )

"""Sources of values that no argument decides: random numbers, and clocks."""

from __future__ import annotations

import datetime
from typing import Any, NamedTuple

from treadle.trace.variables import MISSING


class Hidden(NamedTuple):
    """A source of values that differ from call to call.

    kind: "random" or "clock". call: as it is written. generator: whose state shows
    that it was drawn from; None if nothing does. function: what is called.
    """

    kind: str
    call: str
    source: str
    generator: Any
    function: Any


def source_of(owner: Any, x: Any) -> tuple[str, Any]:
    """The kind of source that an attribute of a library's object is, "" if it is none,
    and the generator that it draws from.

    x: MISSING if nothing is known of the attribute.
    """
    if x is MISSING:
        return ("random", owner) if _is_generator(owner) else ("", None)
    if not callable(x):
        return "", None
    by = getattr(x, "__self__", None)
    if _is_generator(by):
        return "random", by
    if isinstance(by, type) and issubclass(by, datetime.date):
        return "clock" if x.__name__ in ("now", "today", "utcnow") else "", None
    return _kind(x), None


_NAMES = (
    "time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time "
    "process_time_ns thread_time thread_time_ns localtime gmtime ctime strftime asctime"
)
_CLOCKS = frozenset(_NAMES.split())
_ENTROPY = {
    "uuid": {"uuid1", "uuid4"},
    "secrets": {"token_bytes", "token_hex", "randbelow", "choice"},
    "posix": {"urandom"},
    "nt": {"urandom"},
}


def _kind(x: Any) -> str:
    """What a function gives anew each time that has no generator."""
    module, name = getattr(x, "__module__", None), getattr(x, "__name__", None)
    if module == "time" and name in _CLOCKS:
        return "clock"
    return "random" if name in _ENTROPY.get(module or "", ()) else ""


def _is_generator(x: Any) -> bool:
    """Whether numbers are drawn from an object, which changes it."""
    return any(
        base.__module__ == "random" or base.__module__.startswith("numpy.random")
        for base in type(x).__mro__
    )

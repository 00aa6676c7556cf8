"""Python's garbage collector, held off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Holds Python's garbage collector off: everything that is made here is alive until
    the plan is done, so that searching it (and all modules, each time) finds nothing.
    None of the user's code runs meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

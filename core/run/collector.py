"""Python's garbage collector, held off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_collection() -> Iterator[None]:
    """Holds Python's garbage collector off while a program is traced or planned: what
    is made then is alive until that is done, so that searching it, and all that was
    loaded before, finds nothing. A full search takes as long as tracing a model."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

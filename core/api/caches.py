"""What a process keeps: traces of jitted functions, and arrays."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING
from weakref import WeakSet

from treadle.errors import DonatedError
from treadle.run.array import Array

if TYPE_CHECKING:
    from treadle.api.jit import Jitted

made: WeakSet[Jitted] = WeakSet()
"""The jitted functions that there are."""


def clear_caches() -> None:
    """Forgets the traces and programs of all jitted functions: each is traced anew at
    its next call (``jit(f).clear_cache()`` does so for one). What is on the disk stays,
    and so does machine code that this process has loaded.

    >>> import treadle as td
    >>> traces = []
    >>> f = td.jit(lambda x: (traces.append(1), x + 1)[1])
    >>> _ = f(1.0), f(2.0), td.clear_caches(), f(3.0)
    >>> len(traces)
    2
    """
    for jitted in list(made):
        jitted.clear_cache()


def live_arrays() -> list[Array]:
    """The arrays of this library that anything in the process still holds, the largest
    first; donated ones are none. To find what keeps memory: slow, for a debugger.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x = tnp.ones((1000, 1000), "int8") + 1
    >>> any(a is x for a in td.live_arrays())
    True
    """
    found = []
    for thing in gc.get_objects():
        if isinstance(thing, Array):
            try:
                thing._data  # noqa: B018 - raises for donated ones
            except DonatedError:
                continue
            found.append(thing)
    return sorted(found, key=lambda x: -x.nbytes)

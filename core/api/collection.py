"""Collections: what code adds to by name, wherever it runs, for somebody outside.

Unlike an `Ambient`, which keeps its structure, a collection grows. What the body of a
`scan` or the function of a `vmap` adds becomes one more result of that transform, and
so is stacked; `remat` gives it back as it is. In other transforms nothing can be added.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Self

from treadle.trace.interpreter import state


class Collection:
    """Entries by name. Those that a body of `scan` or `vmap` adds are stacked.

    >>> import treadle as td, treadle.numpy as tnp
    >>> def body(total, x):
    ...     seen.add("square", x * x)
    ...     return total + x, None
    >>> with td.Collection().opened() as seen:
    ...     _ = td.scan(body, 0.0, tnp.array([1.0, 2.0, 3.0]))
    >>> seen.entries
    {'square': Array([1., 4., 9.], dtype=float32)}
    """

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self._transform: Any = None

    @property
    def is_here(self) -> bool:
        """Whether the code that is running may add to it."""
        return self._transform is state.interpreter

    def add(self, name: str, value: Any) -> None:
        """Adds an entry, a pytree of arrays. A second one of a name is ``name#2``.

        Does nothing where a transform runs that takes no entries along (`is_here`).
        """
        if not self.is_here:
            return
        unique, count = name, 1
        while unique in self.entries:
            count += 1
            unique = f"{name}#{count}"
        self.entries[unique] = value

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Opens it for a block, and for the transforms that are called there."""
        self._transform = state.interpreter
        _open.stack.append(self)
        try:
            yield self
        finally:
            _open.stack.pop()


class _Open(threading.local):
    def __init__(self) -> None:
        self.stack: list[Collection] = []


_open = _Open()


class Additions:
    """What a function under a transform adds to the collections that are open here. It
    is false if there are none."""

    def __init__(self) -> None:
        self.collections = [c for c in _open.stack if c.is_here]

    def __bool__(self) -> bool:
        return bool(self.collections)

    def returned_by(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, giving its result and the entries that it adds."""

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> tuple[Any, list[dict[str, Any]]]:
            around = [(c.entries, c._transform) for c in self.collections]
            for c in self.collections:
                c.entries, c._transform = {}, state.interpreter
            try:
                out = function(*args, **kwargs)
                return out, [c.entries for c in self.collections]
            finally:
                for c, before in zip(self.collections, around, strict=True):
                    c.entries, c._transform = before

        return run

    def taken(self, call: Callable[[], tuple[Any, list[dict[str, Any]]]]) -> Any:
        """The result of a transformed function that `returned_by` made; the entries go
        where they belong."""
        home = state.interpreter
        # Else the transform would find them again.
        for c in self.collections:
            c._transform = self
        try:
            out, added = call()
        finally:
            for c in self.collections:
                c._transform = home
        for c, entries in zip(self.collections, added, strict=True):
            for name, value in entries.items():
                c.add(name, value)
        return out

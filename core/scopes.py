"""Where in the user's program an operation comes from: its line, the names of the parts
of the program around it, and whether it is of a backward pass.

Names are those of `named_scope`, and the places of layers in the modules that call them
(`encoder.layers[2].attention`). They are part of an equation's source, so that whatever
hands on its line hands on its names. Within a graph that another equation holds they
are relative to that one.
"""

from __future__ import annotations

import threading
from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from treadle.errors import at, user_frame, user_source


class Source(str):
    """``file:line`` of the user's, with what is around it.

    scope: names of the parts of the program around it, joined by dots.
    backward: whether it is of the backward pass of that line.
    """

    __slots__ = ("backward", "scope")
    scope: str
    backward: bool

    def __new__(cls, line: str = "", scope: str = "", backward: bool = False) -> Source:
        made = super().__new__(cls, line)
        made.scope, made.backward = scope, backward
        return made

    def __reduce__(self) -> Any:
        return Source, (str(self), self.scope, self.backward)

    @property
    def place(self) -> str:
        """Its part of the program in words; empty if there is nothing to say."""
        words = ["backward"] * self.backward
        words += [f"in {self.scope}"] * bool(self.scope)
        return ", ".join(words)


def source_of(line: str) -> Source:
    """A line as a `Source`."""
    return line if isinstance(line, Source) else Source(line)


def within(line: str, around: str) -> str:
    """A source in a graph, where the equation that holds it comes from `around`."""
    if not isinstance(around, Source) or not (around.scope or around.backward):
        return line
    inner = source_of(line)
    scope = joined(around.scope, inner.scope)
    return Source(inner, scope, inner.backward or around.backward)


def in_backward(line: str) -> Source:
    """The source of what is done for a line in the backward pass."""
    source = source_of(line)
    return source if source.backward else Source(source, source.scope, True)


def joined(outer: str, inner: str) -> str:
    """The path of a scope inside another one."""
    if outer and inner and not inner.startswith("["):
        return f"{outer}.{inner}"
    return outer + inner


class _Current(threading.local):
    path: str = ""
    layer: Any = None


current = _Current()
"""This thread's place in the user's program. path: the names around; layer: that which
runs now, as whoever knows about layers describes it."""

_MOST_KNOWN = 100_000
_known: dict[tuple[str, int, str], Source] = {}


def here() -> Source:
    """The user's innermost line, with the names around it."""
    frame = user_frame()
    if frame is None:
        return Source("", current.path)
    # Looked up: the same few thousand places ask in each trace.
    key = frame.f_code.co_filename, frame.f_lineno, current.path
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known[key] = Source(f"{key[0]}:{key[1]}", key[2])
    return found


class named_scope(ContextDecorator):
    """Names a part of a program: the name goes with each operation in it, through grad,
    vmap, jit and loops, and stands in printed graphs, `explain` and errors. It changes
    nothing of what is computed or compiled.

    Layers need none: a Module that another one calls has the name of its place there
    (``encoder.layers[2].attention``).

    Args:
      name: the name. Those of scopes inside each other are joined by dots.

    Raises:
      TypeError, ValueError: if the name is no text, or empty.

    >>> import treadle as td
    >>> @td.named_scope("loss")
    ... def square(x):
    ...     with td.named_scope("inner"):
    ...         return x * x
    >>> graph = td.trace(td.grad(square))(3.0)
    >>> sorted({eq.scope for eq in graph.equations})
    ['loss.inner']
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise TypeError(
                f"named_scope needs a name, got {type(name).__name__} {name!r:.60}"
                f"{at(user_source())}\n"
                'Write `with td.named_scope("name"):` or `@td.named_scope("name")`.'
            )
        if not name:
            raise ValueError(f"named_scope needs a name, got ''{at(user_source())}")
        self.name = name
        self._around = ""

    def _recreate_cm(self) -> named_scope:
        # For each call of a decorated function: it may call itself, in any thread.
        return named_scope(self.name)

    def __enter__(self) -> named_scope:
        self._around = current.path
        current.path = joined(self._around, self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current.path = self._around

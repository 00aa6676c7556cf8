"""Where in the user's program an operation comes from: its line, the names of the parts
of the program around it, and whether it is of a backward pass.

Names are those of `named_scope`, and the places of layers in the modules that call them
(`encoder.layers[2].attention`). They are part of an equation's source, so that whatever
hands on its line hands on its names. Within a graph that another equation holds they
are relative to that one.
"""

from __future__ import annotations

import threading
from typing import Any


class Source(str):
    """``file:line`` of the user's, with what is around it.

    scope: names of the parts of the program around it, joined by dots.
    backward: whether it is of the backward pass of that line.
    """

    __slots__ = ("_reversed", "backward", "scope")
    scope: str
    backward: bool
    _reversed: Source | None

    def __new__(cls, line: str = "", scope: str = "", backward: bool = False) -> Source:
        made = str.__new__(cls, line)
        made.scope, made.backward = scope, backward
        made._reversed = None
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
    if source.backward:
        return source
    found = source._reversed
    if found is None:
        found = source._reversed = Source(source, source.scope, True)
    return found


def joined(outer: str, inner: str) -> str:
    """The path of a scope inside another one."""
    return f"{outer}.{inner}" if outer and inner else outer + inner


class Place:
    """Where in the user's program a thread is.

    path: the names around, within the graph that is written. around: those around that.
    layer: what runs. watch: if somebody watches, what each call of a layer is told to,
      ``(layer, args, kwargs, output)``; it gives the output.
    """

    __slots__ = ("around", "layer", "path", "watch")
    layer: Any
    watch: Any

    def __init__(self) -> None:
        self.path, self.around, self.layer, self.watch = "", "", None, None

    @property
    def whole(self) -> str:
        """All names around."""
        return joined(self.around, self.path)


class _Current(threading.local):
    def __init__(self) -> None:
        self.place = Place()
        self.line: tuple[str, int] | None = None


current = _Current()
"""The place of this thread; and file and line of the user's, where these are known to
stay the same for a while (`treadle.errors.on_one_line`)."""

"""Where the program is: names for its parts, and which transform it is in."""

from __future__ import annotations

from contextlib import ContextDecorator
from types import TracebackType
from typing import Any

from treadle.errors import at, user_source
from treadle.scopes import current, joined
from treadle.trace.interpreter import state


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
        self._around = current.place.path
        current.place.path = joined(self._around, self.name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        current.place.path = self._around


def current_transform() -> Any:
    """A token of the innermost transform that is running: the same object as long as
    the program is in the same call of it.

    What is made in one transform must not be kept for another: layers compare tokens
    to find a random stream or a state cell that is used inside a scan or vmap, where
    one piece of Python stands for many iterations.

    >>> import treadle as td
    >>> outside = td.current_transform()
    >>> outside is td.current_transform()
    True
    >>> inside = []
    >>> _ = td.grad(lambda x: inside.append(td.current_transform()) or x)(1.0)
    >>> inside[0] is outside
    False
    """
    return state.interpreter

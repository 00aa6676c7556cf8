"""Who carries out an operation: the current interpreter, chosen by context.

Interpreters form a chain: each transform pushes one over its caller's, runs the user's
function, and pops it. A rule runs with the parent as current interpreter.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from treadle.dims import Scope
from treadle.errors import user_source
from treadle.scopes import current

if TYPE_CHECKING:
    from treadle.trace.op import Op


class Interpreter:
    """Carries out operations on its own kind of value.

    alive: False once the transform that made it has returned; its tracers are then
      leaked values and every use of them is an error.
    called_at: the user's line that called the transform.
    writer: the innermost one, from this outwards, that writes all operations down.
    """

    alive = True
    called_at = ""
    writer: Interpreter | None = None
    writes_graph = False
    """Whether what it writes is a graph of its own, in which names begin anew."""

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """The result of `op` (a list for ops with several results)."""
        raise NotImplementedError

    def decide(self, x: Any) -> bool | None:
        """What `bool` of a scalar bool says that has no value yet: one answer now, the
        other when the function is run again. None if that can't be.
        """
        return None

    def tell(self, x: Any, spec: str | None, text: str = "") -> str | None:
        """A text in place of a tracer that has no value yet, in the message of an error
        that is about to be raised; the program puts the value there. None elsewhere.

        spec: how it is formatted, None for `repr`. text: that is in a message already.
        """
        return None


class _State(threading.local):
    interpreter: Interpreter
    source: str = ""
    scope: Scope | None = None
    staging_disabled: bool = False
    branching: str = "statements"
    retries: list[Any]
    given_up: tuple[Any, Any, Any] | None
    pending: BaseException | None

    def __init__(self) -> None:
        self.retries = []
        self.given_up = None
        self.pending = None


state = _State()
"""The one scoped value of tracing: this thread's current interpreter."""


def set_base(interpreter: Interpreter) -> None:
    """Declares what is current when no transform is running."""
    _State.interpreter = interpreter


@contextmanager
def sizes_of(scope: Scope) -> Iterator[Scope]:
    """For the trace of a function whose sizes are not fixed. They are nothing outside
    of it."""
    previous, state.scope = state.scope, scope
    try:
        yield scope
    finally:
        state.scope = previous
        scope.close()


@contextmanager
def using(interpreter: Interpreter) -> Iterator[Interpreter]:
    """Makes an interpreter current for a block."""
    previous = state.interpreter
    state.interpreter = interpreter
    try:
        yield interpreter
    finally:
        state.interpreter = previous


@contextmanager
def entering(interpreter: Interpreter) -> Iterator[Interpreter]:
    """Like `using`, for an interpreter whose life ends with the block."""
    interpreter.called_at = user_source()
    place, source = current.place, state.source
    path, around = place.path, place.around
    if interpreter.writes_graph:
        place.path, place.around, state.source = "", place.whole, str(source)
    with using(interpreter):
        try:
            yield interpreter
        finally:
            interpreter.alive = False
            place.path, place.around, state.source = path, around, source


def current_source() -> str:
    """The line of the user's to which operations are attributed now, with the names
    around it."""
    return state.source or user_source()


@contextmanager
def at_source(source: str) -> Iterator[None]:
    """Attributes the operations of a block to a line of the user's (in a backward
    pass: the line of the forward operation)."""
    previous = state.source
    state.source = source
    try:
        yield
    finally:
        state.source = previous

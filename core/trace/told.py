"""What errors tell of traced values.

A function that branches on traced values raises its errors while it is traced, and once
more when the program comes by. Where a `raise` or an `assert` writes a traced value
into its message, the trace puts down a text in its place; the program puts the value
there.
"""

from __future__ import annotations

import dis
import itertools
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, NamedTuple

from treadle import tree
from treadle.errors import is_ours
from treadle.ir.graph import Atom
from treadle.trace.interpreter import state
from treadle.trace.value import Tracer

RAISE = dis.opmap["RAISE_VARARGS"]
_ENDS = {*dis.hasjrel, *dis.hasjabs}
_NAMED = ("STORE_FAST", "STORE_DEREF")
"""A message may have a name first."""
_ENDS |= {
    c
    for n, c in dis.opmap.items()
    if n.startswith(("STORE_", "RETURN_")) and not n.startswith(_NAMED)
}


def at_raise(frame: FrameType | None, stop: CodeType) -> bool:
    """Whether a frame, or one that called it, down to one of `stop`, is at work on what
    it is about to raise."""
    while frame is not None and frame.f_code is not stop:
        if not is_ours(frame.f_code.co_filename) and _raises(frame):
            return True
        frame = frame.f_back
    return False


def _raises(frame: FrameType) -> bool:
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.offset <= frame.f_lasti:
            continue
        if instruction.opcode == RAISE:
            return True
        if instruction.opcode in _ENDS:
            return False
    return False


class Told(NamedTuple):
    """A value that is written in a message.

    text: in its place. spec: how it is formatted, None for `repr`.
    """

    text: str
    value: Tracer
    spec: str | None


_numbers = itertools.count()


def told(value: Tracer, spec: str | None, text: str = "") -> Told:
    """With a text, if none is given, that no other is like."""
    how = f":{spec}" if spec else ""
    return Told(text or f"<{value.type} #{next(_numbers)}{how}>", value, spec)


class Raised(NamedTuple):
    """An error, and the traced values of which it tells.

    atoms: first those among its arguments and attributes, then those in texts.
    """

    error: Exception
    atoms: Sequence[Atom]
    texts: Sequence[Told]

    def filled(self, values: Sequence[Any]) -> Exception:
        """The error with values of the atoms instead."""
        if not values:
            return self.error
        given = iter(values)

        def known(x: Any) -> Any:
            return next(given) if isinstance(x, Tracer) else x

        parts = tree.map(known, _parts(self.error))
        texts = [(t.text, _shown(t, v)) for t, v in zip(self.texts, given, strict=True)]

        def whole(x: Any) -> Any:
            for text, value in texts if isinstance(x, str) else ():
                x = x.replace(text, value)
            return x

        arguments, attributes = tree.map(whole, parts)
        # Not by its class: `__init__` may want other arguments than it has kept.
        made = type(self.error).__new__(type(self.error), *arguments)
        made.args = arguments
        made.__dict__.update(attributes)
        made.__cause__, made.__context__ = self.error.__cause__, self.error.__context__
        made.__suppress_context__ = self.error.__suppress_context__
        return made


def _shown(told: Told, value: Any) -> str:
    if isinstance(value, Tracer) and value.concrete() is None:
        state.interpreter.tell(value, told.spec, told.text)
        return told.text
    return repr(value) if told.spec is None else format(value, told.spec)


def _parts(error: Exception) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return error.args, vars(error)


def raised(
    error: Exception, told: Sequence[Told], lift: Callable[[Any], Atom]
) -> Raised:
    """An error that a trace has raised.

    told: what it has been told meanwhile. lift: gives the atom of a traced value.
    """
    held = [x for x in tree.leaves(_parts(error)) if isinstance(x, Tracer)]
    said = [x for x in tree.leaves(_parts(error)) if isinstance(x, str)]
    texts = [t for t in told if any(t.text in x for x in said)]
    return Raised(error, [lift(x) for x in (*held, *[t.value for t in texts])], texts)

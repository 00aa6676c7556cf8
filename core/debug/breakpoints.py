"""breakpoint: a debugger at a place of a compiled program, with the values there."""

from __future__ import annotations

import bdb
import pdb
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple, TextIO

import numpy as np

from treadle import tree
from treadle.api.boundary import boundary
from treadle.api.callbacks import effect_on_host
from treadle.dims import is_symbolic
from treadle.errors import at, is_ours, user_frame, user_source
from treadle.trace.value import Tracer, is_array


class Frame(NamedTuple):
    """A function of the user's that runs, as a breakpoint shows it.

    locals: its variables; arrays are NumPy's, those of the moment.
    """

    filename: str
    line: int
    name: str
    locals: dict[str, Any]
    globals: dict[str, Any]


Debugger = Callable[[Sequence[Frame]], None]


@boundary
def breakpoint(
    *,
    num_frames: int = 4,
    debugger: Debugger | None = None,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
) -> None:
    """Opens a debugger each time the program comes by: `pdb`, in the user's functions
    as they were traced, with the values that arrays have now.

    Works in compiled programs, under grad, and in loops and branches; under vmap, it
    opens for one example after the other. ``up`` and ``down`` go through the frames,
    ``continue`` goes on, ``quit`` ends the program with `bdb.BdbQuit`. Values that are
    changed there do not change the program.

    Args:
      num_frames: how many of the user's functions are kept, the innermost first: all
        arrays among their variables are handed over.
      debugger: is called with the frames, the innermost first, instead of `pdb`.
      stdin, stdout: of `pdb`, if not the program's own.

    >>> import treadle as td
    >>> @td.jit
    ... def f(x):
    ...     y = x * 2
    ...     td.debug.breakpoint(debugger=lambda frames: print(frames[0].locals["y"]))
    ...     return y
    >>> y = f(3.0)
    6.0
    """
    if not isinstance(num_frames, int) or num_frames < 1:
        raise ValueError(
            f"breakpoint(num_frames={num_frames!r}): at least 1{at(user_source())}"
        )
    frames = _frames(user_frame(), num_frames)
    leaves, form = tree.flatten([_variables(f) for f in frames], is_leaf=_is_whole)
    arrays = [x for x in leaves if _usable(x)]
    shown = _Shown(
        tuple([_Opaque((f.f_code, f.f_lineno, f.f_globals)) for f in frames]),
        _Opaque(form),
        tuple([_held(x) for x in leaves if not _usable(x)]),
        tuple(map(_usable, leaves)),
        debugger or _Pdb.on(stdin, stdout),
    )
    effect_on_host(shown, arrays, {})


def _frames(frame: FrameType | None, most: int) -> list[FrameType]:
    """The user's innermost frames."""
    found: list[FrameType] = []
    while frame is not None and len(found) < most:
        if not is_ours(frame.f_code.co_filename):
            found.append(frame)
        frame = frame.f_back
    return found


def _variables(frame: FrameType) -> dict[str, Any]:
    # Those of a module are seen as they are then.
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _is_whole(x: Any) -> bool:
    """Whether a variable's value is not looked into: a dict without an order."""
    if not isinstance(x, dict):
        return False
    try:
        sorted(x)
    except TypeError:
        return True
    return False


def _held(x: Any) -> Any:
    # A size that is open is a number when the program runs.
    return x if is_symbolic(x) else _Opaque(x)


def _value(held: Any) -> Any:
    return held.value if isinstance(held, _Opaque) else held


def _usable(x: Any) -> bool:
    """Whether a variable holds an array of which the program can have the value."""
    if isinstance(x, Tracer):
        return x.interpreter.alive
    return is_array(x)


class _Opaque:
    """What the tracer and the compiler are to leave as it is, and not to compare: of a
    function that is run for each way through it, one run is shown."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Opaque)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class _Shown:
    """Opens a debugger on frames.

    places: code, line, and globals of each. form: of their variables.
    held: the leaves of these that are no arrays; given: which are.
    """

    places: tuple[_Opaque, ...]
    form: _Opaque
    held: tuple[Any, ...]
    given: tuple[bool, ...]
    debugger: Debugger

    __name__ = "breakpoint"

    def __call__(self, *arrays: np.ndarray) -> None:
        given, held = iter(arrays), iter(self.held)
        leaves = [next(given) if array else _value(next(held)) for array in self.given]
        variables = self.form.value.unflatten(leaves)
        frames = []
        for place, names in zip(self.places, variables, strict=True):
            code, line, rest = place.value
            frames.append(Frame(code.co_filename, line, code.co_name, names, rest))
        self.debugger(frames)


_HOOK = "__treadle_breakpoint__"


class _Pdb(pdb.Pdb):
    """`pdb` on frames that are made anew."""

    @staticmethod
    def on(stdin: TextIO | None, stdout: TextIO | None) -> Debugger:
        """Opens on given frames, with these streams."""
        return lambda frames: _Pdb(stdin=stdin, stdout=stdout, nosigint=True).open(
            frames
        )

    def open(self, frames: Sequence[Frame]) -> None:
        """Lets the user look at frames, the innermost of which comes first."""
        self.shown: list[FrameType] = []
        self.reset()
        self._enter(list(frames))
        if self.quitting:
            raise bdb.BdbQuit

    def _enter(self, rest: list[Frame]) -> None:
        """Makes Python's frames, one inside the other: each runs a line of code that
        stands where the user's line does."""
        if not rest:
            self.interaction(self.shown[-1], None)
            return
        frame = rest.pop()

        def inside() -> None:
            self.shown.append(sys._getframe(1))
            self._enter(rest)

        text = "\n" * (frame.line - 1) + f"{_HOOK}()"
        code = compile(text, frame.filename, "exec").replace(co_name=frame.name)
        exec(code, {**frame.globals, _HOOK: inside}, frame.locals)

    def get_stack(
        self, f: FrameType | None, t: Any
    ) -> tuple[list[tuple[FrameType, int]], int]:
        stack = [(frame, frame.f_lineno) for frame in self.shown]
        return stack, len(stack) - 1

    def set_continue(self) -> None:
        # Not `bdb`'s, which would end the tracing that others have begun.
        self._set_stopinfo(None, None, -1)  # type: ignore[attr-defined]

    def set_quit(self) -> None:
        self.quitting = True

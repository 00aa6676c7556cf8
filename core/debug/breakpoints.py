"""breakpoint: a debugger at a place of a compiled program, with the values there."""

from __future__ import annotations

import bdb
import pdb
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, NamedTuple, TextIO

import numpy as np

from treadle import tree
from treadle.api.boundary import boundary
from treadle.api.callbacks import effect_on_host
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
        tuple([_Place(f.f_code, f.f_lineno, f.f_globals) for f in frames]),
        form,
        tuple([None if _usable(x) else _Held(x) for x in leaves]),
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


def _usable(x: Any) -> bool:
    """Whether a variable holds an array of which the program can have the value."""
    if isinstance(x, Tracer):
        return x.interpreter.alive
    return is_array(x)


class _Place(NamedTuple):
    code: CodeType
    line: int
    globals: dict[str, Any]


@dataclass(frozen=True, eq=False)
class _Held:
    """What is not an array, as it is."""

    value: Any


@dataclass(frozen=True, eq=False)
class _Shown:
    """Opens a debugger on frames.

    held: for each leaf of their variables, what it is if it is no array.
    """

    places: tuple[_Place, ...]
    form: tree.Structure
    held: tuple[_Held | None, ...]
    debugger: Debugger

    __name__ = "breakpoint"

    def __call__(self, *arrays: np.ndarray) -> None:
        given = iter(arrays)
        leaves = [next(given) if h is None else h.value for h in self.held]
        variables = self.form.unflatten(leaves)
        self.debugger(
            [
                Frame(p.code.co_filename, p.line, p.code.co_name, v, p.globals)
                for p, v in zip(self.places, variables, strict=True)
            ]
        )


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

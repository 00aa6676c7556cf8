"""What functions that are running can reach, and whether it has changed.

A function that is run several times must find the same each time: a counter that it
increases, or a list that it appends to, would give results that no single run gives.
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import count
from operator import length_hint
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, NamedTuple

import numpy as np

from treadle.errors import MutationError, at, is_ours, user_source
from treadle.structure import is_held
from treadle.trace.source import depth
from treadle.trace.value import Value

MOST_OBJECTS = 4000
"""Objects that are looked at."""

MOST_BYTES = 1 << 16
"""Arrays of NumPy's are compared up to this size."""

_INSTALLED = ("site-packages", "dist-packages")

ATOMS = (str, bytes, int, float, complex, type(None), type, np.generic, np.dtype)
_NO_STATE = (ModuleType, BuiltinFunctionType, CodeType, Value, tuple, FunctionType)

_EACH_WAY = """\
it branches on a traced value, so each way through it is traced, and a change in one \
is seen by the next{at}
Return the new value instead; or make the choice with `td.cond` or `tnp.where`."""
ONCE = """\
it is traced once for all iterations{at}
Collect values with `td.scan`, or in an array that is carried: `b = b.at[i].set(x)`."""

_MUTATED = "{} changed {} while it was traced: {}"


class _Global(NamedTuple):
    """A variable of a module, as something that holds a value."""

    module: dict[str, Any]
    name: str


class _Own(threading.local):
    def __init__(self) -> None:
        self.cells: list[CellType] = []


_own = _Own()


@contextmanager
def owning(cells: Sequence[CellType]) -> Iterator[None]:
    """For who gives these variables their values anew for each run of a function: that
    they change is no one's fault."""
    count = len(_own.cells)
    _own.cells += cells
    try:
        yield
    finally:
        del _own.cells[count:]


def are_owned() -> bool:
    """Whether there are variables that someone gives their values anew for each run."""
    return bool(_own.cells)


class Outside:
    """Containers that can be reached, each with a name and with what is in it."""

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[Any, str, Any]] = {}

    @classmethod
    def of(cls, function: Any, runner: CodeType | int) -> Outside:
        """What the user's functions can reach at this moment that are running since
        `function` was called by `runner`: a frame with that code, or of that depth. (Of
        what runs around it, other threads may be at work on some.)
        """
        made = cls()
        todo = deque([("", function)])
        frame: FrameType | None = sys._getframe(1)
        left = depth(frame) - runner if isinstance(runner, int) else -1
        while frame is not None and frame.f_code is not runner and left != 0:
            if not is_ours(frame.f_code.co_filename):
                todo += _named(frame.f_code, frame.f_globals)
                todo += [(f"`{name}`", x) for name, x in frame.f_locals.items()]
            frame, left = frame.f_back, left - 1
        seen: set[Hashable] = set()
        while todo and len(seen) < MOST_OBJECTS:
            name, x = todo.popleft()
            key = (id(x.module), x.name) if type(x) is _Global else id(x)
            if key in seen or isinstance(x, ATOMS):
                continue
            seen.add(key)
            found = contents(x)
            if found is not None and not any(x is cell for cell in _own.cells):
                made._found[key] = x, name, found
            todo += _inside(name, x, found)
        return made

    def check(self, later: Outside, name: str, why: str = _EACH_WAY) -> None:
        """
        Raises:
          MutationError: if something has changed since, of what can be reached then,
            too. (What can't be was made by the first run, for itself.)
        """
        for key in self._found.keys() & later._found.keys():
            x, path, before = self._found[key]
            if not same_contents(before, contents(x)):
                because = why.format(at=at(user_source()))
                raise MutationError(_MUTATED.format(name, path, because))


def _named(code: CodeType, known: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The globals that code uses."""
    return (
        (f"`{name}`", _Global(known, name)) for name in code.co_names if name in known
    )


def contents(x: Any, most_bytes: int = MOST_BYTES) -> Any:
    """What is in a container now, to be compared; None if `x` is none."""
    kind = type(x)
    if isinstance(x, list | set | deque):
        return list(x)
    if isinstance(x, dict):
        return dict(x)
    if kind is _Global:
        return [x.module[x.name]] if x.name in x.module else []
    if kind is CellType:
        try:
            return [x.cell_contents]
        except ValueError:
            return []
    if kind is bytearray or kind is array:
        return bytes(x)
    if kind is SimpleNamespace:
        return dict(vars(x))
    if kind is np.ndarray:
        return x.tobytes() if x.nbytes <= most_bytes else None
    if isinstance(x, _ITERATORS):
        return _position(x)
    if isinstance(x, _NO_STATE) or is_foreign(kind.__module__):
        return None
    if is_held(x):  # looking into it would be a change
        return None
    fields = getattr(x, "__dict__", None)
    if type(fields) is dict:
        return dict(fields)
    slots = [n for base in kind.__mro__ for n in base.__dict__.get("__slots__", ())]
    return {n: getattr(x, n) for n in slots if hasattr(x, n)} if slots else None


_ITERATORS: tuple[type, ...] = (
    GeneratorType,
    count,
    type(iter([])),
    type(iter(range(0))),
)


def _position(x: Any) -> Any:
    """Where an iterator is."""
    if isinstance(x, count):
        return repr(x).encode()
    if isinstance(x, GeneratorType):
        frame = x.gi_frame
        return {} if frame is None else {**frame.f_locals, frame.f_lasti: None}
    return b"%d" % length_hint(x)


@cache
def is_foreign(module: str) -> bool:
    """Whether what a module defines may change as it likes: the caches of libraries,
    this one among them, loggers, locks."""
    root = module.partition(".")[0]
    if root == "treadle" or root in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(root), "__file__", None) or ""
    return any(name in file for name in _INSTALLED)


def same_contents(before: Any, now: Any) -> bool:
    if isinstance(before, bytes):
        return before == now
    if type(before) is not type(now) or len(before) != len(now):
        return False
    if isinstance(before, dict):
        return all(k in now and now[k] is v for k, v in before.items())
    return all(a is b for a, b in zip(before, now, strict=True))


def _inside(name: str, x: Any, found: Any) -> Iterator[tuple[str, Any]]:
    """What can be reached from an object, and by which name."""
    if isinstance(x, FunctionType):
        code = x.__code__
        cells = list(zip(code.co_freevars, x.__closure__ or (), strict=True))
        if is_ours(code.co_filename):
            yield from ((name, f) for _, c in cells for f in _functions(c))
        else:
            yield from ((f"`{variable}`", cell) for variable, cell in cells)
            if not is_foreign(x.__module__ or ""):
                yield from _named(code, x.__globals__)
    elif isinstance(x, MethodType):
        yield name, x.__self__
        yield name, x.__func__
    elif type(found) is dict:
        own = type(x) is not dict
        for key, item in found.items():
            place = f"`{key}`" if own else f"[{key!r:.40}]"
            yield f"{place} of {name}", item
    elif type(found) is list:
        variable = type(x) in (CellType, _Global)
        for item in found:
            yield name if variable else f"something in {name}", item
    elif isinstance(x, tuple):
        for item in x:
            yield f"something in {name}", item
    elif is_foreign(type(x).__module__):
        yield from (
            (name, f) for f in getattr(x, "__dict__", {}).values() if callable(f)
        )


def _functions(cell: CellType) -> list[Any]:
    """What the library's own functions close over that may be the user's."""
    try:
        return [cell.cell_contents] if callable(cell.cell_contents) else []
    except ValueError:
        return []

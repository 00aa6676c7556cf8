"""What code reads besides its arguments, and where it may change something in place.

That is read off the instructions once for each code object, so that what is done for
each trace is little: looking up a few names.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple

from treadle.trace.instructions import (
    FUNCTIONS,
    IN_PLACE,
    KIND,
    LOOKERS,
    METHODS,
    NAMES_ON_STACK,
    SHIFT,
    WHOLE_METHODS,
)
from treadle.trace.paths import CELL, EVERY, GLOBAL, LENGTH, LOCAL, At, Item, Path


class Change(NamedTuple):
    """A line that may change something in place.

    roots: the variables on that line; empty if it is not one that can be named.
    asks: whether the code looks first whether something is there, as caches do.
    """

    source: str
    roots: tuple[Path, ...]
    asks: bool


class Store(NamedTuple):
    """A line that binds a variable from outside anew."""

    source: str
    variable: Path
    asks: bool


class Read(NamedTuple):
    """A path that is read, the first line where, and the identities of the code objects
    that read it."""

    path: Path
    source: str
    readers: frozenset[int]


class Call(NamedTuple):
    """A call, with the paths that are its first arguments; None for other ones."""

    function: Path
    args: tuple[Path | None, ...]


class Reads(NamedTuple):
    """Of code, and of the functions that are defined in it.

    outside: what it reads from outside; own: of its own variables, by their names.
    calls: of what is known by its path, with something that is, too.
    """

    code: CodeType
    outside: tuple[Read, ...]
    own: dict[str, list[Read]]
    stores: tuple[Store, ...]
    changes: tuple[Change, ...]
    calls: tuple[Call, ...]


class _Reader:
    """Reads instructions in their order, and puts paths together.

    What is known of the top of the stack is in a row: paths, the numbers of constants,
    None for other values. Nothing is known across jumps.
    """

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.paths: dict[Path, int] = {}
        self.stores: list[tuple[int, Path, bool]] = []
        self.changes: list[tuple[int, Path | None]] = []
        self.calls: dict[Call, None] = {}
        self.on_line: dict[int, dict[Path, None]] = {}
        self.asks = "KeyError" in code.co_names or "get" in code.co_names
        self._row: list[Path | int | None] = []
        self._names = 0  # of the arguments of the next call
        self._same: dict[Path, Path] = {}
        self._line = 0
        self._free = {*code.co_freevars}
        inner = [name for name in code.co_cellvars if name not in code.co_varnames]
        self._variables = (*code.co_varnames, *inner, *code.co_freevars)

    def read(self) -> None:
        """Goes through the code."""
        code = self.code.co_code
        lines = [*self.code.co_lines()]
        at, (_, following, line) = 0, lines[0]
        self._line = line or self.code.co_firstlineno
        extended = 0
        for i, kind in enumerate([KIND[n] for n in code[::2]]):
            if kind == "skip":
                continue
            if not kind:
                if self._row:
                    self._end()
                extended = 0
                continue
            number, extended = code[2 * i + 1] | extended, 0
            if kind == "extended":
                extended = number << 8
                continue
            while 2 * i >= following:
                at += 1
                _, following, line = lines[at]
                self._line = line or self._line
            handle = _HANDLERS.get(kind)
            if handle is not None:
                handle(self, number)
            else:
                self._take(kind, number)
        self._end()
        self._leave_own()

    # What makes paths longer, and what uses them

    def _attribute(self, number: int) -> None:
        name = self.code.co_names[number >> SHIFT]
        path = self._pop()
        if isinstance(path, int):
            path = None
        if name in METHODS:
            own = path is not None and not name.startswith("__") and _is_named(path)
            self.changes.append((self._line, path if own else None))
            if path is not None:
                self._note(path)
        elif name == "at" and path is not None and len(path) > 2:
            self.changes.append((self._line, None))  # `np.add.at(table, …)`
        self._row.append(None if path is None else (*path, name))

    def _constant(self, number: int) -> None:
        self._row.append(number)

    def _copy(self, number: int) -> None:
        row = self._row
        row.append(row[-number] if number <= len(row) else None)

    def _subscript(self, _: int = 0) -> None:
        key, x = self._pop(), self._pop()
        self._row.append(self._item(x, key))

    def _item(self, x: Path | int | None, key: Path | int | None) -> Path | None:
        """What a container has under a key."""
        for path in (x, key):
            self._note(path)
        if x is None or isinstance(x, int):
            return None
        if isinstance(key, int):
            return (*x, Item(self.code.co_consts[key]))
        if key is not None and key[0] != LOCAL:
            return (*x, At(key))
        self._note((*x, EVERY))
        return None

    def _slice(self, _: int) -> None:
        self._combine(2)
        self._subscript()

    def _combine(self, number: int) -> None:
        for _ in range(number):
            self._note(self._pop())
        self._row.append(None)

    def _every(self, _: int) -> None:
        x = self._pop()
        if x is not None and not isinstance(x, int):
            self._note((*x, EVERY))
            self._note(x)
        self._end()

    def _call(self, number: int) -> None:
        if NAMES_ON_STACK and self._names:
            names = self._pop()
            self._names = (
                len(self.code.co_consts[names]) if isinstance(names, int) else 0
            )
        args = [self._pop() for _ in range(number)][::-1]
        function, result = self._pop(), None
        paths = [
            None if isinstance(a, int) else a for a in args[: number - self._names]
        ]
        self._names = 0
        if function is not None and not isinstance(function, int):
            result = self._called(function, args, paths)
        for path in (function, *args):
            self._note(path)
        self._row.append(result)

    def _called(
        self, function: Path, args: list[Any], paths: list[Path | None]
    ) -> Path | None:
        """What comes of a call, if that is a path."""
        name, owner = function[-1], function[:-1]
        if len(function) > 2:
            if name == "get" and args:
                return self._item(owner, args[0])
            if name in WHOLE_METHODS:
                self._note((*owner, EVERY))
                return None
        elif name == "getattr" and len(args) > 1 and paths[0] is not None:
            if isinstance(args[1], int):
                return (*paths[0], self.code.co_consts[args[1]])
            if args[1] is not None and args[1][0] != LOCAL:
                return (*paths[0], At(args[1], True))
        elif function[0] == GLOBAL and (name in LOOKERS or name == "len"):
            for path in paths:
                if path is not None:
                    self._note((*path, LENGTH if name == "len" else EVERY))
            return None
        if any(paths):
            self.calls[Call(function, tuple(paths))] = None
        return None

    def _truth(self, _: int) -> None:
        """A container is true if it has items."""
        x = self._row[-1] if self._row else None
        if x is not None and not isinstance(x, int) and (x[0] != LOCAL or len(x) > 2):
            self._note((*x, LENGTH))
        self._end()

    def _asks(self, _: int) -> None:
        self.asks = True
        x, key = self._pop(), self._pop()
        if (item := self._item(x, key)) is not None:
            self._note(item)
        self._end()

    def _leave_own(self) -> None:
        """What the code itself changes, as caches do, is no variable of it as a
        whole."""
        changed = {root for _, root in self.changes if root is not None}
        lines = {line for line, root in self.changes if root is None}
        changed.update(*(self.on_line.get(line, ()) for line in lines))
        for path in [*self.paths]:
            if path[-1] in (EVERY, LENGTH) and path[:-1] in changed:
                del self.paths[path]

    # What is read, bound, or changed

    def _take(self, kind: str, number: int) -> None:
        names = self.code.co_names
        if kind == "variable":
            variable = self._variable(number)
            self._row.append(self._same.get(variable, variable))
        elif kind == "local":
            self._load(number)
        elif kind == "global":
            self._row.append((GLOBAL, names[number >> 1]))
        elif kind == "two locals":
            for place in (number >> 4, number & 15):
                self._load(place)
        elif kind == "name":
            self._row.append((GLOBAL, names[number]))
        elif kind == "names":
            known = self.code.co_consts[number]
            self._names = len(known)
        elif kind == "store":
            value = self._row[-1] if self._row else None
            self._end()
            self._bind(self._variable(number), value)
        else:
            self._change(kind, number)

    def _change(self, kind: str, number: int) -> None:
        if kind == "binary":
            if number < IN_PLACE:
                self._combine(2)
                return
            self._end()
            on_line = self.on_line.get(self._line, ())
            if any(p[0] != LOCAL for p in on_line):
                self.changes.append((self._line, None))
            return
        self._end()
        if kind == "store global":
            self._store((GLOBAL, self.code.co_names[number]))
        elif kind == "store cell":
            variable = self._variable(number)
            if variable[0] == CELL:
                self._store(variable)
        elif kind == "change":
            self.changes.append((self._line, None))

    def _load(self, number: int) -> None:
        variable = self._variable(number)
        # From Python 3.13 on a cell that a function within gets is loaded so, unread.
        known = variable[0] == LOCAL
        self._row.append(self._same.get(variable, variable) if known else None)

    def _variable(self, number: int) -> Path:
        name = self._variables[number]
        return (CELL if name in self._free else LOCAL), name

    def _bind(self, variable: Path, value: Path | int | None) -> None:
        """What a local variable stands for, where it is another name."""
        self._same.pop(variable, None)
        if value is None or isinstance(value, int) or value[0] == LOCAL:
            return
        self._same[variable] = value

    def _store(self, variable: Path) -> None:
        # What `x += 1` does in place.
        self.changes.append((self._line, variable))
        self.stores.append((self._line, variable, variable in self.paths))

    def _pop(self) -> Any:
        return self._row.pop() if self._row else None

    def _end(self) -> None:
        """What is on the stack is used in ways of which nothing is known."""
        for path in self._row:
            self._note(path)
        self._row.clear()

    def _note(self, path: Path | int | None) -> None:
        if path is None or isinstance(path, int):
            return
        if path not in self.paths:
            self.paths[path] = self._line
        if len(path) > 2 and not _is_named(path):
            return  # What may be changed on this line is what has the item.
        if path[-1] in FUNCTIONS and path[0] != LOCAL:
            self.changes.append((self._line, None))
            return
        on_line = self.on_line.get(self._line)
        if on_line is None:
            on_line = self.on_line[self._line] = {}
        on_line[path] = None


def _is_named(path: Path) -> bool:
    """Whether a path has attributes only."""
    for step in path:  # noqa: SIM110 (a third of the time)
        if type(step) is not str:
            return False
    return True


_HANDLERS: dict[str, Any] = {
    "attribute": _Reader._attribute,
    "constant": _Reader._constant,
    "subscript": _Reader._subscript,
    "slice": _Reader._slice,
    "combine": _Reader._combine,
    # Who formats may get a format, too.
    "combine 1": lambda reader, number: reader._combine(2 if number & 4 else 1),
    "copy": _Reader._copy,
    "every": _Reader._every,
    "call": _Reader._call,
    "asks": _Reader._asks,
    "truth": _Reader._truth,
}


_known: dict[int, Reads] = {}


def reads(code: CodeType) -> Reads:
    """What code reads and changes, with the functions that are defined in it."""
    found = _known.get(id(code))
    if found is None or found.code is not code:
        found = _known[id(code)] = _read(code)
    return found


def _read(code: CodeType) -> Reads:
    reader = _Reader(code)
    reader.read()
    file = code.co_filename
    own = frozenset([id(code)])
    paths = {
        path: Read(path, f"{file}:{line}", own)
        for path, line in reader.paths.items()
        if path[0] != LOCAL or len(path) > 2
    }
    stores = [Store(f"{file}:{n}", v, asks) for n, v, asks in reader.stores]
    calls = reader.calls
    changes = []
    for line, root in reader.changes:
        roots = [root] if root else list(reader.on_line.get(line, ()))
        changes.append(Change(f"{file}:{line}", tuple(roots), reader.asks))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add(code, reads(constant), paths, stores, changes, calls)
        elif type(constant) is tuple and "out" in constant:
            every = tuple(path for on in reader.on_line.values() for path in on)
            changes.append(Change(f"{file}:{code.co_firstlineno}", every, False))
    outside = [read for path, read in paths.items() if path[0] != LOCAL]
    inside: dict[str, list[Read]] = {}
    for path, read in paths.items():
        if path[0] == LOCAL and len(path) > 2:
            inside.setdefault(path[1], []).append(read)
    return Reads(
        code, tuple(outside), inside, tuple(stores), tuple(changes), tuple(calls)
    )


def _add(
    code: CodeType,
    inner: Reads,
    paths: dict[Path, Read],
    stores: list[Store],
    changes: list[Change],
    calls: dict[Call, None],
) -> None:
    """Adds what a function does that is defined in `code`. The variables that it shares
    with `code` alone are locals there."""
    free = {*code.co_freevars}

    def outer(path: Path) -> Path | None:
        if path[0] == LOCAL:
            return None
        if path[0] == GLOBAL or path[1] in free:
            return path
        return (LOCAL, *path[1:])

    for path, source, readers in inner.outside:
        seen = outer(path)
        if seen is not None:
            _, first, others = paths.get(seen, (path, source, readers))
            paths[seen] = Read(seen, first, readers | others)
    stores += [s for s in inner.stores if outer(s.variable) == s.variable]
    for change in inner.changes:
        roots = [p for r in change.roots if (p := outer(r)) is not None]
        changes.append(change._replace(roots=tuple(roots)))
    for call in inner.calls:
        if (function := outer(call.function)) is not None:
            args = tuple(None if a is None else outer(a) for a in call.args)
            calls[Call(function, args)] = None

"""What code reads besides its arguments, and where it may change something in place.

That is read off the instructions once for each code object, so that what is done for
each trace is little: looking up a few names.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType
from typing import NamedTuple

Path = tuple[str, ...]
"""Where a variable is (`GLOBAL`, `CELL`, `LOCAL`), its name, then attributes, and keys
of dicts, which begin with `KEY`."""

GLOBAL, CELL, LOCAL = "global", "cell", "local"
KEY = "["


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


class Reads(NamedTuple):
    """Of code, and of the functions that are defined in it.

    outside: what it reads from outside; own: of its own variables, by their names.
    """

    code: CodeType
    outside: tuple[Read, ...]
    own: dict[str, list[Read]]
    stores: tuple[Store, ...]
    changes: tuple[Change, ...]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_METHODS = _words(
    "append appendleft extend extendleft insert pop popleft popitem remove clear sort "
    "reverse rotate update add discard setdefault subtract move_to_end fill put "
    "itemset partition resize intersection_update difference_update setflags "
    "symmetric_difference_update __setitem__ __delitem__ __setattr__"
)
_FUNCTIONS = _words(
    "setattr delattr next heappush heappop heapify heapreplace heappushpop insort "
    "insort_left insort_right shuffle copyto place putmask fill_diagonal "
    "put_along_axis setitem delitem iadd"
)
# What instructions mean here. (All others end a path.)
_KINDS = {
    "CACHE": "skip",
    "COPY": "skip",
    "NOP": "skip",
    "PUSH_NULL": "skip",
    "PRECALL": "skip",
    "EXTENDED_ARG": "extended",
    "LOAD_GLOBAL": "global",
    "LOAD_NAME": "name",
    "LOAD_FROM_DICT_OR_GLOBALS": "name",
    "LOAD_FAST": "local",
    "LOAD_FAST_CHECK": "local",
    "LOAD_FAST_BORROW": "local",
    "LOAD_DEREF": "variable",
    "LOAD_CLASSDEREF": "variable",
    "LOAD_FROM_DICT_OR_DEREF": "variable",
    "LOAD_FAST_LOAD_FAST": "two locals",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "two locals",
    "LOAD_ATTR": "attribute",
    "LOAD_METHOD": "attribute",
    "LOAD_CONST": "constant",
    "BINARY_SUBSCR": "subscript",
    "STORE_FAST": "store",
    "BINARY_OP": "binary",
    "STORE_GLOBAL": "store global",
    "STORE_DEREF": "store cell",
    "STORE_SUBSCR": "change",
    "STORE_SLICE": "change",
    "STORE_ATTR": "change",
    "DELETE_SUBSCR": "change",
    "DELETE_ATTR": "change",
    "CONTAINS_OP": "asks",
}
_KIND = [_KINDS.get(name, "") for name in dis.opname]
# From this number on binary operations are `+=` and the like.
_IN_PLACE = 13
# The lowest bit of some numbers of names says something else.
_SHIFT = 1 if sys.version_info >= (3, 12) else 0


class _Reader:
    """Reads instructions in their order, and puts paths together."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.paths: dict[Path, int] = {}
        self.stores: list[tuple[int, Path, bool]] = []
        self.changes: list[tuple[int, Path | None]] = []
        self.on_line: dict[int, dict[Path, None]] = {}
        self.asks = "KeyError" in code.co_names or "get" in code.co_names
        self._path: Path | None = None
        self._key = ""  # A string after the path, which may be a key.
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
        for i, kind in enumerate([_KIND[n] for n in code[::2]]):
            if kind == "skip":
                continue
            if not kind:
                if self._path is not None:
                    self._end()
                extended = 0
                continue
            number, extended = code[2 * i + 1] | extended, 0
            if kind == "extended":
                extended = number << 8
                continue
            if kind == "attribute":
                self._extend(self.code.co_names[number >> _SHIFT])
                continue
            if kind == "constant":
                self._constant(self.code.co_consts[number])
                continue
            if kind == "subscript":
                self._subscript()
                continue
            stored = self._path if kind == "store" else None
            if self._path is not None:
                self._end()
            if kind == "store":
                self._bind(self._variable(number), stored)
                continue
            while 2 * i >= following:
                at += 1
                _, following, line = lines[at]
                self._line = line or self._line
            self._take(kind, number)
        self._end()

    def _take(self, kind: str, number: int) -> None:
        names = self.code.co_names
        if kind == "variable":
            variable = self._variable(number)
            self._path = self._same.get(variable, variable)
        elif kind == "local":
            self._load(number)
        elif kind == "global":
            self._path = GLOBAL, names[number >> 1]
        elif kind == "two locals":
            for place in (number >> 4, number & 15):
                self._end()
                self._load(place)
        elif kind == "name":
            self._path = GLOBAL, names[number]
        elif kind == "store global":
            self._store((GLOBAL, names[number]))
        elif kind == "store cell":
            variable = self._variable(number)
            if variable[0] == CELL:
                self._store(variable)
        elif kind == "change":
            self.changes.append((self._line, None))
        elif kind == "binary":
            on_line = self.on_line.get(self._line, ())
            if number >= _IN_PLACE and any(p[0] != LOCAL for p in on_line):
                self.changes.append((self._line, None))
        elif kind == "asks":
            self.asks = True

    def _load(self, number: int) -> None:
        variable = self._variable(number)
        # From Python 3.13 on a cell that a function within gets is loaded so, unread.
        if variable[0] == LOCAL:
            self._path = self._same.get(variable, variable)

    def _variable(self, number: int) -> Path:
        name = self._variables[number]
        return (CELL if name in self._free else LOCAL), name

    def _bind(self, variable: Path, value: Path | None) -> None:
        """What a local variable stands for, where it is another name."""
        self._same.pop(variable, None)
        if value is None or value[-1].startswith(KEY):
            return
        if value[0] != LOCAL:
            self._same[variable] = value

    def _store(self, variable: Path) -> None:
        # What `x += 1` does in place.
        self.changes.append((self._line, variable))
        self.stores.append((self._line, variable, variable in self.paths))

    def _constant(self, value: object) -> None:
        if self._path is None or self._key or type(value) is not str:
            self._end()
        else:
            self._key = value

    def _subscript(self) -> None:
        path, key = self._path, self._key
        self._end()
        if path is not None and key:
            self._path = (*path, KEY + key)

    def _extend(self, attribute: str) -> None:
        if self._key:
            self._end()
        path = self._path
        if path is not None and path[-1].startswith(KEY):
            # Of what an item holds, no more is known than of what a call returns.
            self._end()
            path = None
        if attribute in _METHODS:
            own = not attribute.startswith("__")
            self.changes.append((self._line, path if own else None))
        elif attribute == "at" and path is not None and len(path) > 2:
            self.changes.append((self._line, None))  # `np.add.at(table, …)`
        if path is not None:
            self._path = (*path, attribute)

    def _end(self) -> None:
        path, self._path, self._key = self._path, None, ""
        if path is None:
            return
        self.paths.setdefault(path, self._line)
        if path[-1].startswith(KEY):
            return  # What may be changed on this line is the dict, noted by itself.
        if path[-1] in _FUNCTIONS and path[0] != LOCAL:
            self.changes.append((self._line, None))
        else:
            self.on_line.setdefault(self._line, {})[path] = None


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
    paths = {p: Read(p, f"{file}:{line}", own) for p, line in reader.paths.items()}
    stores = [Store(f"{file}:{n}", v, asks) for n, v, asks in reader.stores]
    changes = []
    for line, root in reader.changes:
        roots = [root] if root else list(reader.on_line.get(line, ()))
        changes.append(Change(f"{file}:{line}", tuple(roots), reader.asks))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add(code, reads(constant), paths, stores, changes)
        elif type(constant) is tuple and "out" in constant:
            every = tuple(path for on in reader.on_line.values() for path in on)
            changes.append(Change(f"{file}:{code.co_firstlineno}", every, False))
    outside = [read for path, read in paths.items() if path[0] != LOCAL]
    inside: dict[str, list[Read]] = {}
    for path, read in paths.items():
        if path[0] == LOCAL and len(path) > 2:
            inside.setdefault(path[1], []).append(read)
    return Reads(code, tuple(outside), inside, tuple(stores), tuple(changes))


def _add(
    code: CodeType,
    inner: Reads,
    paths: dict[Path, Read],
    stores: list[Store],
    changes: list[Change],
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

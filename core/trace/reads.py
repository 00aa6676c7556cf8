"""What code reads besides its arguments, and where it may change something in place.

That is read off the instructions once for each code object, so that what is done for
each trace is little: looking up a few names.
"""

from __future__ import annotations

from types import CodeType
from typing import Any, NamedTuple

from treadle.trace.paths import GLOBAL, LOCAL, MODULE, Path
from treadle.trace.reader import Call, Reader


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
    that read it.

    whole: whether what is there may be looked at as a whole; if it is False, only
      whether it is empty; None if neither.
    """

    path: Path
    source: str
    readers: frozenset[int]
    whole: bool | None = None


class Reads(NamedTuple):
    """Of code, and of the functions that are defined in it.

    outside: what it reads from outside; own: of its own variables, by their names.
    calls: of what is known by its path, with something that is, too.
    returns: the paths of what it may give back.
    """

    code: CodeType
    outside: tuple[Read, ...]
    own: dict[str, list[Read]]
    stores: tuple[Store, ...]
    changes: tuple[Change, ...]
    calls: tuple[Call, ...]
    returns: tuple[Path, ...]


_known: dict[int, Reads] = {}


def reads(code: CodeType) -> Reads:
    """What code reads and changes, with the functions that are defined in it."""
    found = _known.get(id(code))
    if found is None or found.code is not code:
        found = _known[id(code)] = _read(code)
    return found


def _read(code: CodeType) -> Reads:
    reader = Reader(code)
    reader.read()
    file = code.co_filename
    own = frozenset([id(code)])
    paths = {
        path: Read(path, f"{file}:{line}", own, reader.whole.get(path))
        for path, line in reader.paths.items()
        if path[0] != LOCAL or len(path) > 2 or path in reader.whole
    }
    stores = [Store(f"{file}:{n}", v, asks) for n, v, asks in reader.stores]
    calls = reader.calls
    changes = []
    for line, root in reader.changes:
        roots = [root] if root else list(reader.on_line.get(line, ()))
        changes.append(Change(f"{file}:{line}", tuple(roots), reader.asks))
    inside: dict[str, list[Read]] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add(code, reads(constant), paths, stores, changes, calls)
            for name, of_local in reads(constant).own.items():
                long = [read for read in of_local if len(read.path) > 2]
                inside.setdefault(f"<{name}", []).extend(long)
        elif type(constant) is tuple and "out" in constant:
            every = tuple(path for on in reader.on_line.values() for path in on)
            changes.append(Change(f"{file}:{code.co_firstlineno}", every, False))
    outside = [read for path, read in paths.items() if path[0] != LOCAL]
    for path, read in paths.items():
        if path[0] == LOCAL:
            inside.setdefault(path[1], []).append(read)
    return Reads(
        code,
        tuple(outside),
        inside,
        tuple(stores),
        tuple(changes),
        tuple(calls.values()),
        tuple(reader.returns),
    )


def _add(
    code: CodeType,
    inner: Reads,
    paths: dict[Path, Read],
    stores: list[Store],
    changes: list[Change],
    calls: dict[tuple[Any, ...], Call],
) -> None:
    """Adds what a function does that is defined in `code`. The variables that it shares
    with `code` alone are locals there."""
    free = {*code.co_freevars}

    def outer(path: Path) -> Path | None:
        if path[0] == LOCAL:
            return None
        if path[0] in (GLOBAL, MODULE) or path[1] in free:
            return path
        return (LOCAL, *path[1:])

    for read in inner.outside:
        seen = outer(read.path)
        if seen is not None:
            known = paths.get(seen, read)
            whole = known.whole if read.whole is None else read.whole or known.whole
            readers = read.readers | known.readers
            paths[seen] = Read(seen, known.source, readers, whole)
    stores += [s for s in inner.stores if outer(s.variable) == s.variable]
    for change in inner.changes:
        roots = [p for r in change.roots if (p := outer(r)) is not None]
        changes.append(change._replace(roots=tuple(roots)))
    for call in inner.calls:
        if (function := outer(call.function)) is not None:
            args = tuple(None if a is None else outer(a) for a in call.args)
            calls[function, args, call.names] = Call(function, args, *call[2:])

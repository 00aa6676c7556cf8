"""Reads the instructions of code, one by one: which paths they read, change, call and
give back."""

from __future__ import annotations

import builtins
from types import CodeType
from typing import Any, NamedTuple

from treadle.trace.instructions import (
    ASIDE,
    IN_PLACE,
    KIND,
    LOOKERS,
    METHODS,
    SHIFT,
    STORES,
    WHOLE_FUNCTIONS,
    WHOLE_METHODS,
)
from treadle.trace.paths import (
    CELL,
    EVERY,
    GLOBAL,
    LENGTH,
    LOCAL,
    MODULE,
    NAMESPACE,
    RESULT,
    At,
    Item,
    Path,
)
from treadle.trace.stack import Stack, is_named


class Call(NamedTuple):
    """A call, with the paths that are its arguments; None for other ones.

    names: of the last ones. line: where it is.
    """

    function: Path
    args: tuple[Path | None, ...]
    names: tuple[str, ...]
    line: int


class Reader(Stack):
    """Reads instructions in their order, and puts paths together.

    Nothing is known across jumps. returns: what the code gives back.
    """

    def __init__(self, code: CodeType) -> None:
        super().__init__()
        self.code = code
        self.returns: dict[Path, None] = {}
        self.stores: list[tuple[int, Path, bool]] = []
        self.calls: dict[tuple[Any, ...], Call] = {}
        self.asks = "KeyError" in code.co_names or "get" in code.co_names
        self._names = 0  # of the arguments of the next call
        self._same: dict[Path, Path] = {}
        self._targets: set[int] = set()
        self._at = 0
        self._free = {*code.co_freevars}
        inner = [name for name in code.co_cellvars if name not in code.co_varnames]
        self._variables = (*code.co_varnames, *inner, *code.co_freevars)
        self._first = code.co_varnames[:1] if code.co_argcount else ()
        # Arguments, and variables that are bound more than once, are no other names.
        several = code.co_argcount + code.co_kwonlyargcount
        bound = [*range(several)]
        ops = code.co_code
        for opcode, n in zip(ops[::2], ops[1::2], strict=True):
            if opcode in STORES:
                bound += (n,) if STORES[opcode] else (n >> 4, n & 15)
        self._many = {n for n in bound if bound.count(n) > 1 or n < several}

    def read(self) -> None:
        """Goes through the code."""
        code = self.code.co_code
        lines = [*self.code.co_lines()]
        at, (_, following, line) = 0, lines[0]
        self._line = line or self.code.co_firstlineno
        extended = 0
        targets = self._targets
        for i, handle in enumerate([_BY_NUMBER[n] for n in code[::2]]):
            if targets and i in targets:
                self._end()
            if handle is None:
                continue
            if handle is _unknown:
                if self._row:
                    self._end()
                extended = 0
                continue
            self._at = i
            number, extended = code[2 * i + 1] | extended, 0
            if handle is _extended:
                extended = number << 8
                continue
            while 2 * i >= following:
                at += 1
                _, following, line = lines[at]
                self._line = line or self._line
            handle(self, number)
        self._end()
        self._leave_own()

    # What makes paths longer, and what uses them

    def _attribute(self, number: int) -> None:
        name = self.code.co_names[number >> SHIFT]
        owner = self._pop()
        path = None if isinstance(owner, int) else owner
        if name in METHODS:
            own = path is not None and not name.startswith("__") and is_named(path)
            self.changes.append((self._line, path if own else None))
            if path is not None:
                self._note(path)
        elif name == "at" and path is not None and len(path) > 2 and is_named(path):
            self.changes.append((self._line, None))  # `np.add.at(table, …)`
        if owner is None:
            path = _SOME
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
        if key is not None and key[0] != LOCAL and key[-1] is not RESULT:
            return (*x, At(key))
        self._note((*x, EVERY))
        return None

    def _slice(self, _: int) -> None:
        self._combine(2)
        self._subscript()

    def _combine(self, number: int) -> None:
        for _ in range(number):
            self._use(self._pop())
        self._row.append(None)

    def _is(self, _: int) -> None:
        for _ in range(2):
            self._note(self._pop())
        self._row.append(None)

    def _not(self, _: int) -> None:
        self._use(self._pop(), every=False)
        self._row.append(None)

    def _test(self, number: int) -> None:
        self._use(self._pop(), every=False)
        self._jump(number)

    def _is_none(self, number: int) -> None:
        self._note(self._pop())
        self._jump(number)

    def _jump(self, number: int) -> None:
        self._end()
        # From Python 3.13 on another word may follow the instruction.
        self._targets |= {self._at + 1 + number, self._at + 2 + number}

    def _return(self, _: int) -> None:
        path = self._pop()
        if path is not None and not isinstance(path, int):
            self.returns[path] = None
            self._note(path)
        self._end()

    def _swap(self, number: int) -> None:
        row = self._row
        if number > len(row):
            self._end()
        else:
            row[-1], row[-number] = row[-number], row[-1]

    def _import(self, number: int) -> None:
        names, level = self._pop(), self._pop()
        name, known = self.code.co_names[number], self.code.co_consts
        if isinstance(names, int) and isinstance(level, int) and known[level] == 0:
            if known[names] is None:
                name = name.partition(".")[0]
            self._row.append((MODULE, name))
        else:
            self._row.append(None)

    def _import_from(self, number: int) -> None:
        module = self._row[-1] if self._row else None
        name = self.code.co_names[number]
        found = module is not None and not isinstance(module, int)
        self._row.append((*module, name) if found else None)  # type: ignore[misc]

    def _every(self, _: int) -> None:
        x = self._pop()
        if x is not None and not isinstance(x, int):
            self._note((*x, EVERY))
            self._note(x)
        self._end()

    def _call(self, number: int) -> None:
        names: tuple[str, ...] = ()
        if self._names:
            names = self.code.co_consts[self._names - 1]
        args = [self._pop() for _ in range(number)][::-1]
        function, result = self._pop(), None
        self._names = 0
        if function is not None and not isinstance(function, int):
            result = self._called(function, args, names)
        else:
            for path in args:
                self._use(path)
        for path in (function, *args):
            self._note(path)
        self._row.append(result)

    def _call_with_names(self, number: int) -> None:
        at = self._pop()
        self._names = at + 1 if isinstance(at, int) else 0
        self._call(number)

    def _super(self, number: int) -> None:
        x, name = self._pop(), self.code.co_names[number >> 2]
        for _ in range(2):
            self._note(self._pop())
        known = x is not None and not isinstance(x, int)
        self._row.append((*x, name) if known else None)

    def _called(
        self, function: Path, args: list[Any], names: tuple[str, ...]
    ) -> Path | None:
        """What comes of a call, if that is a path."""
        name, owner = function[-1], function[:-1]
        paths = tuple(None if isinstance(a, int) else a for a in args)
        if args and paths[0] is not None and name in _ATTRIBUTE:
            return self._of_object(name, paths[0], args)
        if len(function) > 2:
            if name == "__getattribute__" and args and isinstance(args[0], int):
                return (*owner, self.code.co_consts[args[0]])
            if name == "get" and args:
                return self._item(owner, args[0])
            if name in WHOLE_METHODS:
                self._note((*owner, EVERY))
                return None
        elif function[0] == GLOBAL and (name in LOOKERS or name == "len"):
            for path in paths:
                if path is not None:
                    self._note((*path, LENGTH if name == "len" else EVERY))
            return None
        elif function == _GLOBALS and not args:
            return GLOBAL, NAMESPACE
        elif function == _SUPER and not args and self._first:
            return LOCAL, self._first[0]
        if name in ASIDE:
            return None
        if any(paths):
            call = Call(function, paths, names, self._line)
            self.calls.setdefault(call[:3], call)
        outer = function[0] != LOCAL or function[1] in self._first
        plain = len(function) == 2 and name in BUILT_IN
        return (*function, RESULT) if outer and not plain else None

    def _of_object(self, name: str, x: Path, args: list[Any]) -> Path | None:
        """What a built-in function gives that looks at attributes."""
        if name in WHOLE_FUNCTIONS:
            if x[0] != LOCAL or len(x) == 2:
                self._note((*x, EVERY))
            return None
        if len(args) < 2:
            return (*x, "__dict__" if name == "vars" else "__class__")
        key = args[1]
        if isinstance(key, int):
            path = (*x, self.code.co_consts[key])
        elif key is not None and key[0] != LOCAL:
            path = (*x, At(key, True))
        else:
            self._note((*x, EVERY))
            return None
        if name == "hasattr":
            self._note(path)
            return None
        return path

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
        for _, root in self.changes:
            if root is not None:
                self.whole.pop(root, None)

    # What is read, bound, or changed

    def _free_variable(self, number: int) -> None:
        variable = self._variable(number)
        self._row.append(self._same.get(variable, variable))

    def _global(self, number: int) -> None:
        self._row.append((GLOBAL, self.code.co_names[number >> 1]))

    def _name(self, number: int) -> None:
        self._row.append((GLOBAL, self.code.co_names[number]))

    def _two_locals(self, number: int) -> None:
        self._load(number >> 4)
        self._load(number & 15)

    def _names_of_call(self, number: int) -> None:
        self._names = number + 1

    def _bind_two(self, number: int) -> None:
        self._bind(number >> 4)
        self._bind(number & 15)

    def _bind_and_load(self, number: int) -> None:
        self._bind(number >> 4)
        self._load(number & 15)

    def _binary(self, number: int) -> None:
        if number < IN_PLACE:
            self._combine(2)
            return
        value, x = self._pop(), self._pop()
        self._use(value)
        self._note(x)
        self._row.append(None)
        on_line = self.on_line.get(self._line, ())
        if any(p[0] != LOCAL for p in on_line):
            self.changes.append((self._line, None))

    def _change(self, number: int) -> None:
        """number: how much of the stack is the place that is changed."""
        for _ in range(number):
            self._note(self._pop())
        self._end()
        self.changes.append((self._line, None))

    def _store_global(self, number: int) -> None:
        self._end()
        self._store((GLOBAL, self.code.co_names[number]))

    def _store_cell(self, number: int) -> None:
        self._end()
        variable = self._variable(number)
        if variable[0] == CELL:
            self._store(variable)

    def _load(self, number: int) -> None:
        variable = self._variable(number)
        # From Python 3.13 on a cell that a function within gets is loaded so, unread.
        known = variable[0] == LOCAL
        self._row.append(self._same.get(variable, variable) if known else None)

    def _variable(self, number: int) -> Path:
        name = self._variables[number]
        return (CELL if name in self._free else LOCAL), name

    def _bind(self, number: int) -> None:
        """What a local variable stands for, where it is another name."""
        variable, value = self._variable(number), self._pop()
        self._same.pop(variable, None)
        if value is None or isinstance(value, int):
            return
        if value[0] == LOCAL and value[1] not in self._first:
            self._note(value)
        elif number in self._many:
            self._use(value)
        else:
            self._note(value)
            self._same[variable] = value

    def _store(self, variable: Path) -> None:
        # What `x += 1` does in place.
        self.changes.append((self._line, variable))
        self.stores.append((self._line, variable, variable in self.paths))


def _unknown(reader: Reader, number: int) -> None:
    """What ends what is known of the stack."""


def _extended(reader: Reader, number: int) -> None:
    """What gives the next instruction a larger number."""


_HANDLERS: dict[str, Any] = {
    "attribute": Reader._attribute,
    "constant": Reader._constant,
    "subscript": Reader._subscript,
    "slice": Reader._slice,
    "combine": Reader._combine,
    # Who formats may get a format, too.
    "combine 1": lambda reader, number: reader._combine(2 if number & 4 else 1),
    "pairs": lambda reader, number: reader._combine(2 * number),
    "two": lambda reader, _: reader._combine(2),
    "copy": Reader._copy,
    "every": Reader._every,
    "call": Reader._call,
    "call with names": Reader._call_with_names,
    "super": Reader._super,
    "is": Reader._is,
    "not": Reader._not,
    "test": Reader._test,
    "is none": Reader._is_none,
    "jump": Reader._jump,
    "return": Reader._return,
    "swap": Reader._swap,
    "import": Reader._import,
    "import from": Reader._import_from,
    "asks": Reader._asks,
    "skip": None,
    "extended": _extended,
    "variable": Reader._free_variable,
    "local": Reader._load,
    "global": Reader._global,
    "name": Reader._name,
    "two locals": Reader._two_locals,
    "names": Reader._names_of_call,
    "store": Reader._bind,
    "store two": Reader._bind_two,
    "store load": Reader._bind_and_load,
    "binary": Reader._binary,
    "change": lambda reader, _: reader._change(0),
    "change attribute": lambda reader, _: reader._change(1),
    "change item": lambda reader, _: reader._change(2),
    "store global": Reader._store_global,
    "store cell": Reader._store_cell,
}
_BY_NUMBER = [_HANDLERS.get(kind, _unknown) for kind in KIND]
# Stands for whatever a function may have come by.
_SOME = (LOCAL, "<some")
_GLOBALS, _SUPER = (GLOBAL, "globals"), (GLOBAL, "super")
_ATTRIBUTE = WHOLE_FUNCTIONS | {
    *("vars", "type", "getattr", "hasattr", "__getattribute__")
}
BUILT_IN = frozenset(dir(builtins))

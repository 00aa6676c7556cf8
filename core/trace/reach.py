"""What a function can reach besides its arguments: the variables that it reads, where
it may change what they hold, and sources of values that no argument decides.

Names are looked up along the paths that `reads` found, through functions, methods,
and the user's own modules. What libraries define is left alone.
"""

from __future__ import annotations

import builtins
import datetime
from collections import deque
from collections.abc import Collection
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

from treadle.errors import is_ours
from treadle.trace.hidden import Hidden, source_of
from treadle.trace.outside import is_foreign
from treadle.trace.paths import (
    CELL,
    EVERY,
    GLOBAL,
    LENGTH,
    LOCAL,
    At,
    Item,
    Path,
    label_of,
)
from treadle.trace.reads import Call, Change, Read, Store, reads
from treadle.trace.value import Value
from treadle.trace.variables import (
    CONTAINERS,
    DICTS,
    MISSING,
    MOST_ITEMS,
    SETS,
    Variable,
    in_cell,
    item,
    items,
)

MOST_FUNCTIONS = 400


class Site(NamedTuple):
    """A line that may change an object that can be reached.

    holder: of which the object is an attribute, None if it is none.
    """

    change: Change
    label: str
    value: Any
    holder: Any


class _Like(NamedTuple):
    """Some instance of a class."""

    kind: type


class Reach:
    """What a function reaches.

    values: what the paths lead to. stores: lines that bind a variable anew. aliases:
      lines that change something in place of which no variable is from outside.
    """

    def __init__(
        self, function: Any, kinds: Collection[type] = (), own: Any = None
    ) -> None:
        """
        Args:
          kinds: classes of its arguments. own: its first argument, where that is known.
        """
        self.variables: dict[tuple[int, str], Variable] = {}
        self.values: list[tuple[Path, Any]] = []
        self.stores: list[tuple[Store, Variable]] = []
        self.sites: list[Site] = []
        self.aliases: list[Change] = []
        self.hidden: list[Hidden] = []
        self._todo: list[tuple[FunctionType, Any]] = []
        self._seen: set[tuple[int, int]] = set()
        self._passed: list[Any] = []
        self._of_locals: list[tuple[_Visit, Read]] = []
        self.functions: list[tuple[FunctionType, Any]] = []
        if own is not None and type(function) is FunctionType:
            self._visit(function, own)
        else:
            self._end(function)
        for kind in kinds:
            self._class(kind)
        while self._todo and len(self.functions) < MOST_FUNCTIONS:
            _Visit(self, *self._todo.pop()).go()
            if not self._todo:
                self._follow_locals()

    def _follow_locals(self) -> None:
        """Follows what functions read of their local variables, any of which may be one
        of the objects that were passed on."""
        for x in self._passed:
            for visit, read in self._of_locals:
                key = id(x), id(read)
                if key not in self._seen:
                    self._seen.add(key)
                    visit.follow_from(x, read)

    @property
    def changes(self) -> bool:
        """Whether anything may be changed in place."""
        return bool(self.sites or self.aliases)

    def holds(self) -> bool:
        """Whether all variables have their values still."""
        return all(v.now() is v.value for v in self.variables.values())

    def _visit(self, function: FunctionType, own: Any) -> None:
        """Notes a function that may run, once.

        own: its first argument, if that is known: an object or `_Like` one.
        """
        code = function.__code__
        if is_ours(code.co_filename):
            for cell in function.__closure__ or ():
                inner = in_cell(cell)
                if callable(inner):
                    self._end(inner)
            return
        key = id(function), id(own.kind if type(own) is _Like else own)
        if key not in self._seen and not is_foreign(function.__module__ or ""):
            self._seen.add(key)
            self.functions.append((function, own))
            self._todo.append((function, own))

    def _class(self, kind: type) -> None:
        if is_foreign(kind.__module__) or (id(kind), 0) in self._seen:
            return
        self._seen.add((id(kind), 0))
        for base in kind.__mro__:
            if base is not object and not is_foreign(base.__module__):
                for f in list(vars(base).values()):
                    f = getattr(f, "__func__", f)
                    if type(f) is FunctionType:
                        self._visit(f, _Like(kind))

    def _end(self, x: Any) -> None:
        """Follows an object that a function may call."""
        kind = type(x)
        if kind in _PLAIN or (id(x), -1) in self._seen:
            return
        self._seen.add((id(x), -1))
        if kind is FunctionType:
            self._visit(x, None)
        elif kind is MethodType:
            if type(x.__func__) is FunctionType:
                self._visit(x.__func__, x.__self__)
        elif isinstance(x, type):
            self._class(x)
        elif kind in (list, tuple, dict):
            items = x.values() if kind is dict else x
            for _, item in zip(range(MOST_ITEMS), items, strict=False):
                self._end(item)
        elif kind is partial:
            self._end([x.func, *x.args, *x.keywords.values()])
        elif isinstance(x, Value | ModuleType | BuiltinFunctionType | _Like):
            return
        elif not is_foreign(kind.__module__) or kind.__module__ in _NAMESPACES:
            self._passed.append(x)
            for base in kind.__mro__[:-1]:
                for name, f in list(vars(base).items()):
                    # What operators call; other methods are followed by their names.
                    if (
                        type(f) is FunctionType
                        and name[:2] == "__"
                        and name not in _ASIDE
                    ):
                        self._visit(f, x)
        elif kind.__module__.startswith("treadle"):
            for item in list(getattr(x, "__dict__", {}).values()):
                if callable(item) and not isinstance(item, type):
                    self._end(item)


class _Visit:
    """Looks up what one function reads."""

    def __init__(self, reach: Reach, function: FunctionType, own: Any) -> None:
        self.reach, self.function, self.own = reach, function, own
        self.globals = function.__globals__
        self.first = function.__code__.co_varnames[:1] if own is not None else ()
        self.cells: dict[str, CellType] = {}
        if function.__closure__:
            names = function.__code__.co_freevars
            self.cells = dict(zip(names, function.__closure__, strict=True))

    def go(self) -> None:
        found = reads(self.function.__code__)
        for read in found.outside:
            self._read(read)
        for name, of_local in found.own.items():
            for read in of_local:
                if name in self.first:
                    self._read(read)
                else:
                    self.reach._of_locals.append((self, read))
        for default in _defaults(self.function):
            self.reach._end(default)
        for store in found.stores:
            path = store.variable
            holder: Any = self.globals if path[0] == GLOBAL else self.cells[path[1]]
            name = path[1] if path[0] == GLOBAL else ""
            value = self._start(path)
            variable = Variable(holder, name, value, path, store.source, frozenset())
            self.reach.stores.append((store, variable))
        for change in found.changes:
            self._change(change)
        for call in found.calls:
            if any(path and path[0] != LOCAL for path in call.args):
                self._call(call)

    def _read(self, read: Read) -> None:
        values = self._follow(read)
        if len(values) == len(read.path) - 1:
            x = values[-1]
            if type(x) not in _PLAIN:
                self.reach._end(x)
                self.reach.values.append((read.path, x))

    def _change(self, change: Change) -> None:
        reached = False
        for root in change.roots:
            values = self._follow(Read(root, change.source, frozenset()))
            if (values and type(values[-1]) not in (_Like, *_PLAIN)) or len(values) > 1:
                label = label_of(root[: len(values) + 1])
                holder = values[-2] if len(values) > 1 else None
                self.reach.sites.append(Site(change, label, values[-1], holder))
                reached = True
        if not reached:
            self.reach.aliases.append(change)

    def _start(self, path: Path) -> Any:
        kind, name = path[:2]
        if kind == GLOBAL:
            found = self.globals.get(name, MISSING)
            return vars(builtins).get(name, MISSING) if found is MISSING else found
        if kind == CELL:
            return in_cell(self.cells[name]) if name in self.cells else MISSING
        return self.own if (name,) == self.first else _default(self.function, name)

    def _follow(self, read: Read) -> list[Any]:
        """The values along a path, as far as they are known."""
        path = read.path
        x = self._start(path)
        if x is MISSING:
            return []
        if path[0] == CELL:
            self._note(self.cells[path[1]], "", x, read, 2)
        elif path[0] == GLOBAL:
            self._note(self.globals, path[1], x, read, 2)
        values = [x]
        if len(path) == 2:
            if type(x) in _CALLED:
                self._hidden(None, x, read, 2)
            return values
        return values + self._rest(x, read)

    def follow_from(self, x: Any, read: Read) -> None:
        """Follows a path of a local variable, if that may hold `x`."""
        name = read.path[2]
        if type(name) is str and (
            name in getattr(x, "__dict__", ())
            or _in_class(type(x), name) is not MISSING
        ):
            self._from(x, read)

    def _from(self, x: Any, read: Read) -> None:
        """Follows a path of a local variable that holds `x`."""
        values = self._rest(x, read)
        if len(values) == len(read.path) - 2:
            self.reach._end(values[-1])

    def _call(self, call: Call, given: str = "", x: Any = None) -> None:
        """Follows arguments into a function of the user's.

        given: the local variable that holds `x`; "" if they are from outside.
        """
        values = self._follow(Read(call.function, "", frozenset()))
        function = values[-1] if len(values) == len(call.function) - 1 else None
        shift = isinstance(function, MethodType)
        if isinstance(function, MethodType):
            function = function.__func__
        if type(function) is not FunctionType or is_foreign(function.__module__ or ""):
            return
        code = function.__code__
        names = code.co_varnames[shift : code.co_argcount]
        for name, path in zip(names, call.args, strict=False):
            own = path is not None and path[0] == LOCAL
            if path is None or own != bool(given) or (own and path[1] != given):
                continue
            read = Read(path, "", frozenset())
            values = [x, *self._rest(x, read)] if own else self._follow(read)
            if len(values) == len(path) - 1:
                self._give(function, name, values[-1])

    def _give(self, function: FunctionType, name: str, x: Any) -> None:
        """Follows what a function reads of an argument whose value is known."""
        key = id(x), id(function)
        if type(x) in _PLAIN or key in self.reach._seen:
            return
        self.reach._seen.add(key)
        visit, found = _Visit(self.reach, function, None), reads(function.__code__)
        for read in found.own.get(name, ()):
            visit._from(x, read)
        for call in found.calls:
            if any(path and path[:2] == (LOCAL, name) for path in call.args):
                visit._call(call, name, x)

    def _rest(self, x: Any, read: Read) -> list[Any]:
        """The values of the steps on a path that begins with `x`."""
        path = read.path
        values: list[Any] = []
        for i, step in enumerate(path[2:], 3):
            if type(step) is not str:
                nxt = self._step(x, step, read, i)
            elif type(x) is ModuleType:
                nxt = self._of_module(x, step, read, i)
            else:
                library, nxt = self._attribute(x, step, read, i)
                if library:
                    self._hidden(x, nxt, read, i)
            if nxt is MISSING:
                return values
            x = nxt
            values.append(x)
        return values

    def _of_module(self, x: ModuleType, name: str, read: Read, i: int) -> Any:
        library = is_foreign(x.__name__)
        if library and x.__name__.partition(".")[0] not in _SUSPECTS:
            return MISSING
        value = vars(x).get(name, MISSING)
        if value is MISSING and name == "random":
            value = getattr(x, name, MISSING)  # NumPy loads it when it is asked.
        if library:
            self._hidden(x, value, read, i)
        elif value is not MISSING:
            self._note(vars(x), name, value, read, i)
        return value

    def _step(self, x: Any, step: Any, read: Read, i: int) -> Any:
        """What there is in a container; notes it."""
        path = read.path[:i]
        if type(step) is At:
            found = self._follow(Read(step.path, read.source, read.readers))
            if len(found) != len(step.path) - 1:
                return MISSING
            if step.attribute:
                known = type(found[-1]) is str
                return self._attribute(x, found[-1], read, i)[1] if known else MISSING
            step, path = Item(found[-1]), (*path[:-1], Item(found[-1]))
        if type(x) not in CONTAINERS:
            return MISSING
        if step is EVERY or step is LENGTH or type(x) in SETS:
            for holder, name, value, on in items(x, path[:-1]):
                if step is EVERY or type(x) in SETS or (name is LENGTH and holder is x):
                    self._note_as(holder, name, value, on, read)
            return MISSING
        try:
            value = item(x, step.key)
            if type(x) in DICTS or (type(x) in _MUTABLE and value is not MISSING):
                self._note_as(x, step.key, value, path, read)
        except TypeError:  # a key without a hash
            return MISSING
        return value

    def _attribute(self, x: Any, name: str, read: Read, i: int) -> tuple[bool, Any]:
        """Whether an object is a library's; and its attribute."""
        kind = x if isinstance(x, type) else type(x)
        if type(x) is _Like:
            kind = x.kind
        elif is_foreign(kind.__module__) and kind.__module__ not in _NAMESPACES:
            if isinstance(x, type) and issubclass(x, datetime.date):
                return True, getattr(x, name, MISSING)
            return True, MISSING
        else:
            fields = getattr(x, "__dict__", None)
            if type(fields) is dict and name in fields:
                self._note(fields, name, fields[name], read, i)
                return False, fields[name]
            if isinstance(x, tuple) and name in getattr(kind, "_fields", ()):
                return False, getattr(x, name)
        found = _in_class(kind, name)
        function = _function_of(found)
        if type(function) is FunctionType:
            own = None if isinstance(x, type) else x
            if type(found) is classmethod:
                own = kind
            self.reach._visit(function, own)
            return False, MISSING
        if type(found) is MemberDescriptorType and not isinstance(x, type | _Like):
            value = getattr(x, name, MISSING)
            self._note(x, name, value, read, i)
            return False, value
        if found is not MISSING and not hasattr(type(found), "__get__"):
            self._note(kind, name, found, read, i)
            return False, found
        return False, MISSING

    def _note(self, holder: Any, name: str, value: Any, read: Read, i: int) -> None:
        """Notes the variable that the first `i` parts of a path are."""
        self._note_as(holder, name, value, read.path[:i], read)

    def _note_as(
        self, holder: Any, name: Any, value: Any, path: Path, read: Read
    ) -> None:
        key = id(holder), name
        known = self.reach.variables.get(key)
        if known is None:
            self.reach.variables[key] = Variable(
                holder, name, value, path, read.source, read.readers
            )
        elif not read.readers <= known.readers:
            readers = known.readers | read.readers
            self.reach.variables[key] = known._replace(readers=readers)

    def _hidden(self, owner: Any, x: Any, read: Read, i: int) -> None:
        """Notes a source of numbers or times."""
        kind, generator = source_of(owner, x)
        if kind:
            call = f"{label_of(read.path[:i])}()"
            self.reach.hidden.append(Hidden(kind, call, read.source, generator, x))


_PLAIN = frozenset(
    (str, bytes, int, float, complex, bool, type(None), type(...), range, slice)
)

# Special methods that what is computed does not depend on, or hardly ever.
_ASIDE_NAMES = (
    "__init__ __new__ __post_init__ __repr__ __str__ __format__ __eq__ __ne__ __hash__ "
    "__getstate__ __setstate__ __reduce__ __reduce_ex__ __copy__ __deepcopy__ __del__"
)
_ASIDE = frozenset(_ASIDE_NAMES.split())
# Modules of classes whose objects hold nothing but the user's variables.
_NAMESPACES = frozenset(("types", "argparse"))
_MUTABLE = frozenset((list, deque))
_CALLED = frozenset((BuiltinFunctionType, MethodType, FunctionType))
_SUSPECTS = frozenset(("time", "datetime", "random", "os", "uuid", "secrets", "numpy"))


def _in_class(kind: type, name: str) -> Any:
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def _function_of(found: Any) -> Any:
    """What runs when an attribute is read or called that lies in a class."""
    if isinstance(found, property):
        return found.fget
    if isinstance(found, classmethod | staticmethod | MethodType):
        return found.__func__
    return found


def _default(function: FunctionType, name: str) -> Any:
    """The value that an argument has if it is not given."""
    if function.__kwdefaults__ and name in function.__kwdefaults__:
        return function.__kwdefaults__[name]
    if not function.__defaults__:
        return MISSING
    code, values = function.__code__, function.__defaults__
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(values) :]
    return values[names.index(name)] if name in names else MISSING


def _defaults(function: FunctionType) -> list[Any]:
    return [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]

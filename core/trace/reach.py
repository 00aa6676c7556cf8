"""What a function can reach besides its arguments: the variables that it reads, where
it may change what they hold, and sources of values that no argument decides.

Names are looked up along the paths that `reads` found, through functions, methods,
and the user's own modules. What libraries define is left alone.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from inspect import CO_VARARGS
from operator import attrgetter, methodcaller
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from treadle.errors import is_ours
from treadle.trace.follow import (
    NAMESPACES,
    Follower,
    Like,
    Noted,
    default_of,
    defaults_of,
    in_class,
)
from treadle.trace.outside import is_foreign
from treadle.trace.paths import GLOBAL, LOCAL, Item, Path, label_of
from treadle.trace.reader import Call
from treadle.trace.reads import Change, Read, Store, reads
from treadle.trace.value import Value
from treadle.trace.variables import (
    MISSING,
    MOST_ITEMS,
    Variable,
    in_cell,
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


class Reach(Noted):
    """What a function reaches.

    root: the function. values: what the paths lead to. stores: lines that bind a
      variable anew. aliases: lines that change something in place of which no variable
      is from outside.
    """

    def __init__(
        self, function: Any, kinds: Collection[type] = (), own: Any = None
    ) -> None:
        """
        Args:
          kinds: classes of its arguments. own: its first argument, where that is known.
        """
        super().__init__()
        self.root = getattr(function, "__func__", function)
        self.values: list[tuple[Path, Any]] = []
        self.stores: list[tuple[Store, Variable]] = []
        self.sites: list[Site] = []
        self.aliases: list[Change] = []
        self._todo: list[tuple[FunctionType, Any]] = []
        self._seen: set[tuple[Any, ...]] = set()
        self._given: list[Any] = []
        self._passed: list[Any] = []
        self._of_locals: list[tuple[_Visit, Read]] = []
        self.functions: list[tuple[FunctionType, Any]] = []
        if own is not None and type(function) is FunctionType:
            self.visit(function, own)
        else:
            self.end(function)
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

    def visit(self, function: FunctionType, own: Any) -> None:
        """Notes a function that may run, once."""
        code = function.__code__
        if is_ours(code.co_filename):
            for cell in function.__closure__ or ():
                inner = in_cell(cell)
                if callable(inner):
                    self.end(inner)
            return
        wrapped = function.__dict__.get("__wrapped__")
        if wrapped is not None:
            self.end(wrapped)
        key = id(function), id(own.kind if type(own) is Like else own)
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
                        self.visit(f, Like(kind))

    def end(self, x: Any) -> None:
        """Follows an object that a function may call."""
        kind = type(x)
        if kind in _PLAIN or (id(x), -1) in self._seen:
            return
        self._seen.add((id(x), -1))
        if kind is FunctionType:
            self.visit(x, None)
        elif kind is MethodType:
            if type(x.__func__) is FunctionType:
                self.visit(x.__func__, x.__self__)
        elif isinstance(x, type):
            self._class(x)
        elif kind in (list, tuple, dict):
            items = x.values() if kind is dict else x
            for _, item in zip(range(MOST_ITEMS), items, strict=False):
                self.end(item)
        elif kind is partial:
            self.end([x.func, *x.args, *x.keywords.values()])
            self._partial(x)
        elif isinstance(x, Value | ModuleType | BuiltinFunctionType | Like):
            return
        elif not is_foreign(kind.__module__) or kind.__module__ in NAMESPACES:
            self._passed.append(x)
            for base in kind.__mro__[:-1]:
                for name, f in list(vars(base).items()):
                    # What operators call; other methods are followed by their names.
                    if (
                        type(f) is FunctionType
                        and name[:2] == "__"
                        and name not in _ASIDE
                    ):
                        self.visit(f, x)
                        if name == "__call__":
                            on = (GLOBAL, base.__name__, name)
                            code = f.__code__
                            line = f"{code.co_filename}:{code.co_firstlineno}"
                            where = Read(on, line, frozenset([id(code)]))
                            self.note(kind, name, f, on, where)
        elif kind.__module__.startswith("treadle"):
            for item in list(getattr(x, "__dict__", {}).values()):
                if callable(item) and not isinstance(item, type):
                    self.end(item)

    def _partial(self, x: partial) -> None:
        """Follows the arguments that are given to a function beforehand."""
        function = x.func
        if type(function) is not FunctionType or is_foreign(function.__module__ or ""):
            return
        visit = _Visit(self, function, None)
        where = visit.here(function.__code__.co_firstlineno)
        for name, value in x.keywords.items():
            on = (GLOBAL, function.__name__, "keywords", Item(name))
            self.note(x.keywords, name, value, on, where)
        values = [*x.args, *x.keywords.values()]
        for name, value in arguments(function, 0, values, tuple(x.keywords)):
            self.give(function, None, name, value)

    def give(self, function: FunctionType, own: Any, name: str, x: Any) -> None:
        """Follows what a function reads of an argument whose value is known."""
        key = id(x), id(function), name
        if type(x) in _PLAIN or key in self._seen:
            return
        self._seen.add(key)
        self._given.append(x)  # so that no other object gets its identity
        visit, found = _Visit(self, function, own), reads(function.__code__)
        for read in found.own.get(name, ()):
            visit.take(x, read)
        for call in found.calls:
            if any(path and path[:2] == (LOCAL, name) for path in call.args):
                visit.call(call, name, x)


class _Visit(Follower):
    """Looks up what one function reads."""

    def __init__(self, reach: Reach, function: FunctionType, own: Any) -> None:
        super().__init__(reach, function, own)
        self.reach = reach
        self.readers = frozenset([id(function.__code__)])
        self._known: dict[Path, Any] = {}

    def go(self) -> None:
        found = reads(self.function.__code__)
        for read in found.outside:
            self._read(read)
        for name, of_local in found.own.items():
            default = default_of(self.function, name) is not MISSING
            for read in of_local:
                if name in self.first or default:
                    self._read(read)
                elif len(read.path) > 2:
                    self.reach._of_locals.append((self, read))
        if type(self.own) is not Like:
            self._look_at_function()
        for default in defaults_of(self.function):
            self.reach.end(default)
        for store in found.stores:
            path = store.variable
            holder: Any = self.globals if path[0] == GLOBAL else self.cells[path[1]]
            name = path[1] if path[0] == GLOBAL else ""
            value = self.start(path)
            variable = Variable(holder, name, value, path, store.source, frozenset())
            self.reach.stores.append((store, variable))
        for change in found.changes:
            self._change(change)
        for call in found.calls:
            if any(path and self._is_known(path) for path in call.args):
                self.call(call)

    def here(self, line: int, path: Path = ()) -> Read:
        """As something that is read in a line of the function."""
        return Read(path, f"{self.function.__code__.co_filename}:{line}", self.readers)

    def _is_known(self, path: Path) -> bool:
        return path[0] != LOCAL or path[1] in self.first

    def _look_at_function(self) -> None:
        """Notes what the function is itself: it may be changed in place."""
        f, note = self.function, self.reach.note
        where = self.here(f.__code__.co_firstlineno)
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            value = getattr(f, name)
            # Who changes what he has compiled himself makes another of it.
            if value and not (f is self.reach.root and name == "__code__"):
                note(f, name, value, (GLOBAL, f.__name__, name), where)
        on = (GLOBAL, f.__name__, "__kwdefaults__")
        for holder, name, value, path in items(f.__kwdefaults__, on):
            note(holder, name, value, path, where)

    def _read(self, read: Read) -> None:
        values = self.follow(read)
        if len(values) == len(read.path) - 1:
            x = self._known[read.path] = values[-1]
            if type(x) is BuiltinFunctionType:
                self.whole(x, read._replace(whole=True))
            if type(x) not in _PLAIN:
                self.reach.end(x)
                self.reach.values.append((read.path, x))

    def _change(self, change: Change) -> None:
        reached = False
        for root in change.roots:
            values = self.follow(Read(root, change.source, frozenset()))
            while values and type(values[-1]) is MethodType:
                values.pop()
            if (values and type(values[-1]) not in (Like, *_PLAIN)) or len(values) > 1:
                label = label_of(root[: len(values) + 1])
                holder = values[-2] if len(values) > 1 else None
                self.reach.sites.append(Site(change, label, values[-1], holder))
                reached = True
        if not reached:
            self.reach.aliases.append(change)

    def follow_from(self, x: Any, read: Read) -> None:
        """Follows a path of a local variable, if that may hold `x`."""
        # What is among the items of a local variable may be it, too.
        steps = [i for i, step in enumerate(read.path[2:], 2) if type(step) is str]
        name = read.path[steps[0]] if steps else ""
        if name and (
            name in getattr(x, "__dict__", ()) or in_class(type(x), name) is not MISSING
        ):
            self.take(x, read, steps[0])

    def take(self, x: Any, read: Read, start: int = 2) -> None:
        """Follows a path of a local variable from the step on that takes `x`."""
        values = [x, *self.rest(x, read, start)]
        if len(values) == len(read.path) - start + 1:
            self.reach.end(values[-1])
            if read.whole is not None:
                self.whole(values[-1], read)

    def call(self, call: Call, given: str = "", x: Any = None) -> None:
        """Follows arguments into a function of the user's; or takes it that they are
        used as a whole.

        given: the local variable that holds `x`; "" if they are from outside.
        """
        callee, own, skipped = _called(self._value(call.function, call.line))
        values = []
        for path in call.args:
            value = MISSING
            if path is not None and given:
                if path[:2] == (LOCAL, given):
                    read = self.here(call.line, path)
                    along = [x, *self.rest(x, read)]
                    value = along[-1] if len(along) == len(path) - 1 else MISSING
            elif path is not None and self._is_known(path):
                value = self._value(path, call.line)
            values.append(value)
        if callee is None:
            function = self._value(call.function, call.line)
            for path, value in zip(call.args, values, strict=True):
                if path is not None and value is not MISSING:
                    read = self.here(call.line, path)._replace(whole=True)
                    self.whole(value, read)
                    if type(function) in _GETTERS:
                        self.every(value, path, read)
            return
        for name, value in arguments(callee, skipped, values, call.names):
            self.reach.give(callee, own, name, value)

    def _value(self, path: Path, line: int) -> Any:
        """What a path leads to."""
        if path not in self._known:
            values = self.follow(self.here(line, path))
            found = len(values) == len(path) - 1
            self._known[path] = values[-1] if found else MISSING
        return self._known[path]


def _called(x: Any) -> tuple[FunctionType | None, Any, int]:
    """The function of the user's that runs when something is called, the first
    argument if that is known, and how many arguments come before those that are
    given."""
    own, skipped = None, 0
    if type(x) is MethodType:
        x, own, skipped = x.__func__, x.__self__, 1
    elif isinstance(x, type) and not is_foreign(x.__module__):
        x, own, skipped = in_class(x, "__init__"), Like(x), 1
    elif type(x) is not FunctionType and not is_foreign(type(x).__module__):
        x, own, skipped = in_class(type(x), "__call__"), x, 1
    if type(x) is not FunctionType or is_foreign(x.__module__ or ""):
        return None, None, 0
    return x, own, skipped


def arguments(
    function: FunctionType, skipped: int, values: list[Any], names: tuple[str, ...]
) -> list[tuple[str, Any]]:
    """The values that are known of a function's arguments, by their names.

    skipped: arguments that come before the ones that are given. names: of the last.
    """
    code, placed = function.__code__, values[: len(values) - len(names)]
    positions = code.co_varnames[skipped : code.co_argcount]
    found = [*zip(positions, placed, strict=False)]
    found += [*zip(names, values[len(placed) :], strict=True)]
    more = placed[len(positions) :]
    if more and code.co_flags & CO_VARARGS:
        rest = code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        found.append((rest, tuple(more)))
    return [pair for pair in found if pair[1] is not MISSING]


_GETTERS = (attrgetter, methodcaller)
_PLAIN = frozenset(
    (str, bytes, int, float, complex, bool, type(None), type(...), range, slice)
)

# Special methods that what is computed does not depend on, or hardly ever.
_ASIDE_NAMES = (
    "__init__ __new__ __post_init__ __repr__ __str__ __format__ __eq__ __ne__ __hash__ "
    "__getstate__ __setstate__ __reduce__ __reduce_ex__ __copy__ __deepcopy__ __del__"
)
_ASIDE = frozenset(_ASIDE_NAMES.split())

"""Follows the paths that code reads to what is there, and notes the variables on the
way."""

from __future__ import annotations

import builtins
import datetime
import sys
import threading
from abc import ABC, abstractmethod
from collections import ChainMap, UserDict, UserList
from contextvars import ContextVar
from enum import Enum, EnumMeta
from functools import cache, cached_property, partial
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple
from weakref import ReferenceType

from treadle.structure import is_held
from treadle.trace.hidden import Hidden, source_of
from treadle.trace.outside import is_foreign
from treadle.trace.paths import (
    BYTES,
    CELL,
    CONTEXT,
    EVERY,
    GLOBAL,
    LENGTH,
    MODULE,
    NAMESPACE,
    RESULT,
    At,
    Item,
    Path,
    label_of,
)
from treadle.trace.reads import Read, reads
from treadle.trace.variables import (
    BUFFERS,
    MISSING,
    MOST_ITEMS,
    Variable,
    container,
    in_cell,
    in_context,
    item,
    items,
    numbers_of,
)

MOST_VARIABLES = 1000
_MOST_CALLS = 8  # one in another, whose results are followed


class Like(NamedTuple):
    """Some instance of a class."""

    kind: type


class Noted(ABC):
    """What was found on paths: variables, and sources of values that no argument
    decides."""

    def __init__(self) -> None:
        self.variables: dict[tuple[int, Any], Variable] = {}
        self.hidden: list[Hidden] = []
        self.calls = 0

    def note(self, holder: Any, name: Any, value: Any, path: Path, read: Read) -> None:
        """Notes a variable."""
        key = id(holder), name
        known = self.variables.get(key)
        if known is None:
            if len(self.variables) < MOST_VARIABLES:
                self.variables[key] = Variable(
                    holder, name, value, path, read.source, read.readers
                )
                if isinstance(value, BUFFERS):
                    self.note(value, BYTES, numbers_of(value), (*path, BYTES), read)
        elif not read.readers <= known.readers:
            readers = known.readers | read.readers
            self.variables[key] = known._replace(readers=readers)

    @abstractmethod
    def visit(self, function: FunctionType, own: Any) -> None:
        """Notes a function that may run.

        own: its first argument, if that is known: an object or one `Like` it.
        """

    @abstractmethod
    def end(self, x: Any) -> None:
        """Follows an object that a function may call."""


class Follower:
    """Follows the paths of one function. own: as in `Noted.visit`."""

    def __init__(self, noted: Noted, function: FunctionType, own: Any) -> None:
        self.noted, self.function, self.own = noted, function, own
        self.globals = function.__globals__
        self.first = function.__code__.co_varnames[:1] if own is not None else ()
        self.cells: dict[str, CellType] = {}
        if function.__closure__:
            names = function.__code__.co_freevars
            self.cells = dict(zip(names, function.__closure__, strict=True))

    def start(self, path: Path) -> Any:
        """What a path begins with."""
        kind, name = path[:2]
        if kind == GLOBAL:
            found = self.globals.get(name, MISSING)
            if found is MISSING and name == NAMESPACE:
                return self.globals
            return vars(builtins).get(name, MISSING) if found is MISSING else found
        if kind == CELL:
            return in_cell(self.cells[name]) if name in self.cells else MISSING
        if kind == MODULE:
            return sys.modules.get(name, MISSING)
        return self.own if (name,) == self.first else default_of(self.function, name)

    def follow(self, read: Read) -> list[Any]:
        """The values along a path, as far as they are known."""
        path = read.path
        x = self.start(path)
        if path[0] == GLOBAL and path[1] != NAMESPACE:
            self._note(self.globals, path[1], x, read, 2)
        if x is MISSING:
            return []
        if path[0] == CELL:
            self._note(self.cells[path[1]], "", x, read, 2)
        values = [x]
        if len(path) == 2:
            if type(x) in _CALLED:
                self._hidden(None, x, read, 2)
        else:
            values += self.rest(x, read)
        if read.whole is not None and len(values) == len(path) - 1:
            self.whole(values[-1], read)
        return values

    def rest(self, x: Any, read: Read, start: int = 2) -> list[Any]:
        """The values of the steps on a path, from the one on that takes `x`."""
        path = read.path
        values: list[Any] = []
        for i, step in enumerate(path[start:], start + 1):
            if type(step) is not str:
                if step is RESULT:
                    others = self._results(x, read)
                    nxt = others.pop(0) if others else MISSING
                    for other in others:
                        self.rest(other, read, i)
                else:
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

    def whole(self, x: Any, read: Read) -> None:
        """Notes a container that is looked at as a whole."""
        by = getattr(x, "__self__", None) if type(x) is BuiltinFunctionType else None
        x = x if by is None else by  # `get = table.get`
        x = x.mapping if isinstance(x, _VIEWS) else x
        if not container(type(x)):
            return
        every = read.whole or container(type(x)) == "set"
        for holder, name, value, on in items(x, read.path):
            if every or (name is LENGTH and holder is x):
                self.noted.note(holder, name, value, on, read)

    def _results(self, function: Any, read: Read) -> list[Any]:
        """What a function may give that gives back what it reads."""
        noted, own = self.noted, None
        if type(function) is MethodType:
            function, own = function.__func__, function.__self__
        if type(function) is BuiltinFunctionType:
            return self._of_context(function, read)
        if isinstance(function, ReferenceType):
            target = function()
            return [] if target is None else [target]
        if isinstance(function, type) and not is_foreign(function.__module__):
            return [Like(function)]
        if type(function) is not FunctionType or noted.calls >= _MOST_CALLS:
            return []
        if is_foreign(function.__module__ or ""):
            return []
        inner, found = Follower(noted, function, own), []
        noted.calls += 1
        for path in reads(function.__code__).returns:
            values = inner.follow(Read(path, read.source, read.readers))
            if len(values) == len(path) - 1:
                found.append(values[-1])
        noted.calls -= 1
        return found

    def _of_context(self, function: Any, read: Read) -> list[Any]:
        """What `get` of a context variable gives."""
        if type(function.__self__) is not ContextVar or function.__name__ != "get":
            return []
        value = in_context(function.__self__)
        on = read.path[: read.path.index(RESULT) - 1]
        self.noted.note(function.__self__, CONTEXT, value, (*on, CONTEXT), read)
        return [] if value is MISSING else [value]

    def _of_module(self, x: ModuleType, name: str, read: Read, i: int) -> Any:
        library = is_foreign(x.__name__)
        if library and x.__name__.partition(".")[0] not in _SUSPECTS:
            return MISSING
        value = vars(x).get(name, MISSING)
        if value is MISSING and name == "random":
            value = getattr(x, name, MISSING)  # NumPy loads it when it is asked.
        if library:
            self._hidden(x, value, read, i)
            return value if name == "modules" or x is not sys else MISSING
        self._note(vars(x), name, value, read, i)
        if value is MISSING:
            self.noted.end(vars(x).get("__getattr__"))
        return value

    def _step(self, x: Any, step: Any, read: Read, i: int) -> Any:
        """What there is in a container; notes it."""
        path = read.path[:i]
        if type(x) is ContextVar:
            value = in_context(x)
            self.noted.note(x, CONTEXT, value, (*path[:-1], CONTEXT), read)
            return value
        if type(step) is At:
            found = self.follow(Read(step.path, read.source, read.readers))
            if len(found) != len(step.path) - 1:
                return MISSING
            if step.attribute:
                known = type(found[-1]) is str
                return self._attribute(x, found[-1], read, i)[1] if known else MISSING
            step, path = Item(found[-1]), (*path[:-1], Item(found[-1]))
        if isinstance(x, UserDict | UserList | _VIEWS):
            x = x.mapping if isinstance(x, _VIEWS) else x.data
        if type(x) is ChainMap:
            return self._of_maps(x, step, read, i)
        if not container(type(x)):
            if step is EVERY:
                self.every(x, path[:-1], read)
            return MISSING
        if step is EVERY or step is LENGTH or container(type(x)) == "set":
            all_of_it = step is not LENGTH
            self.whole(x, Read(path[:-1], read.source, read.readers, all_of_it))
            if step is EVERY:
                self.noted.end(x)
            return MISSING
        return self._item(x, step.key, path, read)

    def _item(self, x: Any, key: Any, path: Path, read: Read) -> Any:
        try:
            value = item(x, key)
            rows = container(type(x)) == "row"
            if not rows or (value is not MISSING and not isinstance(x, tuple)):
                self.noted.note(x, key, value, path, read)
        except TypeError:  # a key without a hash
            return MISSING
        return value

    def _of_maps(self, x: Any, step: Any, read: Read, i: int) -> Any:
        """An item of the first of some dicts that has it."""
        if step is EVERY:
            for each in x.maps:
                self._step(each, step, read, i)
        if type(step) is Item:
            for each in x.maps:
                if container(type(each)):
                    value = self._item(each, step.key, read.path[:i], read)
                    if value is not MISSING:
                        return value
        return MISSING

    def every(self, x: Any, path: Path, read: Read) -> None:
        """Notes all attributes of an object of a class of the user's."""
        fields = getattr(x, "__dict__", None)
        kind = type(x)
        foreign = is_foreign(kind.__module__) and kind.__module__ not in NAMESPACES
        if foreign or is_held(x) or not isinstance(fields, dict):
            return
        if len(fields) <= MOST_ITEMS:
            for name, value in [*fields.items()]:
                self.noted.note(fields, name, value, (*path, name), read)
                for holder, key, inner, on in items(value, (*path, name)):
                    self.noted.note(holder, key, inner, on, read)
                self.noted.end(value)
        self.noted.note(fields, LENGTH, len(fields), (*path, LENGTH), read)

    def _attribute(self, x: Any, name: str, read: Read, i: int) -> tuple[bool, Any]:
        """Whether an object is a library's; and its attribute."""
        kind = x if isinstance(x, type) else type(x)
        if type(x) is Like:
            kind = x.kind
        if name == "__class__":
            return False, kind
        if type(x) is not Like:
            found = self._special(x, kind, name, read, i)
            if found is not None:
                return found
        hooks = _hooks(kind)
        for hook in hooks:
            if type(hook) is FunctionType:
                self.noted.visit(hook, x)
        found = in_class(kind, name)
        if found is MISSING:
            return False, self._missing(x, kind, name, read, i)
        if isinstance(found, partial):
            self.noted.end(found)
        function = function_of(found)
        if type(function) is FunctionType:
            return False, self._function(x, kind, name, read, i)
        if type(found) is MemberDescriptorType and not isinstance(x, type | Like):
            value = getattr(x, name, MISSING)
            self._note(x, name, value, read, i)
            return False, value
        get = getattr(type(found), "__get__", None)
        if get is None:
            # What it is bound to in the object is found first.
            self._note(x if _has_own(x) else kind, name, found, read, i)
            return False, found
        if type(get) is FunctionType:
            self.noted.visit(get, found)
            self.noted.end(x)
        return False, MISSING

    def _special(
        self, x: Any, kind: type, name: str, read: Read, i: int
    ) -> tuple[bool, Any] | None:
        """As `_attribute`, of what is no attribute of a class of the user's."""
        if type(x) is ContextVar:
            return False, x.get if name == "get" else MISSING
        if isinstance(x, threading.local):
            value = getattr(x, name, MISSING)
            self._note(x, name, value, read, i)
            return False, value
        if isinstance(x, Enum) and name in _OF_ENUM:
            return False, getattr(x, name)
        if isinstance(x, EnumMeta) and name in x.__members__:
            return False, x.__members__[name]
        if type(x) is FunctionType or type(x) is partial:
            if name in x.__dict__:
                self._note(x.__dict__, name, x.__dict__[name], read, i)
                return False, x.__dict__[name]
            return True, MISSING
        if is_foreign(kind.__module__) and kind.__module__ not in NAMESPACES:
            if isinstance(x, UserDict | UserList) and name == "data":
                return False, x.data
            if isinstance(x, type) and issubclass(x, datetime.date):
                return True, getattr(x, name, MISSING)
            return True, MISSING
        fields = getattr(x, "__dict__", None)
        if name == "__dict__":
            known = isinstance(fields, dict | MappingProxyType)
            return False, fields if known else MISSING
        if isinstance(fields, dict) and name in fields:
            self._note(fields, name, fields[name], read, i)
            return False, fields[name]
        if isinstance(x, tuple) and name in getattr(kind, "_fields", ()):
            return False, getattr(x, name)
        return None

    def _missing(self, x: Any, kind: type, name: str, read: Read, i: int) -> Any:
        """An attribute that an object has not."""
        if type(x) is Like:
            return MISSING
        hooks = _hooks(kind)
        if any(hook in _ITEM for hook in hooks) and container(kind) == "dict":
            return self._item(x, name, read.path[:i], read)
        if isinstance(x, type):
            found = in_class(type(x), name)
            if found is MISSING or hasattr(type(found), "__get__"):
                return MISSING
            self._note(x, name, found, read, i)
            return found
        if not hooks and _has_own(x):
            self._note(x, name, MISSING, read, i)
        return MISSING

    def _function(self, x: Any, kind: type, name: str, read: Read, i: int) -> Any:
        """What an attribute is that is a function of a class."""
        own = None if isinstance(x, type) else x
        value = MISSING
        for base in kind.__mro__:
            found = base.__dict__.get(name)
            function = function_of(found)
            if type(function) is not FunctionType:
                continue
            by = own if type(found) is not classmethod else kind
            by = None if type(found) is staticmethod else by
            self.noted.visit(function, by)
            if value is not MISSING:
                continue
            if type(x) is not Like and not isinstance(found, classmethod):
                if not isinstance(x, type) and not is_held(x):
                    self._shadow(x, name, found, read, i)
                self._note(kind, name, getattr(kind, name), read, i)
            value = function if by is None else MethodType(function, by)
            if isinstance(found, property | cached_property):
                values = self._results(value, read)
                value = values[0] if values else None
        return MISSING if value is None else value

    def _shadow(self, x: Any, name: str, found: Any, read: Read, i: int) -> None:
        """Notes that an object has no attribute of its own in place of its class's."""
        fields = getattr(x, "__dict__", None)
        if isinstance(fields, dict) and type(found) in (FunctionType, staticmethod):
            self._note(fields, name, MISSING, read, i)

    def _note(self, holder: Any, name: str, value: Any, read: Read, i: int) -> None:
        """Notes the variable that the first `i` parts of a path are."""
        self.noted.note(holder, name, value, read.path[:i], read)

    def _hidden(self, owner: Any, x: Any, read: Read, i: int) -> None:
        """Notes a source of numbers or times."""
        kind, generator = source_of(owner, x)
        if kind:
            call = f"{label_of(read.path[:i])}()"
            self.noted.hidden.append(Hidden(kind, call, read.source, generator, x))


_CALLED = frozenset((BuiltinFunctionType, MethodType, FunctionType))
NAMESPACES = frozenset(("types", "argparse"))
"""Modules of classes whose objects hold nothing but the user's variables."""

_SUSPECTS = frozenset(
    ("time", "datetime", "random", "os", "uuid", "secrets", "numpy", "sys")
)
_VIEWS: Any = type({}.keys()) | type({}.values()) | type({}.items())
_OF_ENUM = frozenset(("value", "name", "_value_", "_name_"))
_ITEM = (dict.__getitem__, dict.get)


def _has_own(x: Any) -> bool:
    """Whether an object may be asked for attributes, and has them as such."""
    return type(x) is not Like and not container(type(x)) and not is_held(x)


@cache
def _hooks(kind: type) -> tuple[Any, ...]:
    """What is asked for attributes that objects of a class have not."""
    found = [in_class(kind, name) for name in ("__getattr__", "__getattribute__")]
    return tuple(
        f
        for f in found
        if f in _ITEM or type(f) is FunctionType  # not `object`'s
    )


def in_class(kind: type, name: str) -> Any:
    for base in kind.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def function_of(found: Any) -> Any:
    """What runs when an attribute is read or called that lies in a class."""
    if isinstance(found, property):
        return found.fget
    if isinstance(found, cached_property):
        return found.func
    if isinstance(found, classmethod | staticmethod | MethodType):
        return found.__func__
    return found


def default_of(function: FunctionType, name: str) -> Any:
    """The value that an argument has if it is not given."""
    if function.__kwdefaults__ and name in function.__kwdefaults__:
        return function.__kwdefaults__[name]
    if not function.__defaults__:
        return MISSING
    code, values = function.__code__, function.__defaults__
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(values) :]
    return values[names.index(name)] if name in names else MISSING


def defaults_of(function: FunctionType) -> list[Any]:
    return [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]

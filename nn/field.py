"""What a Module's fields are to a transformation: children, or static.

Arrays, Modules, and containers of them are children. Everything else (sizes, flags,
functions, tuples of numbers) is static: part of what `jit` compiles for, so hashable.
A list, tuple or dict may hold both: ``layers=[Linear, relu, Linear]``. The roles are
settled when a module is made; transformations of its leaves keep them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence, ValuesView
from functools import partial
from types import MethodType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

import treadle as td
from treadle import tree
from treadle.nn.alike import representative
from treadle.reading import Entries, Items, Reading, reading

_UNHASHABLE = """\
field `{name}` of {owner} holds no array, so it is static, but it is not hashable: \
{value!r:.60}
Static fields are part of what `jit` compiles for. Hold a tuple instead of a set, or \
make the value an array."""
_BOUND = """\
field `{name}` of {owner} is a method of the module {module}, whose arrays no \
transformation would see
Hold the module itself, and call the method where it is needed."""
_PARTIAL = """\
field `{name}` of {owner} is a functools.partial that holds arrays, which no \
transformation would see
Hold the arrays in fields of their own, or make a Module with a `__call__` of it."""
_ONCE = """\
field `{name}` of {owner} is a {kind}, whose contents no transformation would see
Hold a list or tuple: `self.{name} = list(...)`."""
_CHANGED = """\
a container in a module was changed in place: {container!r:.80}
Modules are frozen: make a new one with `module.replace(field=...)`."""


_NUMBERS = frozenset((bool, int, float, complex, *np.sctypeDict.values()))


class Entry(NamedTuple):
    """One field of a module, or one entry of a container in it.

    Static ones have their value here, and numbers what tells equal ones apart.
    Children that are containers with static entries have a template.
    """

    name: Hashable
    static: bool
    value: Any = None
    number: Any = None
    template: Template | None = None


class Template:
    """The static part of a container that holds children and static entries."""

    __slots__ = ("_hash", "entries", "kind", "paths")

    def __init__(self, kind: type, entries: tuple[Entry, ...]) -> None:
        self.kind, self.entries = kind, entries
        names = [e.name for e in entries if not e.static]
        fields = getattr(kind, "_fields", None)
        self.paths = [tree.Attribute(fields[n]) for n in names] if fields else names
        self._hash = hash((kind, entries))

    def take(self, container: Any) -> list[Any]:
        """The entries that are children."""
        if len(container) != len(self.entries):
            raise ValueError(_CHANGED.format(container=container))
        return [_child(container[e.name], e) for e in self.entries if not e.static]

    def read(self, container: Any) -> Reading:
        """How to read containers like this one."""
        children = tuple(
            [
                (e.name, _read(container[e.name], e))
                for e in self.entries
                if not e.static
            ]
        )
        if self.kind is dict:
            return Entries(len(self.entries), children)
        return Items(self.kind, len(self.entries), children)

    def fill(self, children: Sequence[Any]) -> Any:
        """The container around the given children."""
        rest = iter(children)
        values = [e.value if e.static else next(rest) for e in self.entries]
        if self.kind is dict:
            return {e.name: v for e, v in zip(self.entries, values, strict=True)}
        return self.kind(values) if self.kind in (list, tuple) else self.kind(*values)

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Template)
            and (self.kind, self.entries) == (other.kind, other.entries)
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        return Template, (self.kind, self.entries)

    def __repr__(self) -> str:
        shown = (repr(e.value) if e.static else "*" for e in self.entries)
        return f"{self.kind.__name__}({', '.join(shown)})"


class Mixed:
    """A container with a template, as it appears among a module's children."""

    __slots__ = ("container", "template")

    def __init__(self, container: Any, template: Template) -> None:
        self.container, self.template = container, template


tree.register(
    Mixed,
    lambda mixed: (mixed.template.take(mixed.container), mixed.template),
    lambda template, children: template.fill(children),
    lambda template, n: template.paths,
)


def _child(value: Any, entry: Entry) -> Any:
    # Where a whole container was replaced (by None, say), it stands as it is.
    if entry.template is not None and type(value) is entry.template.kind:
        return Mixed(value, entry.template)
    return value


def _read(value: Any, entry: Entry) -> Reading:
    if entry.template is not None and type(value) is entry.template.kind:
        return entry.template.read(value)
    return reading(value)


class Layout:
    """The entries of one instance's fields, and what flattening asks of them often.

    children: the names of the fields that are children. fields: all names, with the
    values of the static ones. lazy: whether an instance may go without its fields until
    somebody looks (`Module`).
    """

    __slots__ = (
        "__weakref__",
        "_hash",
        "_mixed",
        "children",
        "entries",
        "fields",
        "lazy",
        "paths",
    )

    def __init__(self, entries: tuple[Entry, ...], lazy: bool) -> None:
        self.entries, self.lazy = entries, lazy
        self.fields: dict[str, Any] = {str(e.name): e.value for e in entries}
        self.children = [str(e.name) for e in entries if not e.static]
        self.paths = [tree.Attribute(name) for name in self.children]
        self._mixed = [(str(e.name), e) for e in entries if e.template is not None]
        self._hash = hash(entries)

    def take(self, fields: dict[str, Any]) -> list[Any]:
        """The children among an instance's fields."""
        if self._mixed:
            fields = fields | {n: _child(fields[n], e) for n, e in self._mixed}
        return [fields[name] for name in self.children]

    def read(self, fields: dict[str, Any]) -> tuple[tuple[str, Reading], ...]:
        """How to read the children among fields like these."""
        entries = [e for e in self.entries if not e.static]
        return tuple([(str(e.name), _read(fields[str(e.name)], e)) for e in entries])

    def fill(self, fields: dict[str, Any], children: Sequence[Any]) -> None:
        """Puts the children, and the static values, among an instance's fields."""
        fields.update(self.fields)
        fields.update(zip(self.children, children, strict=True))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Layout)
            and self._hash == other._hash
            and self.entries == other.entries
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        return Layout, (self.entries, self.lazy)

    def __repr__(self) -> str:
        statics = (f"{e.name}={e.value!r}" for e in self.entries if e.static)
        return f"({', '.join(statics)})"


_layouts: WeakValueDictionary[Any, Layout] = WeakValueDictionary()
_child_kinds: set[type] = set()


def always_child(kind: type) -> None:
    """Declares that instances of a class are children even if they hold no array."""
    _child_kinds.add(kind)


def layout_of(owner: type, fields: dict[str, Any], may_be_lazy: bool) -> Layout:
    """The layout of an instance with these fields; equal ones are one object.

    Raises:
      TypeError: if a static field is not hashable, or hides arrays.
    """
    entries = tuple([_entry(owner, name, name, v) for name, v in fields.items()])
    found = _layouts.get((owner, entries))
    if found is None:
        # A class attribute of a field's name would hide that the field is missing.
        lazy = may_be_lazy and not any(hasattr(owner, name) for name in fields)
        found = _layouts[owner, entries] = Layout(entries, lazy)
    return found


def _entry(owner: type, field: str, name: Hashable, value: Any) -> Entry:
    kind = type(value)
    if value is None or kind in _child_kinds or holds_array(value):
        return Entry(name, False)
    if kind in (list, tuple, dict) or hasattr(kind, "_fields"):
        return _container(owner, field, name, value)
    if not tree.all_leaves([value]) and any(map(holds_array, tree.leaves(value))):
        return Entry(name, False)
    if isinstance(value, MethodType) and type(value.__self__) in _child_kinds:
        module = type(value.__self__).__name__
        raise TypeError(_BOUND.format(name=field, owner=owner.__name__, module=module))
    if isinstance(value, partial) and any(
        type(x) in _child_kinds or holds_array(x)
        for x in (*value.args, *value.keywords.values())
    ):
        raise TypeError(_PARTIAL.format(name=field, owner=owner.__name__))
    if isinstance(value, Iterator | ValuesView):
        raise TypeError(
            _ONCE.format(name=field, owner=owner.__name__, kind=kind.__name__)
        )
    value = representative(value)
    try:
        hash(value)
    except TypeError:
        raise TypeError(
            _UNHASHABLE.format(name=field, owner=owner.__name__, value=value)
        ) from None
    return Entry(name, True, value, tree.kind_of(value) if kind in _NUMBERS else None)


def holds_array(value: Any) -> bool:
    """Whether a value is an array; NumPy's scalars count as numbers, like Python's."""
    return td.is_array(value) and not isinstance(value, np.generic)


Part = tuple[tree.Path, Any]


def parts_of(fields: dict[str, Any], names: Sequence[str]) -> Iterator[Part]:
    """The modules and cells among some fields, and in containers there, with their
    paths; not what is inside them."""
    for name in names:
        yield from _parts(fields[name], (tree.Attribute(name),))


def _parts(value: Any, path: tree.Path) -> Iterator[Part]:
    kind = type(value)
    if kind in _child_kinds:
        yield path, value
    elif kind in (list, tuple):
        for i, item in enumerate(value):
            yield from _parts(item, (*path, i))
    elif kind is dict:
        for key, item in value.items():
            yield from _parts(item, (*path, key))
    elif not td.is_array(value) and not tree.all_leaves([value]):
        found, form = tree.flatten(value, is_leaf=lambda x: type(x) in _child_kinds)
        for key, item in zip(tree.paths(form), found, strict=True):
            if type(item) in _child_kinds:
                yield (*path, *key), item


def _container(owner: type, field: str, name: Hashable, value: Any) -> Entry:
    kind = type(value)
    names = sorted(value) if kind is dict else range(len(value))
    entries = tuple([_entry(owner, field, n, value[n]) for n in names])
    if issubclass(kind, tuple) and all(
        e.static or value[e.name] is None for e in entries
    ):
        return Entry(name, True, value, tuple([e.number for e in entries]))
    if any(e.static or e.template is not None for e in entries):
        return Entry(name, False, template=Template(kind, entries))
    return Entry(name, False)

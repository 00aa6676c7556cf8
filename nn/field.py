"""What a Module's fields are to a transformation: children, or static.

Arrays, Modules, and containers of them are children. Everything else (sizes, flags,
functions, tuples of numbers) is static: part of what `jit` compiles for, so hashable.
A list, tuple or dict may hold both: ``layers=[Linear, relu, Linear]``. The roles are
settled when a module is made; transformations of its leaves keep them. So is what is
not trained (`treadle.nn.role`), and what stands in two places (`treadle.nn.sharing`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, ValuesView
from functools import partial
from types import MethodType
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np

import treadle as td
from treadle import tree
from treadle.alike import representative
from treadle.errors import at, user_source
from treadle.nn.role import Mark, Role
from treadle.nn.sharing import SKIPPED, Tie, cut, tied
from treadle.reading import Entries, Items, Reading, Skip, reading

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
_HIDDEN = """\
field `{name}` of {owner} holds an nn.Param or nn.Buffer inside of an object that it \
cannot mark{at}
Hold what is marked in a field of its own, or in a list, tuple or dict."""
_NO_ARRAY = """\
field `{name}` of {owner} is {mark}, which marks no array{at}
nn.Param and nn.Buffer take arrays, and lists, tuples and dicts of them. For what a \
layer holds: `nn.freeze(model, "layer")`."""
_CHANGED = """\
a container in a module was changed in place: {container!r:.80}
Modules are frozen: make a new one with `module.replace(field=...)`."""


_NUMBERS = frozenset((bool, int, float, complex, *np.sctypeDict.values()))


class Entry(NamedTuple):
    """One field of a module, or one entry of a container in it.

    Static ones have their value here, and numbers what tells equal ones apart.
    Children that are containers with static entries, or with entries that have a role,
    have a template. role: None for parameters of which nothing is said.
    """

    name: Hashable
    static: bool
    value: Any = None
    number: Any = None
    template: Template | None = None
    role: Role | None = None

    @property
    def plain(self) -> bool:
        """Whether it is a child of which nothing needs to be known."""
        return not self.static and self.template is None and self.role is None


class Template:
    """The static part of a container: its static entries, and roles of the others."""

    __slots__ = ("_hash", "constants", "entries", "kind", "paths")

    def __init__(self, kind: type, entries: tuple[Entry, ...]) -> None:
        self.kind, self.entries = kind, entries
        self.constants = constants_of(entries)
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
        children = _read_all(self.entries, container)
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
        shown = (
            repr(e.value) if e.static else str(e.role or "*") for e in self.entries
        )
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
    constant=lambda template: template.constants,
)


def _child(value: Any, entry: Entry) -> Any:
    # Where a whole container was replaced (by None, say), it stands as it is.
    if entry.template is not None and type(value) is entry.template.kind:
        return Mixed(value, entry.template)
    return value


def _read(value: Any, entry: Entry) -> Any:
    if entry.template is not None and type(value) is entry.template.kind:
        return entry.template.read(value)
    return reading(value)


def _read_all(entries: Iterable[Entry], among: Any) -> tuple[tuple[Any, Reading], ...]:
    """How to read the children of something that is indexed by names."""
    found = [(e.name, _read(among[e.name], e)) for e in entries if not e.static]
    return tuple([(name, how) for name, how in found if type(how) is not Skip])


def constants_of(entries: Iterable[Entry]) -> tuple[bool, ...]:
    """For each child, whether it is not trained."""
    return tuple(
        [e.role is not None and e.role.constant for e in entries if not e.static]
    )


class Layout:
    """The entries of one instance's fields, and what flattening asks of them often.

    children: the names of the fields that are children. fields: all names, with the
    values of the static ones. lazy: whether an instance may go without its fields until
    somebody looks (`Module`). ties: what stands in two places.
    """

    __slots__ = (
        "__weakref__",
        "_hash",
        "_mixed",
        "children",
        "constants",
        "entries",
        "fields",
        "lazy",
        "paths",
        "ties",
    )

    def __init__(
        self, entries: tuple[Entry, ...], lazy: bool, ties: tuple[Tie, ...] = ()
    ) -> None:
        self.entries, self.lazy, self.ties = entries, lazy, ties
        self.constants = constants_of(entries)
        self.fields: dict[str, Any] = {str(e.name): e.value for e in entries}
        self.children = [str(e.name) for e in entries if not e.static]
        self.paths = [tree.Attribute(name) for name in self.children]
        self._mixed = [(str(e.name), e) for e in entries if e.template is not None]
        self._hash = hash((entries, ties))

    def take(self, fields: dict[str, Any]) -> list[Any]:
        """The children among an instance's fields."""
        if self.ties:
            fields = cut(fields, self.ties, None)
        if self._mixed:
            fields = fields | {n: _child(fields[n], e) for n, e in self._mixed}
        return [fields[name] for name in self.children]

    def read(self, fields: dict[str, Any]) -> tuple[tuple[str, Reading], ...]:
        """How to read the children among fields like these."""
        if self.ties:
            fields = cut(fields, self.ties, SKIPPED)
        return _read_all(self.entries, fields)

    def fill(self, fields: dict[str, Any], children: Sequence[Any]) -> None:
        """Puts the children, and the static values, among an instance's fields."""
        fields.update(self.fields)
        fields.update(zip(self.children, children, strict=True))
        if self.ties:
            fields.update(tied(fields, self.ties))

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Layout)
            and self._hash == other._hash
            and self.entries == other.entries
            and self.ties == other.ties
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> Any:
        return Layout, (self.entries, self.lazy, self.ties)

    def __repr__(self) -> str:
        parts = [f"{e.name}={e.value!r}" for e in self.entries if e.static]
        parts += [f"{e.name}: {e.role}" for e in self.entries if e.role]
        parts += [f"{tree.dotted(b)} is {tree.dotted(a)}" for a, b in self.ties]
        return f"({', '.join(parts)})"


_layouts: WeakValueDictionary[Any, Layout] = WeakValueDictionary()
_child_kinds: set[type] = set()


def always_child(kind: type) -> None:
    """Declares that instances of a class are children even if they hold no array."""
    _child_kinds.add(kind)


def entries_of(owner: type, fields: dict[str, Any]) -> tuple[Entry, ...]:
    """The entries of an instance with these fields, some of which may be marked.

    Raises:
      TypeError: if a static field is not hashable, or hides arrays.
    """
    return tuple([_entry(owner, name, name, v) for name, v in fields.items()])


def layout_of(
    owner: type,
    entries: tuple[Entry, ...],
    may_be_lazy: bool,
    ties: tuple[Tie, ...] = (),
) -> Layout:
    """The layout of an instance with these entries; equal ones are one object."""
    found = _layouts.get((owner, entries, ties))
    if found is None:
        # A class attribute of a field's name would hide that the field is missing.
        lazy = may_be_lazy and not any(hasattr(owner, str(e.name)) for e in entries)
        found = _layouts[owner, entries, ties] = Layout(entries, lazy, ties)
    return found


def _entry(owner: type, field: str, name: Hashable, value: Any) -> Entry:
    kind = type(value)
    if value is None or kind in _child_kinds or holds_array(value):
        return Entry(name, False)
    if isinstance(value, Mark):
        return _marked(owner, field, name, value)
    if kind in (list, tuple, dict) or hasattr(kind, "_fields"):
        return _container(owner, field, name, value)
    if not tree.all_leaves([value]):
        inside = tree.leaves(value)
        if any(isinstance(x, Mark) for x in inside):
            raise TypeError(
                _HIDDEN.format(name=field, owner=owner.__name__, at=at(user_source()))
            )
        if any(map(holds_array, inside)):
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


def _marked(owner: type, field: str, name: Hashable, mark: Mark) -> Entry:
    value, kind = mark.value, type(mark.value)
    if kind in (list, tuple, dict) or hasattr(kind, "_fields"):
        return _container(owner, field, name, mark.spread())
    arrays = value is None or any(map(holds_array, tree.leaves(value)))
    if arrays and kind not in _child_kinds:
        return Entry(name, False, role=mark.role)
    source = at(user_source())
    raise TypeError(
        _NO_ARRAY.format(name=field, owner=owner.__name__, mark=mark, at=source)
    )


def kept(value: Any, entry: Entry) -> Any:
    """Another value of a field, marked with the roles that arrays there had."""
    kind = type(value)
    if isinstance(value, Mark) or entry.static or entry.plain:
        return value
    if entry.role is not None:
        alone = kind in (list, tuple, dict) or hasattr(kind, "_fields")
        known = value is None or holds_array(value) or not tree.all_leaves([value])
        role = known and not alone and kind not in _child_kinds
        return Mark(value, entry.role) if role else value
    template = entry.template
    assert template is not None
    names = [e.name for e in template.entries]
    if kind is not template.kind or len(value) != len(names):
        return value
    if kind is dict:
        same = all(n in value for n in names)
        return (
            {e.name: kept(value[e.name], e) for e in template.entries}
            if same
            else value
        )
    items = [kept(x, e) for x, e in zip(value, template.entries, strict=True)]
    return kind(*items) if hasattr(kind, "_fields") else kind(items)


def holds_array(value: Any) -> bool:
    """Whether a value is an array; NumPy's scalars count as numbers, like Python's."""
    return td.is_array(value) and not isinstance(value, np.generic)


Part = tuple[tree.Path, Any]


def parts_of(fields: dict[str, Any], names: Sequence[str]) -> Iterator[Part]:
    """The modules and cells among some fields, and in containers there, with their
    paths; not what is inside them."""
    for name in names:
        yield from parts_in(fields[name], (tree.Attribute(name),))


def parts_in(value: Any, path: tree.Path) -> Iterator[Part]:
    """The modules and cells in a value at a path, itself or in a container."""
    kind = type(value)
    if kind in _child_kinds:
        yield path, value
    elif kind in (list, tuple):
        for i, item in enumerate(value):
            yield from parts_in(item, (*path, i))
    elif kind is dict:
        for key in sorted(value):
            yield from parts_in(value[key], (*path, key))
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
    return container_entry(name, kind, entries)


def container_entry(name: Hashable, kind: type, entries: tuple[Entry, ...]) -> Entry:
    """The entry of a container with children."""
    if all(e.plain for e in entries):
        return Entry(name, False)
    return Entry(name, False, template=Template(kind, entries))

"""Pytrees: nested tuples, lists, dicts, namedtuples, None and registered classes.

Everything that takes or returns arrays takes and returns pytrees of them. A *leaf* is
whatever is not a registered container. ``None`` is a container without leaves.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, NamedTuple

from treadle.errors import StructureError, at, user_source

Path = tuple[Hashable, ...]


class Attribute(NamedTuple):
    """A path entry that names a field (``.weight``) rather than a key or an index."""

    name: str


class _Node(NamedTuple):
    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Any, Sequence[Any]], Any]
    keys: Callable[[Any, int], Sequence[Hashable]]
    constant: bool = False
    hold: Callable[[Structure, list[Any]], Any] | None = None
    held: Callable[[Any], tuple[list[Any], Structure] | None] | None = None


class Structure:
    """The shape of a pytree without its leaves. Hashable; equal iff interchangeable."""

    __slots__ = ("_hash", "aux", "children", "count", "kind")

    def __init__(
        self, kind: type | None, aux: Hashable, children: tuple[Structure, ...]
    ) -> None:
        self.kind, self.aux, self.children = kind, aux, children
        self.count = sum([c.count for c in children])
        try:
            self._hash = hash((kind, aux, children))
        except TypeError:
            raise TypeError(
                f"a static field of {_name(kind)} is not hashable: {aux!r}"
                f"{at(user_source())}\n"
                "Static fields are part of what `jit` compiles for: use a tuple "
                "instead of a list or dict, or make the value an array."
            ) from None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The pytree of this structure with the given leaves."""
        leaves = tuple(leaves)
        if len(leaves) != self.count:
            raise StructureError(f"{self} has {self.count} leaves, got {len(leaves)}")
        plain = not any([_is_container(kind) for kind in {type(x) for x in leaves}])
        return _build(self, iter(leaves), plain)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        same = (
            isinstance(other, Structure)
            and self._hash == other._hash
            and self.kind is other.kind
            and self.aux == other.aux
            and self.children == other.children
        )
        if same:
            # Equal children are shared from now on: a jitted step compares its model's
            # structure with the same other one again and again.
            self.children = other.children  # type: ignore[attr-defined]
        return same

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self is LEAF:
            return "*"
        if self.kind is type(None):
            return "None"
        node = _registry[self.kind]
        keys = node.keys(self.aux, len(self.children))
        inside = ", ".join(
            f"{key_name((k,)).lstrip('.')}: {c}"
            for k, c in zip(keys, self.children, strict=True)
        )
        return f"{_name(self.kind)}({inside})"


_registry: dict[Any, _Node] = {}
LEAF = Structure(None, None, ())
LEAF.count = 1
_NONE = Structure(type(None), None, ())
_NO_ITEMS = Structure(dict, (), ())
_leaf_kinds: set[type] = set()
"""Types that have been met and are no containers."""


def _name(kind: type | None) -> str:
    return getattr(kind, "__name__", str(kind))


def register(
    kind: type,
    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]],
    unflatten: Callable[[Any, Sequence[Any]], Any],
    keys: Callable[[Any, int], Sequence[Hashable]] | None = None,
    *,
    constant: bool = False,
    hold: Callable[[Structure, list[Any]], Any] | None = None,
    held: Callable[[Any], tuple[list[Any], Structure] | None] | None = None,
) -> None:
    """Makes instances of a class containers.

    Args:
      kind: the class (exactly: subclasses are registered on their own).
      flatten: gives the children, and what is static (hashable).
      unflatten: takes the static part and the children; must not validate the
        children, which may be anything.
      keys: names the children, from the static part and their number; used in paths.
      constant: True if what is inside is not to be trained: `grad` gives None there.
      hold, held: for classes that put off unflattening until somebody looks inside.
        ``hold(structure, leaves)`` makes such an instance; ``held(instance)`` gives
        leaves and structure back, or None if the instance has been opened.
    """
    names = keys or (lambda aux, n: range(n))
    _registry[kind] = _Node(flatten, unflatten, names, constant, hold, held)
    _leaf_kinds.discard(kind)


def kind_of(static: Any) -> Any:
    """What tells apart static values that are equal but trace to different programs.

    >>> kind_of(1) == kind_of(True), kind_of(0.0) == kind_of(-0.0)
    (False, False)
    """
    if isinstance(static, tuple):
        return (type(static), *[kind_of(value) for value in static])
    return repr(static) if isinstance(static, float | complex) else type(static)


class _Static(tuple):
    """The values of static fields."""

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, other) and kind_of(self) == kind_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


def register_dataclass(kind: type, static: Sequence[str] = ()) -> type:
    """Makes a dataclass a container; the fields named in `static` are not children.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Pair:
    ...     a: object
    ...     b: object
    >>> _ = register_dataclass(Pair)
    >>> leaves(Pair(1, 2))
    [1, 2]
    """
    if not is_dataclass(kind):
        raise TypeError(f"{kind!r} is not a dataclass")
    names = [f.name for f in fields(kind)]
    unknown = set(static) - set(names)
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")
    moving = tuple(n for n in names if n not in static)
    fixed = tuple(n for n in names if n in static)

    def unflatten(aux: tuple, children: Sequence[Any]) -> Any:
        made = object.__new__(kind)
        for name, value in zip(moving + fixed, (*children, *aux), strict=True):
            object.__setattr__(made, name, value)
        return made

    register(
        kind,
        lambda x: (
            [getattr(x, n) for n in moving],
            _Static([getattr(x, n) for n in fixed]),
        ),
        unflatten,
        lambda aux, n: [Attribute(name) for name in moving],
    )
    return kind


def _sorted_keys(d: dict) -> tuple:
    try:
        return tuple(sorted(d))
    except TypeError:
        raise TypeError(
            f"the keys of a dict in a pytree must be sortable: {list(d)}"
            f"{at(user_source())}"
        ) from None


def _flatten_dict(d: dict) -> tuple[Sequence[Any], Hashable]:
    keys = _sorted_keys(d)
    return [d[k] for k in keys], keys


register(tuple, lambda x: (x, None), lambda aux, c: tuple(c))
register(list, lambda x: (x, None), lambda aux, c: list(c))
register(
    dict,
    _flatten_dict,
    lambda keys, c: dict(zip(keys, c, strict=True)),
    lambda keys, n: keys,
)
register(
    OrderedDict,
    lambda d: (list(d.values()), tuple(d)),
    lambda keys, c: OrderedDict(zip(keys, c, strict=True)),
    lambda keys, n: keys,
)
register(
    defaultdict,
    lambda d: (_flatten_dict(d)[0], (d.default_factory, _sorted_keys(d))),
    lambda aux, c: defaultdict(aux[0], zip(aux[1], c, strict=True)),
    lambda aux, n: aux[1],
)


def _node_of(kind: type) -> _Node | None:
    node = _registry.get(kind)
    if node is None and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = [Attribute(n) for n in kind._fields]
        register(
            kind,
            lambda x: (x, None),
            lambda aux, c: kind(*c),
            lambda aux, n: names,
        )
        node = _registry[kind]
    return node


def _take_apart(
    tree: Any, out: list, is_leaf: Callable[[Any], bool] | None
) -> Structure:
    if is_leaf is not None and is_leaf(tree):
        out.append(tree)
        return LEAF
    if tree is None:
        return _NONE
    kind = type(tree)
    node = _registry.get(kind) or _node_of(kind)
    if node is None:
        out.append(tree)
        _leaf_kinds.add(kind)
        return LEAF
    if node.held is not None and is_leaf is None:
        known = node.held(tree)
        if known is not None:
            out += known[0]
            return known[1]
    children, aux = node.flatten(tree)
    if not children and kind is dict:
        return _NO_ITEMS
    forms = []
    for c in children:
        if type(c) in _leaf_kinds and is_leaf is None:
            out.append(c)
            forms.append(LEAF)
        else:
            forms.append(_take_apart(c, out, is_leaf))
    return Structure(kind, aux, tuple(forms))


def _build(structure: Structure, leaves: Iterator[Any], plain: bool) -> Any:
    """plain: no leaf is itself a container, so that nodes may be held."""
    if structure is LEAF:
        return next(leaves)
    if structure.kind is type(None):
        return None
    node = _registry[structure.kind]
    if plain and node.hold is not None:
        return node.hold(structure, list(islice(leaves, structure.count)))
    children = _build_children(structure, leaves, plain)
    return node.unflatten(structure.aux, children)


def _build_children(
    structure: Structure, leaves: Iterator[Any], plain: bool
) -> list[Any]:
    return [
        next(leaves) if c is LEAF else _build(c, leaves, plain)
        for c in structure.children
    ]


def open_held(form: Structure, leaves: Sequence[Any]) -> list[Any]:
    """The children of a held node; those that can be are held themselves."""
    return _build_children(form, iter(leaves), True)


def _is_container(kind: type) -> bool:
    return kind is type(None) or _node_of(kind) is not None


def flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Structure]:
    """The leaves, left to right (dicts in key order), and the structure around them.

    >>> flatten({"b": 1, "a": (2, None)})[0]
    [2, 1]
    """
    out: list[Any] = []
    return out, _take_apart(tree, out, is_leaf)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The inverse of `flatten`."""
    return structure.unflatten(leaves)


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves, left to right."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Structure:
    """The structure without the leaves."""
    return flatten(tree, is_leaf)[1]


def map(
    function: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Applies `function` to corresponding leaves.

    `rest` may be deeper than `tree`: whatever stands where `tree` has a leaf is passed
    whole.

    Raises:
      StructureError: if the trees do not correspond; it names the first place.

    >>> map(lambda a, b: a + b, {"x": 1}, {"x": 2})
    {'x': 3}
    """
    first, form = flatten(tree, is_leaf)
    others = _corresponding(form, rest)
    return form.unflatten([function(*xs) for xs in zip(first, *others, strict=True)])


def _corresponding(form: Structure, rest: Sequence[Any]) -> list[list[Any]]:
    """What stands in further trees of `map` where the first has leaves."""
    try:
        return [flatten_up_to(form, other) for other in rest]
    except StructureError as error:
        raise StructureError(
            f"tree.map of trees that don't correspond, {error}{at(user_source())}"
        ) from None


def flatten_up_to(form: Structure, tree: Any, none: bool = False) -> list[Any]:
    """The subtrees of `tree` that stand at the leaves of `form`.

    Args:
      none: whether a None in `tree` may stand for all leaves of a subtree of `form`.
    """
    out: list[Any] = []
    _match(form, tree, (), out, none)
    return out


def difference(first: Structure, second: Structure, path: Path = ()) -> str:
    """Where two structures first differ, and how; an empty string if they are equal.

    >>> difference(structure({"a": (1, 2)}), structure({"a": 1}))
    "at ['a']: tuple against a leaf"
    """
    place = f"at {key_name(path)}: "
    if first.kind is not second.kind:
        kinds = ["a leaf" if s is LEAF else _name(s.kind) for s in (first, second)]
        return place + " against ".join(kinds)
    if first.aux != second.aux:
        return place + f"static {first.aux!r} against {second.aux!r}"
    if len(first.children) != len(second.children):
        return place + f"{len(first.children)} entries against {len(second.children)}"
    if first is LEAF or first.kind is type(None):
        return ""
    keys = _registry[first.kind].keys(first.aux, len(first.children))
    for key, a, b in zip(keys, first.children, second.children, strict=True):
        found = difference(a, b, (*path, key))
        if found:
            return found
    return ""


def _match(form: Structure, tree: Any, path: Path, out: list[Any], none: bool) -> None:
    if form is LEAF or (none and tree is None):
        out += [tree] * form.count
        return
    if form.kind is type(None):
        if tree is not None:
            raise StructureError(f"at {key_name(path)}: expected None, found {tree!r}")
        return
    if type(tree) is not form.kind:
        raise StructureError(
            f"at {key_name(path)}: expected {_name(form.kind)}, "
            f"found {_name(type(tree))}"
        )
    node = _registry[form.kind]
    children, aux = node.flatten(tree)
    if aux != form.aux or len(children) != len(form.children):
        raise StructureError(
            f"at {key_name(path)}: two {_name(form.kind)} differ: "
            f"{form} against {structure(tree)}"
            + (f" (static: {form.aux!r} against {aux!r})" if aux != form.aux else "")
        )
    keys = node.keys(aux, len(children))
    for key, sub, child in zip(keys, form.children, children, strict=True):
        _match(sub, child, (*path, key), out, none)


def flatten_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[tuple[Path, Any]], Structure]:
    """Like `flatten`, with the path of each leaf.

    >>> [(key_name(p), x) for p, x in flatten_with_path({"a": [1, 2]})[0]]
    [("['a'][0]", 1), ("['a'][1]", 2)]
    """
    values, form = flatten(tree, is_leaf)
    return list(zip(paths(form), values, strict=True)), form


def paths(form: Structure) -> list[Path]:
    """The path of each leaf."""
    out: list[Path] = []

    def walk(form: Structure, path: Path) -> None:
        if form is LEAF:
            out.append(path)
        elif form.kind is not type(None):
            keys = _registry[form.kind].keys(form.aux, len(form.children))
            for key, child in zip(keys, form.children, strict=True):
                walk(child, (*path, key))

    walk(form, ())
    return out


def key_name(path: Path) -> str:
    """A path as source text: ``.layers[0].weight``; the root is ``<root>``."""
    text = "".join(
        f".{k.name}" if isinstance(k, Attribute) else f"[{k!r}]" for k in path
    )
    return text or "<root>"


def map_with_path(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Like `map`; `function` takes the path first."""
    first, form = flatten(tree)
    others = _corresponding(form, rest)
    return form.unflatten(
        [function(*xs) for xs in zip(paths(form), first, *others, strict=True)]
    )


def all_leaves(values: Iterable[Any]) -> bool:
    """Whether none of the values is a container."""
    return not any(_is_container(type(v)) for v in values)


def constants(form: Structure) -> list[bool]:
    """For each leaf, whether it lies in a node that is registered as constant: such
    leaves (running statistics, caches) have no derivative."""
    out: list[bool] = []

    def walk(form: Structure, inside: bool) -> None:
        if form is LEAF:
            out.append(inside)
        elif form.kind is not type(None):
            inside = inside or _registry[form.kind].constant
            for child in form.children:
                walk(child, inside)

    walk(form, False)
    return out

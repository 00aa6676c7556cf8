"""What pytrees are made of: registered containers, and the structure around leaves.

`treadle.tree` has the functions of whole pytrees.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from treadle.errors import StructureError, at, user_source

Path = tuple[Hashable, ...]

T = TypeVar("T")


class Attribute(NamedTuple):
    """A path entry that names a field (``.weight``) rather than a key or an index."""

    name: str


def key_name(path: Path) -> str:
    """A path as source text: ``.layers[0].weight``; the root is ``<root>``."""
    text = "".join(
        f".{k.name}" if isinstance(k, Attribute) else f"[{k!r}]" for k in path
    )
    return text or "<root>"


class _Node(NamedTuple):
    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]]
    unflatten: Callable[[Any, Sequence[Any]], Any]
    keys: Callable[[Any, int], Sequence[Hashable]]
    constant: bool | Callable[[Any], Sequence[bool]] = False
    hold: Callable[[Structure, list[Any]], Any] | None = None
    held: Callable[[Any], tuple[list[Any], Structure] | None] | None = None
    read: Callable[[Any], Any] | None = None
    shared: Callable[[Any], Sequence[tuple[Path, Path]]] | None = None


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
                f"a static field of {name_of_kind(kind)} is not hashable: {aux!r}"
                f"{at(user_source())}\n"
                "Static fields are part of what `jit` compiles for: use a tuple "
                "instead of a list or dict, or make the value an array."
            ) from None

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The pytree of this structure with the given leaves."""
        if isinstance(leaves, Mapping):
            raise StructureError(
                "unflatten takes the leaves in their order, not a mapping "
                f"({name_of_kind(type(leaves))}): its keys are names. To go by names, "
                "use treadle.checkpoint.restore with a template, or set the fields"
                f"{at(user_source())}"
            )
        leaves = tuple(leaves)
        if len(leaves) != self.count:
            raise StructureError(
                f"{self} has {self.count} leaves, got {len(leaves)}{at(user_source())}"
            )
        plain = not any([is_container(kind) for kind in {type(x) for x in leaves}])
        return _build(self, iter(leaves), plain)

    @property
    def num_leaves(self) -> int:
        """How many leaves it has."""
        return self.count

    @property
    def num_nodes(self) -> int:
        """How many nodes it has: containers, those of nothing included, and leaves."""
        return 1 + sum([c.num_nodes for c in self.children])

    @property
    def name(self) -> str:
        """The container's class, for messages."""
        return name_of_kind(self.kind)

    @property
    def is_none(self) -> bool:
        """Whether it is that of None."""
        return self.kind is type(None)

    @property
    def constants(self) -> Sequence[bool]:
        """For each child, whether what is inside is not to be trained."""
        constant = _registry[self.kind].constant
        if callable(constant):
            return constant(self.aux)
        return (constant,) * len(self.children)

    @property
    def shared(self) -> Sequence[tuple[Path, Path]]:
        """Pairs of places that hold the same; leaves of it are at the first one."""
        shared = _registry[self.kind].shared
        return () if shared is None else shared(self.aux)

    def keys(self) -> Sequence[Hashable]:
        """The path entries of the children."""
        return _registry[self.kind].keys(self.aux, len(self.children))

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if (
            not isinstance(other, Structure)
            or self._hash != other._hash
            or self.kind is not other.kind
            or self.aux != other.aux
        ):
            return False
        try:
            same = self.children == other.children
        except RecursionError:
            same = _equal_below(self, other)
        if same:
            # Equal children are shared from now on: a jitted step compares its model's
            # structure with the same other one again and again.
            self.children = other.children
        return same

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        out: list[str] = []
        self._write(out)
        return "".join(out)

    def _write(self, out: list[str]) -> None:
        if self is LEAF or self.is_none:
            out.append("*" if self is LEAF else "None")
            return
        out.append(f"{self.name}(")
        for i, (key, child) in enumerate(zip(self.keys(), self.children, strict=True)):
            out.append(f"{', ' * bool(i)}{key_name((key,)).lstrip('.')}: ")
            child._write(out)
        out.append(")")


def _equal_below(first: Structure, second: Structure) -> bool:
    """Whether the children of two structures are equal, without recursion: where trees
    are deep."""
    pairs = [(first, second)]
    for a, b in pairs:
        same = a._hash == b._hash and a.kind is b.kind and a.aux == b.aux
        if not same or len(a.children) != len(b.children):
            return False
        pairs += zip(a.children, b.children, strict=True)
    return True


_registry: dict[Any, _Node] = {}
LEAF = Structure(None, None, ())
LEAF.count = 1
_NONE = Structure(type(None), None, ())
_NO_ITEMS = Structure(dict, (), ())
_leaf_kinds: set[type] = set()
"""Types that have been met and are no containers."""


def name_of_kind(kind: type | None) -> str:
    return getattr(kind, "__name__", str(kind))


def register(
    kind: type,
    flatten: Callable[[Any], tuple[Sequence[Any], Hashable]],
    unflatten: Callable[[Any, Sequence[Any]], Any],
    keys: Callable[[Any, int], Sequence[Hashable]] | None = None,
    *,
    constant: bool | Callable[[Any], Sequence[bool]] = False,
    hold: Callable[[Structure, list[Any]], Any] | None = None,
    held: Callable[[Any], tuple[list[Any], Structure] | None] | None = None,
    read: Callable[[Any], Any] | None = None,
    shared: Callable[[Any], Sequence[tuple[Path, Path]]] | None = None,
) -> None:
    """Makes instances of a class containers.

    Args:
      kind: the class (exactly: subclasses are registered on their own).
      flatten: gives the children, and what is static (hashable).
      unflatten: takes the static part and the children; must not validate the
        children, which may be anything.
      keys: names the children, from the static part and their number; used in paths.
      constant: True if what is inside is not to be trained: `grad` gives None there. Or
        a function from the static part that says so for each child.
      hold, held: for classes that put off unflattening until somebody looks inside.
        ``hold(structure, leaves)`` makes such an instance; ``held(instance)`` gives
        leaves and structure back, or None if the instance has been opened.
      read: how native code gets at the children of an instance and of those like it
        (`treadle.reading`); by default it calls `flatten`.
      shared: from the static part, the pairs of places below that hold the same, whose
        leaves are flattened at the first one and found at either (`tree.select`).
    """
    names = keys or (lambda aux, n: range(n))
    _registry[kind] = _Node(
        flatten, unflatten, names, constant, hold, held, read, shared
    )
    _leaf_kinds.discard(kind)
    for tell in _followers:
        tell(kind, _registry[kind])


_followers: list[Callable[[type, Any], None]] = []


def follow(tell: Callable[[type, Any], None]) -> None:
    """Calls a function with every class that is a container, and with its `flatten`,
    `unflatten` and `keys` (see `register`): those of now, and each that is registered
    later. So other libraries can be told what Treadle's pytrees are.

    >>> known = {}
    >>> follow(known.setdefault)
    >>> class Pair(tuple): ...
    >>> register(Pair, lambda pair: (pair, None), lambda _, children: Pair(children))
    >>> list in known, Pair in known
    (True, True)
    """
    for kind, node in list(_registry.items()):
        tell(kind, node)
    _followers.append(tell)


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


def register_dataclass(
    kind: type[T], *places: Any, static: Sequence[str] = (), **others: Any
) -> type[T]:
    """Makes a dataclass a container of its fields. Those named in `static`, and those
    made by ``field(metadata={"static": True})``, are no children, and need a hash.

    Raises:
      TypeError: if it is no dataclass. ValueError: for a field that it has not.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Pair:
    ...     a: object
    ...     b: object
    >>> _ = register_dataclass(Pair)
    >>> from treadle import tree
    >>> tree.leaves(Pair(1, 2))
    [1, 2]
    """
    if places or others:
        more = f"argument {next(iter(others))!r}" if others else "second argument"
        raise TypeError(
            f"register_dataclass has no {more}{at(user_source())}\nIts "
            "fields are children; say `static=[...]` for those that are not."
        )
    if not is_dataclass(kind):
        raise TypeError(f"{kind!r} is not a dataclass{at(user_source())}")
    names = [f.name for f in fields(kind)]
    static = [*static, *[f.name for f in fields(kind) if f.metadata.get("static")]]
    unknown = set(static) - set(names)
    if unknown:
        raise ValueError(
            f"{kind.__name__} has no field {sorted(unknown)[0]!r}{at(user_source())}\n"
            f"It has {', '.join(names)}."
        )
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


def register_static(kind: type[T]) -> type[T]:
    """Makes a class a container without leaves: instances are static parts of pytrees,
    for which `jit` compiles. They must be hashable, and equal where they mean the same.

    >>> from dataclasses import dataclass
    >>> @register_static
    ... @dataclass(frozen=True)
    ... class Mode:
    ...     name: str
    >>> from treadle import tree
    >>> tree.leaves((Mode("fast"), 1))
    [1]
    """
    register(kind, lambda x: ((), x), lambda aux, children: aux)
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


BUILT_IN = {kind: _registry[kind] for kind in (tuple, list, dict)}
"""The nodes of Python's own containers, as long as nobody registers others."""


def node_of(kind: type) -> _Node | None:
    """How a class was registered; None for leaves."""
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


def take_apart(
    tree: Any, out: list, is_leaf: Callable[[Any], bool] | None
) -> Structure:
    if is_leaf is not None and is_leaf(tree):
        out.append(tree)
        return LEAF
    if tree is None:
        return _NONE
    kind = type(tree)
    node = _registry.get(kind) or node_of(kind)
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
            forms.append(take_apart(c, out, is_leaf))
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
    children = []
    # A loop in this very function: one frame a level, as `take_apart` has.
    for c in structure.children:
        children.append(next(leaves) if c is LEAF else _build(c, leaves, plain))
    return node.unflatten(structure.aux, children)


def open_held(form: Structure, leaves: Sequence[Any]) -> list[Any]:
    """The children of a held node; those that can be are held themselves."""
    rest = iter(leaves)
    return [next(rest) if c is LEAF else _build(c, rest, True) for c in form.children]


def top_level(tree: Any) -> tuple[Sequence[Any], Hashable]:
    """The children of a container, and what is static in it."""
    return _registry[type(tree)].flatten(tree)


def is_held(x: Any) -> bool:
    """Whether nobody has looked into a container yet that puts off being made."""
    node = node_of(type(x))
    return node is not None and node.held is not None and node.held(x) is not None


def is_container(kind: type) -> bool:
    return kind is type(None) or node_of(kind) is not None

"""Pytrees: nested tuples, lists, dicts, namedtuples, None and registered classes.

Everything that takes or returns arrays takes and returns pytrees of them. A *leaf* is
whatever is not a registered container. ``None`` is a container without leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from treadle.errors import StructureError, at, user_source
from treadle.structure import LEAF as LEAF
from treadle.structure import Attribute as Attribute
from treadle.structure import Path as Path
from treadle.structure import Structure as Structure
from treadle.structure import is_container, name_of_kind, take_apart, top_level
from treadle.structure import key_name as key_name
from treadle.structure import kind_of as kind_of
from treadle.structure import open_held as open_held
from treadle.structure import register as register
from treadle.structure import register_dataclass as register_dataclass

if TYPE_CHECKING:
    from treadle.run.array import Array

T = TypeVar("T")


def flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Structure]:
    """The leaves, left to right (dicts in key order), and the structure around them.

    >>> flatten({"b": 1, "a": (2, None)})[0]
    [2, 1]
    """
    out: list[Any] = []
    return out, take_apart(tree, out, is_leaf)


def unflatten(structure: Structure, leaves: Iterable[Any]) -> Any:
    """The inverse of `flatten`.

    Raises:
      StructureError: if there are more or fewer leaves, or `leaves` is a mapping.
    """
    return structure.unflatten(leaves)


def leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves, left to right."""
    return flatten(tree, is_leaf)[0]


def structure(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> Structure:
    """The structure without the leaves."""
    return flatten(tree, is_leaf)[1]


@overload
def map(
    function: Callable[[Array], Array],
    tree: T,
    *,
    is_leaf: Callable[[Any], bool] | None = None,
) -> T: ...
@overload
def map(
    function: Callable[[Array, Array], Array],
    tree: T,
    other: Any,
    /,
    *,
    is_leaf: Callable[[Any], bool] | None = None,
) -> T: ...
@overload
def map(
    function: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any: ...
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
        kinds = ["a leaf" if s is LEAF else s.name for s in (first, second)]
        return place + " against ".join(kinds)
    if first.aux != second.aux:
        return place + f"static {first.aux!r} against {second.aux!r}"
    if len(first.children) != len(second.children):
        return place + f"{len(first.children)} entries against {len(second.children)}"
    if first is LEAF or first.is_none:
        return ""
    for key, a, b in zip(first.keys(), first.children, second.children, strict=True):
        found = difference(a, b, (*path, key))
        if found:
            return found
    return ""


def _match(form: Structure, tree: Any, path: Path, out: list[Any], none: bool) -> None:
    if form is LEAF or (none and tree is None):
        out += [tree] * form.count
        return
    if form.is_none:
        if tree is not None:
            raise StructureError(f"at {key_name(path)}: expected None, found {tree!r}")
        return
    if type(tree) is not form.kind:
        raise StructureError(
            f"at {key_name(path)}: expected {form.name}, "
            f"found {name_of_kind(type(tree))}"
        )
    children, aux = top_level(tree)
    if aux != form.aux or len(children) != len(form.children):
        raise StructureError(
            f"at {key_name(path)}: two {form.name} differ: "
            f"{form} against {structure(tree)}"
            + (f" (static: {form.aux!r} against {aux!r})" if aux != form.aux else "")
        )
    for key, sub, child in zip(form.keys(), form.children, children, strict=True):
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
        elif not form.is_none:
            for key, child in zip(form.keys(), form.children, strict=True):
                walk(child, (*path, key))

    walk(form, ())
    return out


def map_with_path(function: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Like `map`; `function` takes the path first."""
    first, form = flatten(tree)
    others = _corresponding(form, rest)
    return form.unflatten(
        [function(*xs) for xs in zip(paths(form), first, *others, strict=True)]
    )


def all_leaves(values: Iterable[Any]) -> bool:
    """Whether none of the values is a container."""
    return not any(is_container(type(v)) for v in values)


def together(*forms: Structure) -> Structure:
    """The structure of a tuple of pytrees."""
    return Structure(tuple, None, forms)


def constants(form: Structure) -> list[bool]:
    """For each leaf, whether it lies in a node that is registered as constant: such
    leaves (running statistics, caches) have no derivative."""
    out: list[bool] = []

    def walk(form: Structure, inside: bool) -> None:
        if form is LEAF:
            out.append(inside)
        elif not form.is_none:
            inside = inside or form.constant
            for child in form.children:
                walk(child, inside)

    walk(form, False)
    return out

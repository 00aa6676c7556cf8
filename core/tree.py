"""Pytrees: nested tuples, lists, dicts, namedtuples, None and registered classes.

Everything that takes or returns arrays takes and returns pytrees of them. A *leaf* is
whatever is not a registered container. ``None`` is a container without leaves.
"""

from __future__ import annotations

import builtins
import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from treadle.errors import StructureError, at, user_source
from treadle.matching import difference as difference
from treadle.matching import endless
from treadle.matching import flatten_up_to as flatten_up_to
from treadle.selection import Selector as Selector
from treadle.selection import dotted as dotted
from treadle.selection import matches as matches
from treadle.selection import select as select
from treadle.structure import LEAF as LEAF
from treadle.structure import Attribute as Attribute
from treadle.structure import Path as Path
from treadle.structure import Structure as Structure
from treadle.structure import follow as follow
from treadle.structure import is_container, take_apart
from treadle.structure import key_name as key_name
from treadle.structure import kind_of as kind_of
from treadle.structure import open_held as open_held
from treadle.structure import register as register
from treadle.structure import register_dataclass as register_dataclass
from treadle.structure import register_static as register_static

if TYPE_CHECKING:
    from treadle.run.array import Array

T = TypeVar("T")


def flatten(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> tuple[list[Any], Structure]:
    """The leaves, left to right (dicts in key order), and the structure around them.

    Raises:
      StructureError: if a container holds itself, or for more levels than Python's
        recursion limit has.

    >>> flatten({"b": 1, "a": (2, None)})[0]
    [2, 1]
    """
    out: list[Any] = []
    try:
        return out, take_apart(tree, out, is_leaf)
    except RecursionError as error:
        raise (endless(tree) or error) from None


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
            f"{_taken_whole(error.container)}"
        ) from None


def _taken_whole(container: type | None) -> str:
    """How to have a container that is nobody else's passed by `map`, as a line."""
    if container is None or container in (list, tuple, dict):
        return ""
    name = container.__name__
    return (
        f"\nA {name} is a tree of what it holds. To have it passed whole, write "
        f"`is_leaf=lambda x: isinstance(x, {name})`, or give the other tree first."
    )


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


def leaves_with_path(
    tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> list[tuple[Path, Any]]:
    """The leaves, each with its path."""
    return flatten_with_path(tree, is_leaf)[0]


def map_with_path(
    function: Callable[..., Any],
    tree: Any,
    *rest: Any,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Like `map`; `function` takes the path first."""
    first, form = flatten(tree, is_leaf)
    others = _corresponding(form, rest)
    return form.unflatten(
        [function(*xs) for xs in zip(paths(form), first, *others, strict=True)]
    )


_NOTHING = object()


def reduce(
    function: Callable[[Any, Any], Any],
    tree: Any,
    initializer: Any = _NOTHING,
    is_leaf: Callable[[Any], bool] | None = None,
) -> Any:
    """Combines all leaves, from left to right.

    Raises:
      TypeError: if there is no leaf, and nothing to begin with.

    >>> reduce(lambda a, b: a + b, {"x": 1, "y": (2, 3)})
    6
    """
    found = leaves(tree, is_leaf)
    if initializer is not _NOTHING:
        return functools.reduce(function, found, initializer)
    if not found:
        raise TypeError(
            f"tree.reduce of a tree without leaves{at(user_source())}\n"
            "Say what it begins with: `tree.reduce(function, tree, initializer)`."
        )
    return functools.reduce(function, found)


def all(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> bool:
    """Whether all leaves are true.

    >>> all({"x": True, "y": (1, None)})
    True
    """
    return builtins.all(leaves(tree, is_leaf))


def transpose(outer: Structure, inner: Structure | None, tree: Any) -> Any:
    """Turns a tree of trees inside out: `tree` has the structure `outer`, and each leaf
    of that is a tree of the structure `inner` (None: that of the first).

    Raises:
      StructureError: if it is otherwise; it names the place.

    >>> transpose(structure([0, 0]), None, [{"x": 1, "y": 2}, {"x": 3, "y": 4}])
    {'x': [1, 3], 'y': [2, 4]}
    """
    try:
        parts = flatten_up_to(outer, tree)
        if inner is None:
            inner = structure(parts[0]) if parts else LEAF
        columns = []
        for path, part in zip(paths(outer), parts, strict=True):
            form = structure(part)
            if form != inner:
                where = "" if not path else f"at {key_name(path)}, "
                raise StructureError(where + difference(inner, form))
            columns.append(leaves(part))
    except StructureError as error:
        raise StructureError(
            f"tree.transpose of a tree that is not of this structure: {error}"
            f"{at(user_source())}"
        ) from None
    rows = [outer.unflatten(row) for row in zip(*columns, strict=True)]
    return inner.unflatten(rows)


def broadcast(
    prefix: Any, tree: Any, is_leaf: Callable[[Any], bool] | None = None
) -> Any:
    """A tree like `tree`, in which each leaf is that of `prefix` that stands there or
    above it.

    Raises:
      StructureError: if `prefix` is not the upper part of `tree`; it names the place.

    >>> broadcast({"x": 0, "y": 1}, {"x": (5, 5), "y": 5})
    {'x': (0, 0), 'y': 1}
    """
    values, upper = flatten(prefix, is_leaf)
    try:
        parts = flatten_up_to(upper, tree)
    except StructureError as error:
        raise StructureError(
            f"tree.broadcast: the prefix is not the upper part of the tree, {error}"
            f"{at(user_source())}"
        ) from None
    spread: list[Any] = []
    for value, part in zip(values, parts, strict=True):
        spread += [value] * len(leaves(part, is_leaf))
    return structure(tree, is_leaf).unflatten(spread)


def all_leaves(values: Iterable[Any]) -> bool:
    """Whether none of the values is a container."""
    return not any(is_container(type(v)) for v in values)


def together(*forms: Structure) -> Structure:
    """The structure of a tuple of pytrees."""
    return Structure(tuple, None, forms)


def constants(form: Structure) -> list[bool]:
    """For each leaf, whether it lies in a node that is registered as constant, or in a
    constant part of one: such leaves (running statistics, frozen parameters) have no
    derivative."""
    return list(_constants(form))


@functools.lru_cache(maxsize=1024)
def _constants(form: Structure) -> tuple[bool, ...]:
    out: list[bool] = []

    def walk(form: Structure, constant: bool) -> None:
        if constant or form is LEAF:
            out.extend([constant] * form.count)
        elif form.children:
            for child, inside in zip(form.children, form.constants, strict=True):
                walk(child, inside)

    walk(form, False)
    return tuple(out)


class Partial(functools.partial):
    """A function with some arguments, as a pytree: these are its children, the function
    is static. So it can be an argument or result of a transformed function.

    >>> import treadle as td
    >>> add = Partial(lambda a, b: a + b, 2.0)
    >>> td.jit(lambda f, x: f(x) * 10)(add, 1.0)
    Array(30., dtype=float32)
    """


register(
    Partial,
    lambda p: ((p.args, p.keywords), p.func),
    lambda function, c: Partial(function, *c[0], **c[1]),
    lambda function, n: (Attribute("args"), Attribute("keywords")),
)


def ravel(tree: Any) -> tuple[Any, Callable[[Any], Any]]:
    """All leaves as one array with one axis, and the function that makes trees of such
    arrays again. The array's dtype is that to which all promote.

    Raises:
      TypeError: for leaves that are not arrays.

    >>> import treadle.numpy as tnp
    >>> flat, unravel = ravel({"a": tnp.ones((2, 2)), "b": 3.0})
    >>> flat.shape, unravel(flat * 2)["b"]
    ((5,), Array(6., dtype=float32))
    """
    return _on_arrays().ravel(tree)


def equal(tree: Any, *others: Any, rtol: float = 0.0, atol: float = 0.0) -> Any:
    """Whether trees have the same structure and equal leaves: arrays of one shape and
    dtype with equal elements, or close ones, if there is a tolerance as for
    `numpy.allclose`; anything else as `==` says. A bool; an array of one while tracing.

    >>> import treadle.numpy as tnp
    >>> equal({"x": tnp.ones(3)}, {"x": tnp.ones(3)}), equal((1, 2), [1, 2])
    (True, False)
    """
    return _on_arrays().equal(tree, others, rtol, atol)


@functools.cache
def _on_arrays() -> Any:
    """What computes, which stands above this module."""
    return importlib.import_module("treadle.np.trees")

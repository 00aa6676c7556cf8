"""Which axes of the arguments have sizes that vary: as named, or as seen in calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from treadle import tree
from treadle.api.args import argument, name_of, signature_of
from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.errors import at, user_source

Axes = tuple[str | None, ...]
"""For each axis of an array the name of its dimension; None if its length is fixed."""

_WRONG = """\
dynamic={!r}: {}{}
Give the names of axes by argument, such as `dynamic={{"x": ("batch", None)}}`: for \
each axis a name, or None where its length is fixed; for an argument that is a tree, \
the same in a tree like it, or one for all its arrays."""


class Named:
    """The axes that the user has named.

    Raises:
      ValueError: for names of arguments that the function does not have.
      TypeError: for anything else than names of axes.
    """

    def __init__(
        self, function: Callable[..., Any], dynamic: Mapping[str, Any]
    ) -> None:
        if not isinstance(dynamic, Mapping):
            what = "that is no dict of arguments' axes"
            raise TypeError(_WRONG.format(dynamic, what, at(user_source())))
        self._function, self._dynamic = function, dict(dynamic)
        signature = signature_of(function)
        parameters = signature.parameters if signature else {}
        self._names = [p.name for p in parameters.values() if p.kind < p.KEYWORD_ONLY]
        more = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        for name, spec in self._dynamic.items():
            if name not in parameters and not more and signature:
                what = f"{name_of(function)} has no argument {name!r}"
                raise ValueError(_WRONG.format(dynamic, what, at(user_source())))
            self._check(spec)

    def _check(self, spec: Any) -> None:
        for leaf in tree.leaves(spec, is_leaf=_is_axes):
            if not _is_axes(leaf):
                what = f"{leaf!r} names no axes"
                raise TypeError(_WRONG.format(self._dynamic, what, at(user_source())))

    def of(self, form: tree.Structure, types: Sequence[ArrayType]) -> list[Axes]:
        """The axes of each leaf of (args, kwargs)."""
        found: list[Axes] = []
        for place, part in _parts(form):
            spec = self._dynamic.get(self._name(place))
            if spec is None:
                found += [()] * part.count
                continue
            try:
                found += _spread(part, spec)
            except tree.StructureError as error:
                what = f"of {self._name(place)!r}, {error}"
                message = _WRONG.format(self._dynamic, what, at(user_source()))
                raise ValueError(message) from None
        paths = tree.paths(form)
        for i, (axes, t) in enumerate(zip(found, types, strict=True)):
            found[i] = self._fitting(axes, t, paths[i])
        return found

    def _name(self, place: int | str) -> str:
        """Of an argument. Those that `*args` takes go by its name."""
        if isinstance(place, int) and self._names:
            return self._names[min(place, len(self._names) - 1)]
        return str(place)

    def _fitting(self, axes: Any, t: ArrayType, path: tree.Path) -> Axes:
        if not axes:
            return (None,) * t.ndim
        lengths = axes.shape if isinstance(axes, ArrayType) else axes
        given = isinstance(axes, ArrayType)
        wrong = len(lengths) != t.ndim or (
            given
            and (
                axes.dtype != t.dtype
                or any(
                    not is_dim(n) and n != m
                    for n, m in zip(lengths, t.shape, strict=True)
                )
            )
        )
        if wrong:
            raise ValueError(
                f"{argument(self._function, path[1:])} is {t}, but dynamic= says "
                f"{axes!r}{at(user_source())}"
            )
        return tuple([_name_of_axis(n) for n in lengths])

    def sizes(
        self, axes: Sequence[Axes], types: Sequence[ArrayType], form: tree.Structure
    ) -> dict[str, int]:
        """The size of each dimension.

        Raises:
          ValueError: if an axis has two, naming both arguments.
        """
        sizes: dict[str, int] = {}
        first: dict[str, int] = {}
        for i, (names, t) in enumerate(zip(axes, types, strict=True)):
            for name, n in zip(names, t.shape, strict=True):
                if name is None:
                    continue
                if sizes.setdefault(name, n) != n:
                    x, y = [place(self._function, form, j) for j in (first[name], i)]
                    raise ValueError(
                        f"axis {name!r} is {sizes[name]} in {x} and {n} in {y}: a name "
                        f"stands for one size{at(user_source())}"
                    )
                first.setdefault(name, i)
        return sizes


class Pattern:
    """What arguments look like whose sizes are open."""

    def __init__(self, axes: Sequence[Axes], types: Sequence[ArrayType]) -> None:
        triples = zip(range(len(types)), types, axes, strict=True)
        self._open = [(i, t, names) for i, t, names in triples if any(names)]
        self._rest: list[ArrayType | None] = list(types)
        for i, _, _ in self._open:
            self._rest[i] = None

    def sizes(self, types: Sequence[ArrayType]) -> dict[str, int] | None:
        """The size of each dimension; None for types that differ in more than that."""
        sizes: dict[str, int] = {}
        rest: list[Any] = list(types)
        if len(rest) != len(self._rest):
            return None
        for i, like, names in self._open:
            t, rest[i] = rest[i], None
            if (t.dtype, t.weak, t.ndim) != (like.dtype, like.weak, like.ndim):
                return None
            for name, n, length in zip(names, t.shape, like.shape, strict=True):
                known = length if name is None else sizes.setdefault(name, n)
                if known != n:
                    return None
        # (Equal types are one object.)
        return sizes if rest == self._rest else None


def place(function: Callable[..., Any], form: tree.Structure, leaf: int) -> str:
    """How a leaf of (args, kwargs) is written in the function: ``params['w']``."""
    return argument(function, _path(form, leaf)[1:]).split("`")[1]


def _path(form: tree.Structure, leaf: int) -> tree.Path:
    """The path of one leaf, found without those of the others: models have many."""
    path: list[Any] = []
    while form is not tree.LEAF:
        for key, child in zip(form.keys(), form.children, strict=True):
            if leaf < child.count:
                path.append(key)
                form = child
                break
            leaf -= child.count
    return tuple(path)


def _parts(form: tree.Structure) -> list[tuple[Any, tree.Structure]]:
    """Each argument's position or name, and its structure."""
    positional, named = form.children
    pairs: list[tuple[Any, tree.Structure]] = list(enumerate(positional.children))
    return pairs + list(zip(named.keys(), named.children, strict=True))


def _is_axes(spec: Any) -> bool:
    if isinstance(spec, ArrayType) or spec is None:
        return True
    if type(spec) is not tuple or not spec:
        return False
    return all(n is None or type(n) is str for n in spec) and any(spec)


_ARRAY = tree.structure(0)


def _spread(part: tree.Structure, spec: Any) -> list[Any]:
    """The axes of each leaf of an argument, of which some trees may share one."""
    # Of an array, no axis is named; of a tuple, each array is as it is.
    fixed = type(spec) is tuple and not any(spec) and part == _ARRAY
    if fixed or _is_axes(spec):
        return [spec or ()] * part.count
    outer = tree.structure(spec, is_leaf=_is_axes)
    leaves = tree.leaves(spec, is_leaf=_is_axes)
    inner = tree.flatten_up_to(outer, part.unflatten(range(part.count)))
    found: list[Any] = []
    for axes, below in zip(leaves, inner, strict=True):
        found += [axes or ()] * len(tree.leaves(below))
    return found


def _name_of_axis(n: Any) -> str | None:
    if is_dim(n):
        return str(n)
    return n if isinstance(n, str) else None


class Seen:
    """The axes that had several sizes so far. Those whose sizes were equal in every
    call are one dimension."""

    def __init__(self, types: Sequence[ArrayType]) -> None:
        self._first = [n for t in types for n in t.shape]
        self._class: list[Any] = list(self._first)
        self._moving = [False] * len(self._first)
        self._found: list[Axes] | None = None

    def see(self, types: Sequence[ArrayType]) -> None:
        """Remembers the sizes of a call."""
        given = [n for t in types for n in t.shape]
        triples = zip(self._moving, given, self._first, strict=True)
        moving = [m or n != first for m, n, first in triples]
        numbers: dict[tuple, int] = {}
        pairs = zip(self._class, given, strict=True)
        classes = [numbers.setdefault(pair, len(numbers)) for pair in pairs]
        if (moving, classes) != (self._moving, self._class):
            self._moving, self._class, self._found = moving, classes, None

    def of(
        self,
        types: Sequence[ArrayType],
        name: Callable[[int, int], str],
    ) -> list[Axes]:
        """The axes of each leaf. name: of a dimension, from the first leaf and axis
        that has it."""
        if self._found is not None:
            return self._found
        names: dict[Any, str] = {}
        found: list[Axes] = []
        i = 0
        for leaf, t in enumerate(types):
            axes: list[str | None] = []
            for axis in range(t.ndim):
                k = self._class[i]
                if self._moving[i] and k not in names:
                    names[k] = name(leaf, axis)
                axes.append(names[k] if self._moving[i] else None)
                i += 1
            found.append(tuple(axes))
        self._found = found
        return found

    def sizes(
        self, axes: Sequence[Axes], types: Sequence[ArrayType], form: tree.Structure
    ) -> dict[str, int]:
        """The size of each dimension."""
        pairs = zip(axes, types, strict=True)
        return {
            a: n
            for names, t in pairs
            for a, n in zip(names, t.shape, strict=True)
            if a is not None
        }

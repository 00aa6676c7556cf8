"""Models with other parts: replace what stands at a place, split and join."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Any, Generic, NamedTuple, TypeVar, overload

from treadle import tree
from treadle.errors import at as at_line
from treadle.errors import user_source
from treadle.nn.field import parts_in, parts_of
from treadle.nn.module import Module, fields_of
from treadle.nn.sharing import MISSING, Tie, at_place, get
from treadle.nn.show import trainable
from treadle.nn.state import State

_NOT_A_PLACE = (
    "`where` must return a part of its argument, or a tuple of parts, as in "
    "`lambda m: m.layers[0].weight`; it returned {found!r:.60}{at}"
)
_NOTHING = """\
nn.at picks nothing: `where` returned an empty {kind}{at}
The model is a {model}. Look at `print(model)` for its parts; by class, anywhere \
inside: `nn.at(model, nn.Linear)`."""
_NO_PLACE = """\
nn.at picks nothing: `{where}` is no place in this {model}{at}
Near it are {near}. Look at `print(model)` for its parts."""
_NONE_OF = """\
nn.at picks nothing: there is no {kind} in this {model}{at}
Look at `print(model)` for its parts."""


def _compared(operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: operation(_value(self), _value(other))


def _value(x: Any) -> Any:
    return x._value if type(x) is _Place else x


class _Place:
    """A part of a model, and the way to it. Behaves like the part in tests that a
    `where` may make: fields, indices, iteration, `isinstance`, comparisons."""

    __slots__ = ("_path", "_value")

    def __init__(self, value: Any, path: tree.Path) -> None:
        self._value, self._path = value, path

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # `isinstance` asks for it.
        return type(self._value)

    def __getattr__(self, name: str) -> Any:
        if isinstance(self._value, dict) and name in ("keys", "values", "items"):
            pairs = {k: self[k] for k in self._value}
            return getattr(pairs, name)
        return _Place(getattr(self._value, name), (*self._path, tree.Attribute(name)))

    def __getitem__(self, key: Any) -> Any:
        key = _value(key)
        if isinstance(key, slice):
            return [self[i] for i in range(len(self._value))[key]]
        if isinstance(self._value, list | tuple):
            key = range(len(self._value))[key]
        return _Place(self._value[key], (*self._path, key))

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._value, dict):
            return iter(self._value)
        return (self[i] for i in range(len(self._value)))

    def __len__(self) -> int:
        return len(self._value)

    def __contains__(self, item: Any) -> bool:
        return _value(item) in self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __hash__(self) -> int:
        return hash(self._value)

    __eq__, __ne__ = _compared(operator.eq), _compared(operator.ne)
    __lt__, __le__ = _compared(operator.lt), _compared(operator.le)
    __gt__, __ge__ = _compared(operator.gt), _compared(operator.ge)


def _parts(place: _Place) -> Iterator[_Place]:
    """The places directly inside of one."""
    node = place._value
    if isinstance(node, Module):
        yield from [getattr(place, name) for name in fields_of(node)]
    elif isinstance(node, State):
        yield place.value
    elif isinstance(node, dict):
        yield from [place[key] for key in node]
    elif isinstance(node, list | tuple):
        fields = getattr(node, "_fields", None)
        yield from [getattr(place, n) for n in fields] if fields else place
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        yield from [getattr(place, field.name) for field in dataclasses.fields(node)]


def _outermost(place: _Place, is_meant: Callable[[_Place], bool]) -> Iterator[_Place]:
    if is_meant(place):
        yield place
    else:
        for part in _parts(place):
            yield from _outermost(part, is_meant)


def _find(model: Any, where: Any) -> Any:
    """A place or several that a model has: those that `where` of `at` says."""
    root = _Place(model, ())
    if isinstance(where, list | tuple):
        return [place for one in where for place in _all(_find(model, one))]
    if isinstance(where, type):
        return list(_outermost(root, lambda place: isinstance(place._value, where)))
    if isinstance(where, str):
        found = list(_outermost(root, lambda place: tree.matches(where, place._path)))
        one = len(found) == 1 and not {"*", "?"} & set(where)
        return found[0] if one else found
    if isinstance(where, tree.Selector):
        mask, form = tree.flatten(where(model))
        paths = [p for p, x in zip(tree.paths(form), mask, strict=True) if x]
        return [_Place(get(model, path), path) for path in paths]
    return where(root)


def _all(found: Any) -> list[Any]:
    return [found] if type(found) is _Place else list(found)


def _ties(node: Any) -> tuple[Tie, ...]:
    return node._layout.ties if isinstance(node, Module) and node._layout else ()


def _first_place(model: Any, path: tree.Path) -> tree.Path:
    """The first place of what stands at a path, which may be in several."""
    node = model
    for i, key in enumerate(path):
        for first, other in _ties(node):
            if path[i : i + len(other)] == other:
                rest = path[i + len(other) :]
                return _first_place(model, (*path[:i], *first, *rest))
        node = get(node, (key,))
    return path


Model = TypeVar("Model")


class At(NamedTuple, Generic[Model]):
    """Places in a model. Made by `at`."""

    model: Model
    places: tuple[_Place, ...]
    single: bool

    def get(self) -> Any:
        """What stands there: one value, or a tuple."""
        values = tuple(place._value for place in self.places)
        return values[0] if self.single else values

    def set(self, value: Any) -> Model:
        """A model with other values there: a list or tuple of as many as there are
        places, or one value for each of them.

        What stands in two places is replaced in both.

        Raises:
          ValueError: if there are more or fewer values than places.
        """
        several = not self.single and isinstance(value, list | tuple)
        values = tuple(value) if several else (value,) * len(self.places)
        if len(values) != len(self.places):
            raise ValueError(
                f"nn.at(...).set got {len(values)} values for {len(self.places)} "
                f"places{at_line(user_source())}"
            )
        model: Any = self.model
        for place, new in zip(self.places, values, strict=True):
            model = _put(model, place._path, new)
        return model

    def apply(self, function: Callable[[Any], Any]) -> Model:
        """A model where each place holds ``function`` of what it held."""
        values = [function(place._value) for place in self.places]
        return self.set(values[0] if self.single else values)


@overload
def at(
    model: Model, where: str | type[Any] | list[Any] | tuple[Any, ...]
) -> At[Model]: ...
@overload
def at(model: Model, where: Callable[[Model], Any]) -> At[Model]: ...
def at(model: Model, where: Any) -> At[Model]:
    """Places in a model, to `get`, `set` or `apply` a function to what stands there.

    Args:
      model: any pytree; it stays as it is.
      where: one of

        - a function that picks a part of its argument, or a tuple or list of them. A
          part may be an array, a layer, a static field, or a field that is None;
          `isinstance` and `==` tell parts apart (`is None` does not: write `== None`).
        - a path (``"layers.0.weight"``), or a pattern over paths, as for
          `treadle.tree.select` (``"encoder.layers.*.dropout"``): all places that match
          (the outer one of two inside each other).
        - a class: all parts of it, wherever they are (the outer ones).
        - a selector, for the arrays that it means; a list of any of these.

    Raises:
      TypeError: if `where` returns something else.
      ValueError: if it picks nothing, or parts that overlap.

    >>> from treadle import nn, rng
    >>> mlp = nn.MLP((2, 8, 8, 1), key=rng.key(0))
    >>> nn.at(mlp, lambda m: m.activation).set(nn.gelu).activation is nn.gelu
    True
    >>> frozen = nn.at(mlp, lambda m: [l.bias for l in m.layers]).set([None] * 3)
    >>> frozen.layers[0]
    Linear(in_features=2, out_features=8, weight=f32[2,8], bias=None)
    >>> nn.at(mlp, "layers.*.bias").set(None).layers[0].bias is None
    True
    >>> scaled = nn.at(mlp, nn.Linear).apply(lambda l: l.replace(weight=0 * l.weight))
    """
    found = _find(model, where)
    single = type(found) is _Place
    places = (found,) if single else found
    if type(places) not in (tuple, list) or not all(
        type(place) is _Place for place in places
    ):
        raise TypeError(_NOT_A_PLACE.format(found=found, at=at_line(user_source())))
    if not places:
        raise ValueError(_nothing(model, where, found))
    paths = [_first_place(model, place._path) for place in places]
    places = [_Place(p._value, path) for p, path in zip(places, paths, strict=True)]
    if isinstance(where, str | type | list | tuple | tree.Selector):
        # One that stands in two places was found in both.
        places = list({place._path: place for place in places}.values())
        paths = [place._path for place in places]
    for i, path in enumerate(paths):
        for other in paths[:i]:
            if path[: len(other)] == other or other[: len(path)] == path:
                raise ValueError(
                    f"`where` picks {tree.key_name(other)} and {tree.key_name(path)}, "
                    f"which overlap{at_line(user_source())}"
                )
    return At(model, tuple(places), single)


def _nothing(model: Any, where: Any, found: Any) -> str:
    name, source = type(model).__name__, at_line(user_source())
    if isinstance(where, type):
        return _NONE_OF.format(kind=where.__name__, model=name, at=source)
    if isinstance(where, str):
        known = [tree.dotted(place._path) for place in _walk(_Place(model, ()))]
        near = get_close_matches(where, known, cutoff=0.4) or known[1:4]
        return _NO_PLACE.format(
            where=where, model=name, at=source, near=", ".join(near)
        )
    return _NOTHING.format(kind=type(found).__name__, model=name, at=source)


def _walk(place: _Place) -> Iterator[_Place]:
    yield place
    for part in _parts(place):
        yield from _walk(part)


def _put(node: Any, path: tree.Path, value: Any) -> Any:
    """`node` with another value at a place, which is the first of what stands there."""
    if not path:
        return value
    key: Any = path[0]
    rest = path[1:]
    if isinstance(node, Module):
        fields, changed = dict(fields_of(node)), [path]
        name = key.name
        fields[name] = _put(fields[name], rest, value)
        for first, other in _ties(node):
            touched = any(p[: len(first)] == first for p in changed)
            if touched and at_place(fields, other) is not MISSING:
                name = other[0].name  # type: ignore[attr-defined]
                fields[name] = _put(fields[name], other[1:], at_place(fields, first))
                changed.append(other)
        names = {place[0].name for place in changed}  # type: ignore[attr-defined]
        return node.replace(**{name: fields[name] for name in names})
    if isinstance(key, tree.Attribute):
        inside = _put(getattr(node, key.name), rest, value)
        if isinstance(node, State):
            return State(inside)
        if isinstance(node, tuple):
            return node._replace(**{key.name: inside})  # type: ignore[attr-defined]
        return dataclasses.replace(node, **{key.name: inside})
    inside = _put(node[key], rest, value)
    if isinstance(node, dict):
        return node | {key: inside}
    items = [inside if i == key else x for i, x in enumerate(node)]
    return type(node)(*items) if hasattr(node, "_fields") else type(node)(items)


def iterate(model: Any) -> Iterator[tuple[str, Module]]:
    """The modules of a model, each with its path: itself first, then what is inside.
    One that stands in two places comes once.

    >>> from treadle import nn, rng
    >>> [path for path, _ in nn.iterate(nn.MLP((2, 8, 1), key=rng.key(0)))]
    ['', 'layers.0', 'layers.1']
    """
    return _iterate(model, (), set())


def _iterate(
    node: Any, path: tree.Path, seen: set[int]
) -> Iterator[tuple[str, Module]]:
    if not isinstance(node, Module):
        parts = parts_in(node, path)
    elif id(node) in seen:
        return
    else:
        seen.add(id(node))
        yield tree.dotted(path), node
        inside = parts_of(fields_of(node), node._layout.children)  # type: ignore[union-attr]
        parts = ((path + place, part) for place, part in inside)
    for place, part in parts:
        if isinstance(part, Module):
            yield from _iterate(part, place, seen)


def partition(model: Model, where: Any = None) -> tuple[Model, Model]:
    """Two models of the same structure: the leaves that are chosen, and the others,
    with None in the places of the rest.

    To train a part of a model, differentiate in the chosen half:
    ``td.grad(lambda chosen: loss(nn.combine(chosen, rest)))(chosen)``.

    Args:
      where: what `treadle.tree.select` takes: patterns (``"encoder.**.bias"``), a
        class, a function of path and leaf, a mask. By default the trainable arrays are
        chosen (`parameters`).

    >>> from treadle import nn, rng
    >>> layer = nn.Linear(2, 3, key=rng.key(0))
    >>> chosen, rest = nn.partition(layer, "bias")
    >>> chosen.weight is None, rest.bias is None
    (True, True)
    """
    leaves, form = tree.flatten(model)
    if where is None:
        picked = trainable(leaves, form)
    else:
        picked = tree.select(where).flags(leaves, form)
    pairs = list(zip(leaves, picked, strict=True))
    return (
        form.unflatten([x if chosen else None for x, chosen in pairs]),
        form.unflatten([None if chosen else x for x, chosen in pairs]),
    )


def combine(first: Model, second: Any) -> Model:
    """The inverse of `partition`: the leaves of both.

    >>> from treadle import nn, rng
    >>> layer = nn.Linear(2, 3, key=rng.key(0))
    >>> nn.combine(*nn.partition(layer))
    Linear(in_features=2, out_features=3, weight=f32[2,3], bias=f32[3])
    """
    return tree.map(
        lambda a, b: b if a is None else a,
        first,
        second,
        is_leaf=lambda x: x is None,
    )

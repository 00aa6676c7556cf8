"""Models with other parts: replace what stands at a place, split and join."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar, overload

from treadle import tree
from treadle.errors import at as at_line
from treadle.errors import user_source
from treadle.nn.module import Module, fields_of
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


def _of_class(place: _Place, kind: type) -> Iterator[_Place]:
    """The outermost parts of a class."""
    node = place._value
    if isinstance(node, kind):
        yield place
    elif isinstance(node, Module):
        for name in fields_of(node):
            yield from _of_class(getattr(place, name), kind)
    elif isinstance(node, State):
        yield from _of_class(place.value, kind)
    elif isinstance(node, dict):
        for key in node:
            yield from _of_class(place[key], kind)
    elif isinstance(node, list | tuple):
        fields = getattr(node, "_fields", None)
        for part in [getattr(place, n) for n in fields] if fields else place:
            yield from _of_class(part, kind)
    elif dataclasses.is_dataclass(node) and not isinstance(node, type):
        for field in dataclasses.fields(node):
            yield from _of_class(getattr(place, field.name), kind)


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
        """A model with other values there: one, or as many as there are places.

        Raises:
          ValueError: if there are more or fewer values than places.
        """
        values = (value,) if self.single else tuple(value)
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
def at(model: Model, where: type[Any]) -> At[Model]: ...
@overload
def at(model: Model, where: Callable[[Model], Any]) -> At[Model]: ...
def at(model: Model, where: Callable[[Model], Any] | type[Any]) -> At[Model]:
    """Places in a model, to `get`, `set` or `apply` a function to what stands there.

    Args:
      model: any pytree; it stays as it is.
      where: picks a part of its argument, or a tuple or list of them. A part may be an
        array, a layer, a static field, or a field that is None; `isinstance` and `==`
        tell parts apart (`is None` does not: write `== None`). Or a class: all parts of
        it, wherever they are (the outer one of two inside each other).

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
    >>> scaled = nn.at(mlp, nn.Linear).apply(lambda l: l.replace(weight=0 * l.weight))
    """
    if isinstance(where, type):
        found: Any = list(_of_class(_Place(model, ()), where))
    else:
        of_place: Callable[[Any], Any] = where
        found = of_place(_Place(model, ()))
    single = type(found) is _Place
    places = (found,) if single else found
    if type(places) not in (tuple, list) or not all(
        type(place) is _Place for place in places
    ):
        raise TypeError(_NOT_A_PLACE.format(found=found, at=at_line(user_source())))
    if not places:
        text = _NONE_OF if isinstance(where, type) else _NOTHING
        kind = where.__name__ if isinstance(where, type) else type(found).__name__
        name = type(model).__name__
        raise ValueError(text.format(kind=kind, model=name, at=at_line(user_source())))
    paths = [place._path for place in places]
    for i, path in enumerate(paths):
        for other in paths[:i]:
            if path[: len(other)] == other or other[: len(path)] == path:
                raise ValueError(
                    f"`where` picks {tree.key_name(other)} and {tree.key_name(path)}, "
                    f"which overlap{at_line(user_source())}"
                )
    return At(model, tuple(places), single)


def _put(node: Any, path: tree.Path, value: Any) -> Any:
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(key, tree.Attribute):
        inside = _put(getattr(node, key.name), rest, value)
        if isinstance(node, State):
            return State(inside)
        if isinstance(node, tuple):
            return node._replace(**{key.name: inside})  # type: ignore[attr-defined]
        if isinstance(node, Module):
            return node.replace(**{key.name: inside})
        return dataclasses.replace(node, **{key.name: inside})
    inside = _put(node[key], rest, value)
    if isinstance(node, dict):
        return node | {key: inside}
    items = [inside if i == key else x for i, x in enumerate(node)]
    return type(node)(*items) if hasattr(node, "_fields") else type(node)(items)


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

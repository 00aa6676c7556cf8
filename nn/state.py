"""State without threading it by hand: cells, and the scope in which they are written.

A layer keeps what changes between calls (running statistics, a cache) in a `State`, and
writes it in `__call__`. Nobody outside sees the write: `stateful` runs the call on a
copy of the model whose cells are open, closes them, and returns the copy. So a call
stays a pure function of its pytree under jit, grad, vmap and scan. Inside the call, the
cells and the stream of keys are ambient (`td.Ambient`): loops carry them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from types import MethodType
from typing import Any, ParamSpec, TypeVar, overload

import treadle as td
import treadle.numpy as tnp
from treadle import rng, tree
from treadle.errors import at, user_source
from treadle.nn.field import always_child
from treadle.nn.module import Module, fields_of
from treadle.nn.show import describe

_CLOSED = """\
a State cell was written outside of a scope{at}
Training: `output, model = nn.stateful(model, key=key)(x)`, which returns the model \
with its new state.
Evaluation: `output = nn.inference(model)(x)`, which writes nothing.
Inside a scope, a cell that came through the arguments of jit, vmap, scan or another \
transform is closed too: call `nn.stateful` inside the transformed function, and \
return the model. Functions given to scan, cond and remat may also close over the \
layer: `td.remat(layer)(x)`."""
_OTHER_TRANSFORM = """\
a State cell was written inside a jit, vmap, grad… that began after its `nn.stateful` \
scope{at}
The value belongs to that transform. Call `nn.stateful` inside the transformed \
function, and return the model from it."""
_CHANGED = """\
a State cell that holds {old} was written with {new}{at}
Shapes and dtypes of cells stay, so that a step's output is the next step's input."""
_NO_KEY = """\
{layer} needs a random key{at}
Training: `output, model = nn.stateful(model, key=key)(x)`, from which layers draw, or \
pass `key=` to the layer.
Evaluation: `output = nn.inference(model)(x)`."""
_SAME_KEY = """\
{layer} draws a random key inside a vmap, jit, grad… that began after its \
`nn.stateful` scope{at}
It would draw the same key each time that the transformed function runs; under vmap, \
for every example. Draw outside, and open a scope with that key inside.
A key for each example:
  keys = rng.split(nn.draw_key("name"), len(xs))
  td.vmap(lambda x, key: nn.stateful(layer, key=key)(x)[0])(xs, keys)
One key that all examples (or calls) share:
  key = nn.draw_key("name")
  td.vmap(lambda x: nn.stateful(layer, key=key)(x)[0])(xs)"""


class _Scope(td.Ambient):
    """One call under `stateful`: the stream of keys, and the open cells."""

    def __init__(self, key: rng.Key | None, cells: Sequence[State]) -> None:
        self.key, self.drawn = key, 0
        self.cells = [c for c in cells if _is_carried(c)]

    def read(self) -> Any:
        return self.drawn, [cell._value for cell in self.cells]

    def write(self, values: Any) -> None:
        self.drawn, held = values
        for cell, value in zip(self.cells, held, strict=True):
            cell._value = value


class State:
    """A cell for what a layer changes as it is called. A pytree of its value.

    Cells are not trained: `td.grad` gives None there, and optimizers leave them alone.

    >>> from treadle import nn
    >>> class Counter(nn.Module):
    ...     def __init__(self):
    ...         self.calls = nn.State(0)
    ...
    ...     def __call__(self):
    ...         self.calls.value = self.calls.value + 1
    >>> counter = Counter()
    >>> _, after = nn.stateful(counter)()
    >>> counter.calls.value, after.calls.value
    (Array(0, dtype=int32), Array(1, dtype=int32))
    """

    __slots__ = ("__weakref__", "_scope", "_value")

    def __init__(self, value: Any) -> None:
        self._value = tnp.asarray(value) if isinstance(value, _NUMBERS) else value
        self._scope: _Scope | None = None

    @property
    def value(self) -> Any:
        """What the cell holds: an array or a pytree of arrays."""
        return self._value

    @value.setter
    def value(self, new: Any) -> None:
        if self._scope is None:
            raise RuntimeError(_CLOSED.format(at=at(user_source())))
        if self._scope.transform is not td.current_transform():
            raise RuntimeError(_OTHER_TRANSFORM.format(at=at(user_source())))
        if isinstance(new, _NUMBERS):
            new = _as_held(new, self._value)
        if self._value is not None:
            (old, old_form), (types, form) = _types(self._value), _types(new)
            if (old, old_form) != (types, form):
                other = "" if form == old_form else f" as {form} in place of {old_form}"
                raise ValueError(
                    _CHANGED.format(
                        old=old, new=f"{types}{other}", at=at(user_source())
                    )
                )
        self._value = new

    @property
    def is_open(self) -> bool:
        """Whether it may be written here: in a call under `stateful`."""
        scope = self._scope
        return scope is not None and scope.transform is td.current_transform()

    def __reduce__(self) -> Any:
        return _cell, (self._value,)

    def __repr__(self) -> str:
        return describe("State", {"value": self._value})


_NUMBERS = bool | int | float | complex


def _as_held(number: Any, held: Any) -> Any:
    """A Python number as an array: of the dtype that the cell holds, if that can be."""
    if td.is_array(held) and tnp.result_type(held, number) == held.dtype:
        return tnp.asarray(number, held.dtype)
    return tnp.asarray(number)


def _types(value: Any) -> tuple[list[Any], tree.Structure]:
    leaves, form = tree.flatten(value)
    return [td.typeof(x).strong() for x in leaves], form


def _cell(value: Any) -> State:
    cell = object.__new__(State)
    cell._value, cell._scope = value, None
    return cell


def _children(cell: State) -> tuple[Sequence[Any], None]:
    return (cell._value,), None


tree.register(
    State,
    _children,
    lambda _, children: _cell(children[0]),
    lambda _, n: [tree.Attribute("value")],
    constant=True,
)
always_child(State)


Model = TypeVar("Model")
Layer = TypeVar("Layer", bound=Module)
P = ParamSpec("P")
R = TypeVar("R")


@overload
def stateful(
    model: Layer, *, key: rng.Key | None = None
) -> Callable[..., tuple[Any, Layer]]: ...
@overload
def stateful(
    model: Callable[P, R], *, key: rng.Key | None = None
) -> Callable[P, tuple[R, Any]]: ...
def stateful(
    model: Any, *, key: rng.Key | None = None
) -> Callable[..., tuple[Any, Any]]:
    """Calls a model that changes: gives its output, and the model with its new state.

    Args:
      model: a Module, or a method of one (``nn.stateful(model.encode)``); it stays as
        it is.
      key: the random key of this call. Layers that were not passed one (`Dropout`)
        draw from it, each time another one.

    >>> import treadle.numpy as tnp
    >>> from treadle import nn, rng
    >>> norm = nn.BatchNorm(2)
    >>> output, after = nn.stateful(norm)(tnp.array([[1.0, 2.0], [3.0, 6.0]]))
    >>> output
    Array([[-1., -1.],
           [ 1.,  1.]], dtype=float32)
    >>> after.mean.value
    Array([0.2, 0.4], dtype=float32)
    """

    if not callable(model):
        raise TypeError(
            "stateful takes a Module or a method of one, got "
            f"{type(model).__name__}{at(user_source())}"
        )

    def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        is_method = isinstance(model, MethodType)
        changed = tree.map(lambda x: x, model.__self__ if is_method else model)
        run = partial(model.__func__, changed) if is_method else changed
        cells = [x for x in tree.leaves(changed, _is_cell) if _is_cell(x)]
        scope = _Scope(key, cells)
        for cell in cells:
            cell._scope = scope
        try:
            with scope.opened():
                return run(*args, **kwargs), changed
        finally:
            for cell in cells:
                cell._scope = None

    return call


def _is_cell(x: Any) -> bool:
    return type(x) is State


def _is_carried(cell: State) -> bool:
    """Whether loops can carry what a cell holds."""
    return all(td.is_array(x) or isinstance(x, _NUMBERS) for x in tree.leaves(cell))


def draw_key(layer: str) -> rng.Key:
    """A random key for a layer that was not passed one, from the scope's stream.

    Args:
      layer: who asks, for error messages.

    The k-th draw gives ``rng.fold_in(key, k)``, also in the bodies of `td.scan`, other
    loops, branches and `td.remat`, which draw what plain Python would.

    Raises:
      RuntimeError: outside of `stateful` with a key, and inside a vmap, jit or grad
        that began after it (all examples of a vmap would get one key).

    >>> from treadle import nn, rng
    >>> class Noise(nn.Module):
    ...     def __call__(self, x):
    ...         return x + rng.normal(nn.draw_key("Noise"), x.shape)
    >>> output, _ = nn.stateful(Noise(), key=rng.key(0))(tnp.ones(3))
    >>> output.shape
    (3,)
    """
    for scope in reversed(td.ambients()):
        if not isinstance(scope, _Scope) or scope.key is None:
            continue
        if scope.transform is not td.current_transform():
            raise RuntimeError(_SAME_KEY.format(layer=layer, at=at(user_source())))
        scope.drawn = scope.drawn + 1
        return rng.fold_in(scope.key, scope.drawn)
    raise RuntimeError(_NO_KEY.format(layer=layer, at=at(user_source())))


def inference(model: Model) -> Model:
    """The model for evaluation: no dropout, running statistics, nothing written.

    It is a copy in which every field named `inference` is True; layers of your own may
    have one. `training` is the way back.

    >>> from treadle import nn
    >>> nn.inference(nn.Dropout(0.5))
    Dropout(rate=0.5, broadcast_axes=(), inference=True)
    """
    return _switch(model, True)


def training(model: Model) -> Model:
    """The model for training: the inverse of `inference`.

    >>> from treadle import nn
    >>> nn.training(nn.inference(nn.Dropout(0.5)))
    Dropout(rate=0.5, broadcast_axes=(), inference=False)
    """
    return _switch(model, False)


def _switch(model: Model, to: bool) -> Model:
    def change(module: Module) -> dict[str, Any]:
        switches = fields_of(module).get("inference") is (not to)
        return {"inference": to} if switches else {}

    return changed(model, change)


def changed(model: Model, change: Callable[[Module], dict[str, Any]]) -> Model:
    """A model in which modules have other static fields: those that `change` gives."""
    return _changed(model, change, {})


_Change = Callable[[Module], dict[str, Any]]


def _changed(node: Any, change: _Change, known: dict[int, Any]) -> Any:
    """known: what became of each module. One in two places stays one."""
    if isinstance(node, Module):
        if id(node) not in known:
            new = _entries(fields_of(node), change, known) | change(node)
            known[id(node)] = node.replace(**new) if new else node
        return known[id(node)]
    if type(node) is dict:
        new = _entries(node, change, known)
        return node | new if new else node
    items, form = _opened(node)
    found = [_changed(x, change, known) for x in items]
    if all(new is old for new, old in zip(found, items, strict=True)):
        return node
    return form(found)


def _opened(node: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """What a node holds, which may be static, and how to make it of such a list."""
    if type(node) in (list, tuple):
        return list(node), type(node)
    if hasattr(node, "_fields"):
        return list(node), lambda items: type(node)(*items)
    if tree.all_leaves([node]):
        return [], lambda items: node
    items, form = tree.flatten(node, is_leaf=lambda x: x is not node)
    return items, form.unflatten


def _entries(
    items: dict[Any, Any], change: _Change, known: dict[int, Any]
) -> dict[Any, Any]:
    """The entries in which something changed."""
    return {
        name: new
        for name, value in items.items()
        if (new := _changed(value, change, known)) is not value
    }

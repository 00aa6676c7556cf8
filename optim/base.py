"""The unit of this package: a pair `init`, `update`; and what all pairs are made with.

Gradients have the structure of the parameters, with None where nothing is to be trained
(integers, keys, state cells, frozen parts). So do optimizer states and updates.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import treadle as td
from treadle import tree
from treadle.errors import at, on_one_line, user_source
from treadle.optim.leaves import positions, settle, trainable

_NOTHING = """\
{name}.init: there is nothing to train in {what}: all its arrays are frozen, buffers, \
state or integers{at}
`nn.unfreeze` lets them be trained again; integers have no gradients."""

# A part of a model may be frozen as a whole, where another transform has the rest.
_inside: ContextVar[bool] = ContextVar("inside", default=False)

T = TypeVar("T")
Init = Callable[[Any], Any]
Update = Callable[..., tuple[Any, Any]]


@dataclass(frozen=True, eq=False)
class Transform:
    """A gradient transform; an optimizer is one whose results are ready to be added.

    init: ``(params) -> state``, a pytree. Parameters of which none can be trained are a
      ValueError.
    update: ``(grads, state, params, **extra) -> (updates, state)``; `params` may be
      left out where the transform does not look at them. A transform that needs more,
      such as the loss, takes it by keyword: ``value=loss``. What a transform's function
      does not name is not given to it, so every transform may be called with extras.

    >>> import treadle.numpy as tnp
    >>> halve = Transform(lambda p: (), lambda g, s, p=None: (tree.map(_half, g), s))
    >>> _half = lambda g: 0.5 * g
    >>> halve.update({"w": tnp.ones(2)}, halve.init(None))
    ({'w': Array([0.5, 0.5], dtype=float32)}, ())
    """

    init: Init
    update: Update
    name: str = "transform"

    def __post_init__(self) -> None:
        object.__setattr__(self, "init", _of_trainable(self.init, self.name))
        object.__setattr__(self, "update", with_extras(self.update))

    def __repr__(self) -> str:
        return f"<{self.name}>"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            remedy = _REMEDIES.get(name, "")
            raise AttributeError(
                f"an optimizer has no `{name}`{at(user_source())}{remedy}",
                name=name,
                obj=self,
            )


_STEP = (
    "\nIt is functions: `updates, state = optimizer.update(grads, state, params)`, "
    "then `params = optim.apply_updates(params, updates)`."
)
_REMEDIES = {
    "step": _STEP,
    "minimize": _STEP,
    "apply_gradients": _STEP,
    "zero_grad": "\nGradients are results of `td.grad`, and nowhere added up.",
    "state_dict": "\nWhat `optimizer.init(params)` gives is a pytree, to be saved.",
    "param_groups": "\nEach group has its optimizer: `optim.partition`.",
    "lr": "\nNumbers are in the state: `optim.hyperparameters(state)`.",
    "learning_rate": "\nNumbers are in the state: `optim.hyperparameters(state)`.",
}


def stateless(function: Callable[[Any, Any], Any]) -> Transform:
    """A transform of a function ``(grads, params) -> updates`` that remembers nothing.

    >>> import treadle.numpy as tnp
    >>> signs = stateless(lambda grads, params: tree.map(tnp.sign, grads))
    >>> signs.update({"w": tnp.array([-2.0, 3.0])}, signs.init(None))[0]
    {'w': Array([-1.,  1.], dtype=float32)}
    """

    def update(grads: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        return function(grads, params), state

    return Transform(lambda params: (), update, "stateless")


def _of_trainable(function: Init, name: str) -> Init:
    """The function, which refuses parameters of which none can be trained."""

    @wraps(function)
    def init(params: Any) -> Any:
        if _inside.get():
            return function(params)
        which = trainable(params)
        if which and not any(which):
            what = f"this {type(params).__name__}"
            raise ValueError(
                _NOTHING.format(name=name, what=what, at=at(user_source()))
            )
        before = _inside.set(True)
        try:
            return function(params)
        finally:
            _inside.reset(before)

    return init


def with_extras(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself if it takes any keyword; else one that leaves out those that
    it has no name for."""
    names = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in names.values()):
        return function

    def chosen(*args: Any, **extra: Any) -> Any:
        return function(*args, **{n: v for n, v in extra.items() if n in names})

    return chosen


class Record:
    """A state that shows its numbers, and of its trees only how large they are."""

    def __repr__(self) -> str:
        parts = [f"{name}={_summary(value)}" for name, value in vars(self).items()]
        return f"{type(self).__name__}({', '.join(parts)})"


def _summary(value: Any) -> str:
    if isinstance(value, Record) or tree.all_leaves([value]):
        return repr(value)
    types = [td.typeof(leaf) for leaf in tree.leaves(value)]
    numbers = sum(t.size for t in types)
    return f"<{type(value).__name__} of {len(types)} arrays, {numbers} numbers>"


def apply_updates(params: T, updates: Any) -> T:
    """``params + updates``, in the dtypes of the parameters.

    Leaves whose update is None stay as they are.

    >>> import treadle.numpy as tnp
    >>> apply_updates({"w": tnp.ones(2), "n": 3}, {"w": tnp.ones(2), "n": None})
    {'n': 3, 'w': Array([2., 2.], dtype=float32)}
    """
    steps, form = tree.flatten(updates)
    leaves, whole = tree.flatten(params)
    places = positions(form, whole, "the parameters")
    with on_one_line():
        for i, step in zip(places, steps, strict=True):
            leaves[i] = settle(leaves[i], leaves[i] + step)
    return whole.unflatten(leaves)


def check_state(state: Any, kind: type, name: str) -> None:
    """
    Raises:
      TypeError: if a state is not the one that this transform's `init` makes.
    """
    if type(state) is not kind:
        raise TypeError(
            f"{name}.update got a {type(state).__name__} as its state, not the "
            f"{kind.__name__} that {name}.init makes{at(user_source())}\n"
            "Its arguments are (grads, state, params)."
        )


def check_params(params: Any, grads: Any, name: str) -> None:
    """
    Raises:
      ValueError: if the parameters were left out.
    """
    if params is None and grads is not None:
        raise ValueError(
            f"{name} needs the parameters{at(user_source())}\n"
            "Pass them last: `optimizer.update(grads, state, params)`."
        )

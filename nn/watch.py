"""Seeing inside a model: what its layers give, and changing that."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from types import MethodType
from typing import Any

import treadle as td
from treadle import tree
from treadle.errors import at, user_source
from treadle.nn.module import Module
from treadle.scopes import current, joined

_NOTHING = """\
capture: no layer was called that `where` means: {where}{at}
{called}"""
_NEVER = """\
capture: nothing was seen at {name!r}, which `edit` changes{at}
{called}"""
_ELSEWHERE = """\
Not seen were those inside of a jit, grad, cond or while_loop of the model's own: {}"""

Where = Callable[[str, Any], bool] | type | str | Sequence[Any]


def capture(
    model: Callable[..., Any],
    where: Where | None = None,
    *,
    edit: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Callable[..., tuple[Any, dict[str, Any]]]:
    """Calls a model, and gives its output and what its layers gave, by path.

    The path of a layer has dots, ``encoder.layers.2.attention``; its second call in one
    of the model is ``path#2``. What `record` names stands
    there, too. In a `td.scan` (so in `RNN` and `Stack`) or `td.vmap` of the model's own
    values are stacked. Inside a jit, grad, cond or while_loop of its own nothing is
    seen; around `capture`, all transforms are welcome.

    Args:
      model: a Module, a method of one, or ``nn.stateful(model, key=key)``.
      where: which layers: a class, a pattern over paths as for `tree.select`
        (``"encoder.layers.*"``), a function ``(path, layer) -> bool``, or a list of
        these. None: all, but for the model itself.
      edit: functions by path, which change what a layer gave before others see it: to
        see what a layer is for, or for the gradient at it (below).

    Raises:
      ValueError: when called, if `where` means none of the layers that were seen, or
        nothing was seen at a path of `edit`.

    >>> import treadle as td, treadle.numpy as tnp
    >>> from treadle import nn, rng
    >>> mlp, x = nn.MLP((2, 8, 1), key=rng.key(0)), tnp.ones((3, 2))
    >>> output, found = nn.capture(mlp)(x)
    >>> {path: value.shape for path, value in found.items()}
    {'layers.0': (3, 8), 'layers.1': (3, 1)}
    >>> def loss(change):
    ...     edit = {"layers.0": lambda hidden: hidden + change}
    ...     return nn.capture(mlp, edit=edit)(x)[0].sum()
    >>> td.grad(loss)(tnp.zeros((3, 8))).shape
    (3, 8)
    """
    if not callable(model):
        raise TypeError(
            f"capture takes a Module or a function, got {type(model).__name__}"
            f"{at(user_source())}"
        )
    chosen = _choice(where)

    @wraps(model)
    def call(*args: Any, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        seen = _Seen(chosen, dict(edit or {}))
        owner = model.__self__ if isinstance(model, MethodType) else None
        with seen.opened(), watching(seen.output_of, owner):
            output = model(*args, **kwargs)
        seen.check(where)
        return output, seen.entries

    return call


def record(name: str, value: Any) -> Any:
    """Shows a value, a pytree of arrays, to a `capture` around: by its name, after the
    path of the layer that runs. Gives the value; without a capture it does only that.

    >>> import treadle.numpy as tnp
    >>> from treadle import nn
    >>> class Halved(nn.Module):
    ...     def __call__(self, x):
    ...         return nn.record("half", x / 2) + 1
    >>> nn.capture(Halved())(tnp.ones(2))[1]
    {'half': Array([0.5, 0.5], dtype=float32)}
    """
    if current.place.watch is None:
        return value
    return current.place.watch(name, (), {}, value)


class _Seen(td.Collection):
    """What one call of a model under `capture` shows."""

    def __init__(
        self,
        chosen: Callable[[str, Any], bool],
        edit: Mapping[str, Callable[[Any], Any]],
    ) -> None:
        super().__init__()
        self.chosen, self.edit = chosen, edit
        self.paths: dict[str, bool] = {}

    def output_of(self, path: str, layer: Any, _: Any, __: Any, output: Any) -> Any:
        """Takes the output of a layer, or what `record` was given with its name."""
        self.paths[path] = self.is_here or self.paths.get(path, False)
        if not self.is_here:
            return output
        if path in self.edit:
            output = self.edit[path](output)
        if path and self.chosen(path, layer) and _is_shown(output):
            self.add(path, output)
        return output

    def check(self, where: Any) -> None:
        """
        Raises:
          ValueError: if nothing was seen where something was asked for.
        """
        if where is not None and not self.entries:
            raise ValueError(
                _NOTHING.format(
                    where=_shown(where), at=at(user_source()), called=self._called("")
                )
            )
        for name in self.edit:
            if not self.paths.get(name):
                raise ValueError(
                    _NEVER.format(
                        name=name, at=at(user_source()), called=self._called(name)
                    )
                )

    def _called(self, name: str) -> str:
        """Which layers were called, those of names like this one first."""
        here = [path for path, seen in self.paths.items() if seen and path]
        near = get_close_matches(name, here, 5, 0.4) or here[:5]
        lines = [f"Called were: {', '.join(near) or '(none)'}"]
        hidden = [path for path, seen in self.paths.items() if not seen]
        if hidden:
            lines.append(_ELSEWHERE.format(", ".join(hidden[:5])))
        return "\n".join(lines)


def _shown(where: Any) -> str:
    if isinstance(where, list | tuple):
        return ", ".join(map(_shown, where))
    return str(getattr(where, "__name__", where))


def _is_shown(output: Any) -> bool:
    leaves = tree.leaves(output)
    return bool(leaves) and all(map(td.is_array, leaves))


def _choice(where: Where | None) -> Callable[[str, Any], bool]:
    if where is None:
        return lambda path, layer: True
    if isinstance(where, list | tuple):
        several = [_choice(one) for one in where]
        return lambda path, layer: any(chosen(path, layer) for chosen in several)
    if isinstance(where, str):
        return lambda path, layer: tree.matches(where, tuple(path.split(".")))
    if isinstance(where, type):
        return lambda path, layer: isinstance(layer, where)
    if callable(where):
        return where
    raise TypeError(
        "capture: `where` is a class, a pattern, a function of path and layer, or a "
        f"list of these; got {where!r:.60}{at(user_source())}"
    )


@contextmanager
def watching(
    told: Callable[[str, Any, tuple, dict[str, Any], Any], Any], owner: Any = None
) -> Iterator[None]:
    """Tells a function of each call of a layer, after it: its path, the layer, the
    arguments, the output. It gives the output in its stead.

    owner: the module whose method is called, if that has another name.
    """
    place = current.place
    before = place.path, place.layer, place.watch
    base, outer = place.whole, place.watch

    def watch(layer: Any, args: tuple, kwargs: dict[str, Any], output: Any) -> Any:
        path = place.whole
        if not isinstance(layer, Module):
            path = joined(path, layer)
        inside = _dotted(path[len(base) :])
        output = told(inside, layer, args, kwargs, output)
        return output if outer is None else outer(layer, args, kwargs, output)

    place.layer, place.watch = owner, watch
    try:
        yield
    finally:
        place.path, place.layer, place.watch = before


def _dotted(path: str) -> str:
    """A place as `tree.select` writes it: ``layers[0]['a']`` is ``layers.0.a``."""
    return re.sub(r"\['?(.*?)'?\]", r".\1", path).lstrip(".")

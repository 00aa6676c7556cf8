"""Values of programs while they run: print and callback.

>>> import treadle as td
>>> @td.jit
... def f(x):
...     td.debug.print("x is {:.2f}", x)
...     return x * x
>>> f(3.0)
x is 3.00
Array(9., dtype=float32)
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import tree
from treadle.api.args import is_operand, name_of
from treadle.api.boundary import boundary
from treadle.api.callbacks import effect_on_host
from treadle.dims import hint
from treadle.errors import at, user_source
from treadle.trace.value import is_array


@boundary
def callback(
    function: Callable[..., None], *args: Any, ordered: bool = True, **kwargs: Any
) -> None:
    """Calls a Python function with NumPy arrays each time the program comes by.

    Derivatives pass it by; under `vmap` it is called for each example that comes by.

    Args:
      args, kwargs: pytrees of arrays; what is neither an array nor a number (a name, a
        function) gets to `function` as it is.
      ordered: says that the order matters; calls are in the program's order anyway.

    >>> import treadle as td
    >>> seen = {}
    >>> @td.jit
    ... def f(x):
    ...     td.debug.callback(lambda name, x: seen.update({name: float(x)}), "x", x)
    ...     return x * x
    >>> _ = f(3.0)
    >>> seen
    {'x': 3.0}
    """
    del ordered
    given, arrays = _apart(args, kwargs, is_operand)
    effect_on_host(_Quiet(function, given), arrays, {})


@dataclass(frozen=True)
class _Given:
    """The arguments of a call without its arrays; the rest stands in `fixed`."""

    form: tree.Structure
    fixed: tuple[tuple[int, Any], ...]

    def whole(self, arrays: Iterable[Any]) -> Any:
        rest, known = iter(arrays), dict(self.fixed)
        return self.form.unflatten(
            [known[i] if i in known else next(rest) for i in range(self.form.count)]
        )


def _apart(
    args: Any, kwargs: dict[str, Any], is_kept: Callable[[Any], bool]
) -> tuple[_Given, list[Any]]:
    """Arguments as what is known of them, and the arrays among them."""
    leaves, form = tree.flatten((args, kwargs))
    kept = [is_kept(x) for x in leaves]
    fixed = tuple((i, x) for i, x in enumerate(leaves) if not kept[i])
    return _Given(form, fixed), [x for x, k in zip(leaves, kept, strict=True) if k]


@dataclass(frozen=True)
class _Quiet:
    """A function whose result is ignored."""

    function: Callable[..., Any]
    given: _Given

    @property
    def __name__(self) -> str:
        return name_of(self.function)

    def __call__(self, *arrays: Any) -> None:
        args, kwargs = self.given.whole(arrays)
        self.function(*args, **kwargs)


@dataclass(frozen=True)
class _Printer:
    """Prints by a format."""

    format: str
    given: _Given

    def __call__(self, *arrays: Any) -> None:
        builtins.print(self.text(arrays))

    def text(self, arrays: Any) -> str:
        args, kwargs = self.given.whole([x[()] for x in arrays])
        return self.format.format(*args, **kwargs)


@boundary
def print(format: str, *args: Any, ordered: bool = True, **kwargs: Any) -> None:
    """Prints values each time the program comes by, also in compiled code.

    Args:
      format: as for `str.format`; its fields are the arguments, arrays or pytrees.
      ordered: says that the order matters; lines are in the program's order anyway.

    Raises:
      IndexError, KeyError, ValueError, TypeError: if the format does not fit the
        arguments, at once rather than when the program runs.

    >>> import treadle as td
    >>> td.debug.print("{} and {y}", 1, y=2)
    1 and 2
    """
    del ordered
    given, arrays = _apart(args, kwargs, is_array)
    try:
        fixed = tuple([(i, hint(x)) for i, x in given.fixed])
        trial = _Printer(format, _Given(given.form, fixed))
        trial.text([np.zeros([*map(hint, x.shape)], x.dtype) for x in arrays])
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise type(error)(
            f"debug.print({format!r}): the format does not fit its arguments: {error}"
            f"{at(user_source())}"
        ) from None
    effect_on_host(_Printer(format, given), arrays, {})

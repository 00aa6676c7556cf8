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
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from treadle import tree
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
      args, kwargs: pytrees of arrays.
      ordered: says that the order matters; calls are in the program's order anyway.
    """
    del ordered
    effect_on_host(_Quiet(function), args, kwargs)


@dataclass(frozen=True)
class _Quiet:
    """A function whose result is ignored."""

    function: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        self.function(*args, **kwargs)


@dataclass(frozen=True)
class _Printer:
    """Prints by a format. Values that are not arrays stand in `fixed`."""

    format: str
    form: tree.Structure
    fixed: tuple[tuple[int, Any], ...]

    def __call__(self, *arrays: Any) -> None:
        builtins.print(self.text(arrays))

    def text(self, arrays: Any) -> str:
        rest = iter(arrays)
        known = dict(self.fixed)
        values = [
            known[i] if i in known else next(rest)[()] for i in range(self.form.count)
        ]
        args, kwargs = self.form.unflatten(values)
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
    leaves, form = tree.flatten((args, kwargs))
    traced = [is_array(x) for x in leaves]
    fixed = tuple(
        (i, x) for i, (x, t) in enumerate(zip(leaves, traced, strict=True)) if not t
    )
    printer = _Printer(format, form, fixed)
    arrays = [x for x, t in zip(leaves, traced, strict=True) if t]
    try:
        trial = _Printer(format, form, tuple([(i, hint(x)) for i, x in fixed]))
        trial.text([np.zeros([*map(hint, x.shape)], x.dtype) for x in arrays])
    except (IndexError, KeyError, ValueError, TypeError) as error:
        raise type(error)(
            f"debug.print({format!r}): the format does not fit its arguments: {error}"
            f"{at(user_source())}"
        ) from None
    effect_on_host(printer, arrays, {})

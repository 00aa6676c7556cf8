"""Elementwise functions that are made of an operation, a name and a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from treadle.np.operands import ArrayLike, as_inexact
from treadle.run.array import Array
from treadle.trace.op import Op

Unary = Callable[[ArrayLike], Array]
_Function = TypeVar("_Function", bound=Callable)


def named(function: _Function, name: str, doc: str) -> _Function:
    """Gives a function made by another the name and docstring that users see."""
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def floating_function(op: Op, name: str, doc: str) -> Unary:
    """A function whose result is inexact: integers become float32."""

    def function(x: ArrayLike, /) -> Array:
        return op(as_inexact(name, x))

    return named(function, name, doc)

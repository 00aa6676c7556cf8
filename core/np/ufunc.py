"""What a function of two operands is besides: NumPy's name for it is ufunc.

`reduce`, `accumulate`, `reduceat`, `outer` and `at` are attributes of plain functions
(`treadle.np.ufuncs` sets them): a call of such a function costs what it did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from treadle.dtypes import DTypeLike
from treadle.np.operands import ArrayLike, Axis
from treadle.run.array import Array


class Ufunc(Protocol):
    """A function of two operands, elementwise, and what can be made of it."""

    __name__: str
    __qualname__: str
    nin: int
    nout: int
    identity: Any

    def __call__(self, x: ArrayLike, y: ArrayLike, /) -> Array: ...

    def reduce(
        self,
        x: ArrayLike,
        axis: Axis = 0,
        dtype: DTypeLike | None = None,
        keepdims: bool = False,
        initial: ArrayLike | None = None,
        where: ArrayLike | None = None,
    ) -> Array:
        """All elements along axes combined, from the first to the last."""

    def accumulate(
        self, x: ArrayLike, axis: int = 0, dtype: DTypeLike | None = None
    ) -> Array:
        """What `reduce` has come to at each place along an axis."""

    def reduceat(
        self,
        x: ArrayLike,
        indices: ArrayLike,
        axis: int = 0,
        dtype: DTypeLike | None = None,
    ) -> Array:
        """Pieces of an axis reduced: each from an index to the next one."""

    def outer(self, x: ArrayLike, y: ArrayLike) -> Array:
        """The function of each element of x with each of y."""

    def at(
        self, x: ArrayLike, indices: Any, y: ArrayLike, *, inplace: bool = True
    ) -> Array:
        """x with the elements at places combined with y, repeated places in turn."""


def ufunc(function: Callable[[ArrayLike, ArrayLike], Array]) -> Ufunc:
    """Says of a function that it is one."""
    return cast(Ufunc, function)

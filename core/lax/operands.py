"""What functions of this level do with their arguments: nothing is promoted or
broadcast without being asked to."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim
from treadle.errors import TracerError, at, user_source
from treadle.np.operands import PYTHON_SCALARS, ArrayLike, as_array, cast, operand
from treadle.trace.value import typeof

Ints = tuple[int, ...]


def array(name: str, x: ArrayLike) -> Any:
    """The argument as an array of ours; a Python number has its default dtype.

    Raises:
      TypeError: if it is neither.
    """
    return as_array(operand(name, x))


def alike(name: str, *args: ArrayLike) -> list[Any]:
    """Operands of an elementwise function: of one shape and dtype, or scalars. A number
    of Python's takes the dtype of the others.

    Raises:
      TypeError: for different dtypes; ValueError: for different shapes.
    """
    xs = [operand(name, x) for x in args]
    known = [typeof(x) for x in xs if type(x) not in PYTHON_SCALARS]
    if not known:
        return [as_array(x) for x in xs]
    dtype = known[0].dtype
    if any([t.dtype != dtype for t in known]):
        raise TypeError(
            f"{name} of different dtypes: {', '.join(map(repr, known))}"
            f"{at(user_source())}\nAt this level nothing is converted without a word: "
            "`td.lax.convert_element_type(x, dtype)`,\nor use `treadle.numpy`, where "
            "dtypes promote."
        )
    shapes = [t.shape for t in known if t.shape]
    if any([s != shapes[0] for s in shapes]):
        raise ValueError(
            f"{name} of different shapes: {', '.join(map(repr, known))}"
            f"{at(user_source())}\nAt this level nothing is broadcast without a word: "
            "`td.lax.broadcast_in_dim`,\nor use `treadle.numpy`, where shapes "
            "broadcast."
        )
    return [_fitting(name, x, dtype) if type(x) in PYTHON_SCALARS else x for x in xs]


def _fitting(name: str, number: Any, dtype: np.dtype) -> Any:
    """A number of Python's with a dtype that it can have."""
    kinds = "biufc".index(dtypes.of_scalar(number).kind)
    own = "f" if dtypes.is_float(dtype) else dtype.kind
    if kinds > "biufc".index(own) and not (own == "u" and type(number) is int):
        raise TypeError(
            f"{name}: {number!r} beside an array of dtype {dtype.name}"
            f"{at(user_source())}\nConvert the array: "
            "`td.lax.convert_element_type(x, dtype)`."
        )
    return cast(number, dtype)


def scalar_of(name: str, x: ArrayLike, dtype: np.dtype) -> Any:
    """A scalar of a dtype: the value of padding, or where a reduction starts.

    Raises:
      TypeError: if it is no scalar, or an array of another dtype.
    """
    found = operand(name, x)
    t = typeof(found)
    plain = type(found) in PYTHON_SCALARS
    if t.shape or (not plain and t.dtype != dtype):
        raise TypeError(
            f"{name}: a scalar of dtype {dtype.name} expected, got {t}"
            f"{at(user_source())}"
        )
    return _fitting(name, found, dtype) if plain else found


def ints(name: str, option: str, values: Any, count: int | None = None) -> Ints:
    """Integers that are known while tracing.

    Raises:
      TypeError: if they are no integers; ValueError: if there are not `count` of them.
    """
    try:
        found = tuple([n if is_dim(n) else index(n) for n in values])
    except TracerError:
        raise
    except TypeError:
        raise TypeError(
            f"{name}: {option} is a sequence of integers, got {values!r:.80}"
            f"{at(user_source())}"
        ) from None
    if count is not None and len(found) != count:
        raise ValueError(
            f"{name}: {option} has {len(found)} entries, {count} expected: {found}"
            f"{at(user_source())}"
        )
    return found


def places(name: str, axes: Any, rank: int) -> Ints:
    """Different axes as numbers from 0, in the order in which they were given.

    Raises:
      ValueError: if there is no such axis, or one is named twice.
    """
    given = ints(name, "axes", axes)
    found = tuple([a + rank if a < 0 else a for a in given])
    if any(not 0 <= a < rank for a in found) or len(set(found)) != len(found):
        raise ValueError(
            f"{name}: axes {given} of an array with {rank} axes: each from {-rank} to "
            f"{rank - 1}, and once{at(user_source())}"
        )
    return found


def place(name: str, axis: Any, rank: int) -> int:
    """One axis as a number from 0."""
    return places(name, (axis,), rank)[0]


def all_alike(name: str, arrays: Sequence[Any]) -> None:
    """
    Raises:
      ValueError: unless all arrays have one shape.
    """
    types = [typeof(x) for x in arrays]
    if not types or any([t.shape != types[0].shape for t in types]):
        raise ValueError(
            f"{name} takes one array or more, of one shape; got "
            f"{', '.join(map(repr, types)) or 'none'}{at(user_source())}"
        )

"""What the functions of linear algebra do with their arguments."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.np.complex_parts import conj
from treadle.np.matrices import eye
from treadle.np.operands import (
    as_array,
    as_inexact,
    broadcast_to_shape,
    cast,
    promoted,
)
from treadle.np.shapes import matrix_transpose
from treadle.ops.movement import full
from treadle.trace.value import typeof

Shape = tuple[int, ...]


def floats(name: str, *xs: Any) -> tuple[list[Any], np.dtype]:
    """The operands with the dtype in which LAPACK computes, and their own."""
    xs = tuple(promoted(name, *[as_inexact(name, x) for x in xs]))
    dtype = typeof(xs[0]).dtype
    if dtype.itemsize == 2:
        return [cast(x, dtypes.float32) for x in xs], dtype
    return list(xs), dtype


def matrices(name: str, x: Any, square: bool = False) -> tuple[Any, np.dtype]:
    """One operand, whose last two axes are those of matrices, and its own dtype.

    Raises:
      ValueError: naming the function, the shape and the user's line.
    """
    (x,), dtype = floats(name, x)
    check_matrices(name, typeof(x).shape, square)
    return x, dtype


def check_matrices(name: str, shape: Shape, square: bool = False) -> None:
    """Raises ValueError unless a shape is that of matrices."""
    if len(shape) < 2:
        raise ValueError(
            f"{name} takes matrices, got shape {shape}{at(user_source())}\n"
            "The last two axes are those of a matrix."
        )
    if square and shape[-1] != shape[-2]:
        raise ValueError(
            f"{name} takes square matrices, got shape {shape}: {shape[-2]} rows and "
            f"{shape[-1]} columns{at(user_source())}"
        )


def narrowed(x: Any, dtype: np.dtype) -> Any:
    """A result, with half floats again where the operands had them."""
    return as_array(cast(x, dtype) if dtype.itemsize == 2 else x)


def empty(shape: Shape) -> bool:
    """Whether there are no elements, which is not a question where sizes are open."""
    return any([not is_dim(n) and n == 0 for n in shape])


def adjoint(x: Any) -> Any:
    """Conjugate transposed matrices."""
    return conj(matrix_transpose(x))


def identity_of(shape: Shape, dtype: np.dtype) -> Any:
    """Identity matrices in the last two axes."""
    return broadcast_to_shape(eye(shape[-2], shape[-1], dtype=dtype), shape)


def zeros(shape: Shape, dtype: np.dtype) -> Any:
    return full(shape, 0, dtype)

"""Initialisers that make special matrices: identities and orthogonal ones."""

from __future__ import annotations

import math
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn.init.basic import Initializer, Shape


def eye(key: rng.Key | None, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
    """The identity matrix, with zeros added where it is not square; the key is not
    used.

    Raises:
      ValueError: if the shape is not that of a matrix.

    >>> from treadle import rng
    >>> eye(rng.key(0), (2, 3))
    Array([[1., 0., 0.],
           [0., 1., 0.]], dtype=float32)
    """
    _check_rank("eye", shape, 2, 2)
    rows, columns = shape
    return tnp.eye(rows, columns, dtype=dtype)


def dirac(groups: int = 1) -> Initializer:
    """An initialiser of weights (*window, in / groups, out) with which a convolution
    gives its input: 1 in the middle of the window, where the channels correspond.

    Args:
      groups: that of the convolution; each group keeps its own channels.

    Raises:
      ValueError: for weights without a window, or if out is not a multiple of groups.

    >>> from treadle import rng
    >>> dirac()(rng.key(0), (3, 1, 1)).ravel()
    Array([0., 1., 0.], dtype=float32)
    """

    def init(key: rng.Key | None, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        _check_rank("dirac", shape, 3, 5)
        n_in, n_out = shape[-2:]
        if groups < 1 or n_out % groups:
            raise ValueError(
                f"dirac: {n_out} outputs can't be split in {groups} groups"
                f"{at(user_source())}"
            )
        channels = tnp.arange(n_out) % (n_out // groups)
        same = tnp.arange(n_in)[:, None] == channels
        middle = tuple(n // 2 for n in shape[:-2])
        return tnp.zeros(shape, dtype).at[middle].set(same.astype(dtype))

    return init


def orthogonal(gain: float = 1.0, column_axis: int = -1) -> Initializer:
    """An initialiser of orthogonal matrices, times a gain (Saxe 2014).

    The weight is taken as a matrix of all other axes by `column_axis`; the fewer of its
    rows and columns are orthogonal to each other, of length `gain`.

    Raises:
      ValueError: if there are less than two axes.

    >>> from treadle import rng
    >>> import treadle.numpy as tnp
    >>> q = orthogonal()(rng.key(0), (3, 2))
    >>> bool(tnp.allclose(q.T @ q, tnp.eye(2), atol=1e-6))
    True
    """

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        _check_rank("orthogonal", shape, 2)
        columns = shape[column_axis]
        others = list(shape)
        del others[column_axis]
        # There is no factorization of halves.
        wide = tnp.result_type(dtype, tnp.float32)
        q = rng.orthogonal(key, math.prod(others), (), wide, columns)
        q = tnp.moveaxis(q.reshape(*others, columns), -1, column_axis)
        return (q * gain).astype(dtype)

    return init


def delta_orthogonal(gain: float = 1.0) -> Initializer:
    """An initialiser of weights (*window, in, out) of convolutions: `orthogonal` in the
    middle of the window, 0 elsewhere (Xiao 2018).

    Raises:
      ValueError: for weights without a window, or with more inputs than outputs.

    >>> from treadle import rng
    >>> weight = delta_orthogonal()(rng.key(0), (3, 1, 1))
    >>> abs(weight).ravel()
    Array([0., 1., 0.], dtype=float32)
    """

    def init(key: rng.Key, shape: Shape, dtype: Any = tnp.float32) -> td.Array:
        _check_rank("delta_orthogonal", shape, 3, 5)
        if shape[-2] > shape[-1]:
            raise ValueError(
                "delta_orthogonal keeps the length of what it is applied to, and takes "
                f"no more inputs than outputs, got shape {shape}{at(user_source())}"
            )
        middle = tuple((n - 1) // 2 for n in shape[:-2])
        matrix = orthogonal(gain)(key, shape[-2:], dtype)
        return tnp.zeros(shape, dtype).at[middle].set(matrix)

    return init


def _check_rank(name: str, shape: Shape, least: int, most: int | None = None) -> None:
    if len(shape) < least or (most is not None and len(shape) > most):
        wanted = f"{least}" if most == least else f"{least} to {most}"
        wanted = f"{least} or more" if most is None else wanted
        raise ValueError(
            f"{name} makes arrays of {wanted} axes, got shape {shape}"
            f"{at(user_source())}"
        )

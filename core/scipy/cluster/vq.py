"""`treadle.scipy.cluster.vq`: which of some points others are nearest to."""

from __future__ import annotations

from treadle import np as tnp
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, as_array, as_inexact, promoted
from treadle.run.array import Array

__all__ = ["vq"]


def vq(obs: ArrayLike, code_book: ArrayLike) -> tuple[Array, Array]:
    """For each point the number of the code that is nearest, and how far it is.

    Args:
      obs: points, shape ``(m, n)``; or m numbers.
      code_book: codes, shape ``(k, n)``; or k numbers.

    Returns:
      int32 numbers and distances, of shape ``(m,)``.

    Raises:
      ValueError: if shapes don't fit.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.scipy.cluster.vq.vq(tnp.array([0.0, 2.5]), tnp.array([0.5, 3.0]))
    (Array([0, 1], dtype=int32), Array([0.5, 0.5], dtype=float32))
    """
    points, codes = promoted("vq", *[as_inexact("vq", x) for x in (obs, code_book)])
    points, codes = as_array(points), as_array(codes)
    shapes = points.shape, codes.shape
    if points.ndim == codes.ndim == 1:
        points, codes = points[:, None], codes[:, None]
    fits = points.ndim == codes.ndim == 2 and points.shape[1] == codes.shape[1]
    if not fits or codes.shape[0] == 0:
        raise ValueError(
            f"vq: points of shape {shapes[0]} and codes of shape {shapes[1]}"
            f"{at(user_source())}\nBoth are matrices, with rows of one length."
        )
    squares = ((points[:, None] - codes) ** 2).sum(-1)
    least = squares.min(-1)
    # A distance of zero has a gradient of zero.
    apart = least > 0
    distance = tnp.where(apart, tnp.sqrt(tnp.where(apart, least, 1)), least)
    return squares.argmin(-1), distance

"""Products of which each row has a matrix of its group: mixtures of experts."""

from __future__ import annotations

from typing import Any, NamedTuple

from treadle import dtypes
from treadle.api.boundary import boundary
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.lax.dot import dot_general
from treadle.lax.operands import array
from treadle.np.creation import arange
from treadle.np.indexing import take
from treadle.np.operands import ArrayLike, cast
from treadle.np.places import where
from treadle.np.running import cumsum
from treadle.np.search import searchsorted
from treadle.run.array import Array

_BLOCK = 64
"""Rows that meet a matrix at once. Copying the matrix for them is then a third of the
work or less, and what rows are missing in the last block of a group is little."""


@boundary
def ragged_dot(
    lhs: ArrayLike,
    rhs: ArrayLike,
    group_sizes: ArrayLike,
    precision: Any = None,
    preferred_element_type: Any = None,
    group_offset: None = None,
) -> Array:
    """The product of each row with the matrix of its group.

    Rows are in the order of groups: the first ``group_sizes[0]`` ones are multiplied
    with ``rhs[0]``. Those that belong to no group give zeros. The work is that of one
    product for each row, however uneven the groups, and at most a block of rows more
    for each group.

    Shapes: ``(m, k), (g, k, n), (g,) -> (m, n)``.

    Args:
      group_sizes: integers, which may be traced; their sum is at most m.
      precision: is accepted, and changes nothing.
      preferred_element_type: as in `dot_general`.
      group_offset: there is none.

    Raises:
      ValueError: if the shapes do not fit each other.
      TypeError: if the sizes are no integers.

    >>> import treadle as td, treadle.numpy as tnp
    >>> x, w = tnp.ones((5, 2)), tnp.arange(3.0)[:, None, None] * tnp.ones((3, 2, 1))
    >>> td.lax.ragged_dot(x, w, tnp.array([2, 0, 2]))[:, 0]
    Array([0., 0., 4., 4., 0.], dtype=float32)
    """
    x, w, sizes = _checked(lhs, rhs, group_sizes, group_offset)
    return by_rows(x, w, sizes, precision, preferred_element_type)


class Blocks(NamedTuple):
    """Rows in blocks, each of one group.

    owner: the group of each block.
    places: of the rows of each block; those that it lacks are behind its group's last.
    shift: for each group, from the places among the blocks' rows to those of rows.
    ends: of the groups.
    """

    owner: Any
    places: Any
    shift: Any
    ends: Any


def blocks_of(sizes: Any, m: int) -> Blocks:
    """Blocks of m rows, in groups of these sizes."""
    ends = cumsum(sizes)
    taken = (sizes + (_BLOCK - 1)) // _BLOCK
    count = m // _BLOCK + sizes.shape[0]
    if not is_dim(count):
        count = min(count, m)
    owner = _among(cumsum(taken), arange(count))
    shift = ends - sizes - _BLOCK * (cumsum(taken) - taken)
    places = arange(count * _BLOCK).reshape(count, _BLOCK) + shift[owner][:, None]
    return Blocks(owner, places, shift, ends)


def by_rows(x: Any, w: Any, sizes: Any, precision: Any, preferred: Any) -> Any:
    """The product of each row with the matrix of its group."""
    m = x.shape[0]
    owner, places, shift, ends = blocks_of(sizes, m)
    parts = take(x, places, axis=0, mode="clip")
    matrices = take(w, owner, axis=0, mode="clip")
    numbers = (((2,), (1,)), ((0,), (0,)))
    products = dot_general(parts, matrices, numbers, precision, preferred)
    rows = arange(m)
    flat = products.reshape(products.shape[0] * _BLOCK, w.shape[2])
    out = take(flat, rows - shift[_among(ends, rows)], axis=0, mode="clip")
    return where((rows < ends[-1])[:, None], out, out.dtype.type(0))


def _among(ends: Any, numbers: Any) -> Any:
    """Before which end each number comes; the last one, if before none."""
    found = searchsorted(ends, numbers, side="right")
    return found.clip(max=ends.shape[0] - 1)


def _checked(lhs: Any, rhs: Any, sizes: Any, offset: Any) -> tuple[Any, Any, Any]:
    name = "ragged_dot"
    x, w, counts = array(name, lhs), array(name, rhs), array(name, sizes)
    if offset is not None:
        raise NotImplementedError(
            f"{name}: group_offset={offset!r}: the groups of rhs are all there are"
            f"{at(user_source())}\nPass the matrices and sizes from there on."
        )
    if not dtypes.is_integer(counts.dtype):
        raise TypeError(
            f"{name}: group_sizes are integers, got {counts.dtype}{at(user_source())}"
        )
    ranks = (x.ndim, w.ndim, counts.ndim)
    fits = ranks == (2, 3, 1) and w.shape[0] == counts.shape[0] >= 1
    if not fits or x.shape[1] != w.shape[1]:
        raise ValueError(
            f"{name} of {x.type} and {w.type}, in groups of {counts.type}: expected "
            f"(m, k), (g, k, n) and (g,){at(user_source())}"
        )
    return x, w, cast(counts, dtypes.int32)

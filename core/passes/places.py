"""Reads and writes at places along an axis that is not the first: done where they are.

``x[:, j]`` reads, at each of the places j, all of what the axes before have there, and
those axes come last in what is read. As the program wants them first, all of it would
be moved once more. If the axes before are batches instead, which share their places,
everything is read in the order in which it is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.ir.graph import Atom, Equation
from treadle.ops.gather import Places, gather
from treadle.ops.movement import broadcast_in_dim, transpose
from treadle.ops.scatter import (
    scatter_add,
    scatter_max,
    scatter_min,
    scatter_mul,
    scatter_set,
)

SCATTERS = scatter_add, scatter_max, scatter_min, scatter_mul, scatter_set


def read_in_place(s: Any, eq: Equation, inputs: Sequence[Atom]) -> Atom | None:
    """A transposed gather, as one whose batches are the axes in front of the places."""
    read = s.defines(inputs[0], gather)
    if read is None or len(read.inputs) < 2 or s.uses(eq.inputs[0]) > 1:
        return None
    at, rank = Places(**read.params), read.inputs[1].type.ndim
    before = _before(at)
    first, size = at.batch_dims, eq.outputs[0].type.ndim
    order = _moved(range(size), first, rank, before)
    if not before or eq.params["permutation"] != order:
        return None
    x, *indices = read.inputs
    operands = [x, *_shared(s, indices, x, first, before, eq)]
    params = at._replace(batch_dims=first + before)._asdict()
    return s.emit(gather, operands, params, eq.source)[0]


def write_in_place(s: Any, eq: Equation, inputs: Sequence[Atom]) -> Atom | None:
    """A scatter of what has been transposed for it, likewise."""
    x, updates, *indices = inputs
    turned = s.defines(updates, transpose)
    if turned is None or not indices:
        return None
    at, rank = Places(**eq.params), indices[0].type.ndim
    before = _before(at)
    first, size = at.batch_dims, updates.type.ndim
    order = _moved(range(size), first, first + before, rank - first)
    if not before or turned.params["permutation"] != order:
        return None
    operands = [x, *turned.inputs, *_shared(s, indices, x, first, before, eq)]
    params = at._replace(batch_dims=first + before)._asdict()
    return s.emit(eq.op, operands, params, eq.source)[0]


def _before(at: Places) -> int:
    """How many axes come before all that are indexed, besides batches."""
    return min(at.axes, default=at.batch_dims) - at.batch_dims


def _moved(axes: Sequence[int], to: int, start: int, count: int) -> tuple[int, ...]:
    """The axes with some of them, from `start` on, moved to the front, behind the first
    few."""
    some = axes[start : start + count]
    return (*axes[:to], *some, *axes[to:start], *axes[start + count :])


def _shared(
    s: Any, indices: Sequence[Atom], x: Atom, first: int, before: int, eq: Equation
) -> list[Atom]:
    """Places that more batches share."""
    found = []
    lengths = x.type.shape[first : first + before]
    for i in indices:
        shape, ndim = i.type.shape, i.type.ndim
        dims = (*range(first), *range(first + before, ndim + before))
        params = {"shape": (*shape[:first], *lengths, *shape[first:]), "dims": dims}
        found += s.emit(broadcast_in_dim, [i], params, eq.source)
    return found

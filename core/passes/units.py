"""Which axes of length 1 are so by construction.

A batch of one and the axis that `keepdims` leaves have the same length, but not the
same standing: the first will have another length in the next call, the second never.
Kernels are to be the same for every batch size, so the compiler drops only axes of the
second kind (*absent* ones) from its loops. What a caller hands over may have another
length next time; a broadcast, a reshape or a slice makes the same axis every time.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from treadle.dims import is_dim, is_one
from treadle.ir.graph import Atom, Equation, Lit, Var
from treadle.ops.dot import dot_general, free_axes
from treadle.ops.dynamic import dynamic_slice
from treadle.ops.gather import gather
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.ops.shape import slice_
from treadle.trace.lowering import Elementwise, Index, Reduction

Axes = frozenset[int]
_NONE: Axes = frozenset()


class Units:
    """The absent axes of every value of a graph: of length 1 whatever the sizes of the
    program's arguments are.

    reshaped: index maps through reshapes that have been found once; nothing depends on
      it.
    """

    def __init__(self, equations: Iterable[Equation] = ()) -> None:
        self._absent: dict[Var, Axes] = {}
        self.reshaped: dict[tuple, Any] = {}
        for eq in equations:
            self.add(eq)

    def add(self, eq: Equation) -> None:
        """Takes in an equation, after those that made its operands."""
        for v in eq.outputs:
            if 1 in v.type.shape:
                found = _absent(eq, v, [self.absent(a) for a in eq.inputs])
                self._absent[v] = frozenset(i for i in found if v.type.shape[i] == 1)

    def absent(self, a: Atom) -> Axes:
        """The axes of an atom that are dropped."""
        shape = a.type.shape
        if 1 not in shape:
            return _NONE
        if type(a) is Lit:
            return frozenset([i for i, n in enumerate(shape) if n == 1])
        return self._absent.get(a, _NONE)  # type: ignore[arg-type]

    def paired(self, a: Atom, b: Atom) -> dict[int, int]:
        """Which present axes of length 1 of two values are each other's, if one is a
        reshape of the other: they come in the same order."""
        if 1 not in a.type.shape or 1 not in b.type.shape:
            return {}
        old, new = (
            [i for i in self.present(x) if x.type.shape[i] == 1] for x in (a, b)
        )
        return dict(zip(old, new, strict=False))

    def present(self, a: Atom) -> list[int]:
        """The axes of an atom that loops run along."""
        absent = self.absent(a)
        return [i for i in range(len(a.type.shape)) if i not in absent]


def _absent(eq: Equation, out: Var, absent: Sequence[Axes]) -> Axes | set[int]:
    """A superset of a result's absent axes: those of length 1 among them are."""
    op, params = eq.op, eq.params
    if isinstance(op.lowering, Elementwise | Index):
        # Scalars stand beside arrays of any shape.
        arrays = [s for a, s in zip(eq.inputs, absent, strict=True) if a.type.shape]
        return frozenset.intersection(*arrays) if arrays else _NONE
    if not eq.inputs:
        return _NONE
    shape, first = eq.inputs[0].type.shape, absent[0]
    if isinstance(op.lowering, Reduction):
        gone = params["axes"] if "axes" in params else (params["axis"],)
        kept = [i for i in range(len(shape)) if i not in gone]
        return {j for j, i in enumerate(kept) if i in first}
    if op is broadcast_in_dim:
        if not shape:
            # An array of one number: its shape is likely that of another array.
            return _NONE
        new = set(range(out.type.ndim)) - set(params["dims"])
        return new | {d for i, d in enumerate(params["dims"]) if i in first}
    if op is reshape:
        units = [j for j, n in enumerate(out.type.shape) if n == 1]
        present = [i for i, n in enumerate(shape) if n == 1 and i not in first]
        return set(units[len(present) :])
    if op is transpose:
        return {j for j, i in enumerate(params["permutation"]) if i in first}
    if op in (slice_, dynamic_slice):
        return {i for i, n in enumerate(shape) if n != 1 or i in first}
    if op is gather:
        return set(_of_gather(eq, absent))
    if op is dot_general:
        return set(_of_product(eq, absent))
    # Reversed, scattered into, sorted, summed up along an axis: the same axes.
    return first if shape == out.type.shape else _NONE


def _of_gather(eq: Equation, absent: Sequence[Axes]) -> Iterator[int]:
    """Axes of the indices, then those of the operand that are not indexed, or that are
    read in windows."""
    x, *indices = eq.inputs
    batch, sizes = eq.params["batch_dims"], eq.params["sizes"]
    size_of = dict(zip(eq.params["axes"], sizes, strict=True))
    rank = indices[0].type.ndim if indices else batch
    yield from absent[1] if indices else (i for i in range(batch) if i in absent[0])
    window = [a for a in range(batch, x.type.ndim) if size_of.get(a, 1) is not None]
    yield from (
        rank + j for j, a in enumerate(window) if a in size_of or a in absent[0]
    )


def _of_product(eq: Equation, absent: Sequence[Axes]) -> Iterator[int]:
    (x, y), contract, batch = eq.inputs, eq.params["contract"], eq.params["batch"]
    origins = [(0, i) for i in batch[0]]
    origins += [(0, i) for i in free_axes(x.type.ndim, contract[0], batch[0])]
    origins += [(1, i) for i in free_axes(y.type.ndim, contract[1], batch[1])]
    return (j for j, (which, i) in enumerate(origins) if i in absent[which])


def last_axis(a: Atom, units: Units, reduced: Container[int]) -> int:
    """The last axis along which a value has several elements; if there is none, the
    last that loops run along.

    reduced: axes of which it does not matter whether their length is 1, if that is not
      fixed: of a sum over such an axis first, the rest is added up as if it were not
      there.
    """
    present = units.present(a)
    for i in reversed(present):
        n = a.type.shape[i]
        if (is_dim(n) and i in reduced) or not is_one(n):
            return i
    return max(present, default=-1)

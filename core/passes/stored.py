"""Products of floats read integers of a byte as they are: weights that are stored as
these, in a quarter of the memory.

Programs convert them, and multiply them by scales, of which each row of the result, or
each column, has one. Behind the product these are fewer, and come with its epilogue::

    x @ (w.astype(x.dtype) * scale).T  =  (x @ w.T) * scale[:, 0]

up to rounding: sums, and scales, are float32 there. (Sums that scales would have kept
from overflowing do so: of x beyond 1e32, say.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import is_one, one
from treadle.ir.graph import Atom, Equation, Graph, Var
from treadle.ops.arithmetic import mul
from treadle.ops.cast import convert
from treadle.ops.dot import dot_general, free_axes
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.passes.integers import Unconverted, applied
from treadle.passes.rewrite import mentions
from treadle.trace.lowering import Elementwise, Join, Multiplied, View


class _Stored(NamedTuple):
    """An operand: bytes, exchanged axes of them, and a scale.

    axes: of the operand, those along which there are several scales, in their order.
    """

    bytes_: Atom
    orders: tuple[tuple[int, ...], ...] = ()
    scale: Atom | None = None
    axes: tuple[int, ...] = ()


class Bytes(Unconverted):
    """Finds integers of a byte that products may read beside floats."""

    floats: tuple[np.dtype, ...]

    def is_product(self, eq: Equation) -> bool:
        """Whether it is one of floats that may stand beside bytes."""
        types = {a.type.dtype for a in (*eq.inputs, *eq.outputs)}
        return eq.op is dot_general and types <= {*self.floats}

    def lies(self, a: Atom) -> bool:
        """Whether it lies in memory as bytes: what is computed element by element, as
        masks are, is computed as floats as soon."""
        eq = self.made.get(a)
        if eq is None:
            return True
        if eq.op is convert or isinstance(eq.op.lowering, View | Join):
            return all([self.lies(x) for x in eq.inputs])
        return not isinstance(eq.op.lowering, Elementwise)

    def along(self, shape: tuple, scale: Atom, axes: Sequence[int], at: str) -> Atom:
        """A scale along axes of a result of some shape, in float32. at: the line."""

        def emit(op: Any, **params: Any) -> Atom:
            return self.emit(op, [scale], params, at)[0]

        if scale.type.dtype != dtypes.float32:
            scale = emit(convert, dtype=dtypes.float32)
        sizes = tuple(shape[axis] for axis in axes)
        if scale.type.shape != sizes:
            scale = emit(reshape, shape=sizes)
        if not axes:
            return scale
        order = tuple(sorted(range(len(axes)), key=lambda i: axes[i]))
        if order != tuple(range(len(axes))):
            scale = emit(transpose, permutation=order)
        return emit(broadcast_in_dim, shape=shape, dims=tuple(sorted(axes)))


class _FuseBytes(Bytes):
    def equation(self, eq: Equation) -> None:
        if not self.is_product(eq):
            self.keep(eq)
            return
        found = [self._stored(a) for a in eq.inputs]
        places = [places_of(eq, side) for side in (0, 1)]
        for side, stored in enumerate(found):
            if stored is None:
                continue
            if _along_sum(eq, side, stored) or not self.lies(stored.bytes_):
                found[side] = None
        if not any(found):
            self.keep(eq)
            return
        inputs = [
            self.read(a) if stored is None else self._bytes(stored, eq.source)
            for a, stored in zip(eq.inputs, found, strict=True)
        ]
        scales = [
            (stored.scale, [where[axis] for axis in stored.axes])
            for stored, where in zip(found, places, strict=True)
            if stored is not None and stored.scale is not None
        ]
        self._scaled(eq, inputs, scales)

    def _stored(self, a: Atom) -> _Stored | None:
        """What an operand is made of, if that is bytes."""
        if self.dtype(a) is not None:
            return _Stored(a)
        eq = self.made.get(a)
        if eq is None:
            return None
        if eq.op is transpose:
            order, inner = eq.params["permutation"], self._stored(eq.inputs[0])
            if inner is None:
                return None
            axes = tuple(order.index(axis) for axis in inner.axes)
            return inner._replace(orders=(*inner.orders, order), axes=axes)
        if eq.op is convert and dtypes.is_float(eq.inputs[0].type.dtype):
            return self._stored(eq.inputs[0])
        if eq.op is not mul:
            return None
        for given, scale in (eq.inputs, eq.inputs[::-1]):
            if self.dtype(given) is not None and given.type.shape == a.type.shape:
                return self._with_scale(given, scale)
        return None

    def _with_scale(self, given: Atom, scale: Atom) -> _Stored | None:
        eq = self.made.get(scale)
        if not scale.type.shape:
            return _Stored(given, scale=scale)
        if eq is None or eq.op is not broadcast_in_dim:
            return None
        (scale,), dims = eq.inputs, eq.params["dims"]
        sizes = zip(scale.type.shape, dims, strict=True)
        axes = tuple([axis for size, axis in sizes if not one(size)])
        return _Stored(given, scale=scale, axes=axes)

    def _bytes(self, stored: _Stored, source: str) -> Atom:
        found = self.unconverted(stored.bytes_)
        for order in stored.orders:
            (found,) = self.emit(transpose, [found], {"permutation": order}, source)
        return found

    def _scaled(
        self,
        eq: Equation,
        inputs: Sequence[Atom],
        scales: Sequence[tuple[Atom, list[int]]],
    ) -> None:
        """The product, and what its result is multiplied by along some axes."""
        (out,) = eq.outputs
        if not scales:
            self.emit(eq.op, inputs, eq.params, eq.source, [out])
            return
        wide = ArrayType(out.type.shape, dtypes.float32)
        (result,) = self.emit(eq.op, inputs, eq.params, eq.source, [Var(wide)])
        short = out.type.dtype != dtypes.float32
        for i, (scale, axes) in enumerate(scales):
            shape = out.type.shape
            by = self.along(shape, self.read(scale), axes, eq.source)
            final = [out] if i == len(scales) - 1 and not short else None
            (result,) = self.emit(mul, [result, by], {}, eq.source, final)
        if short:
            to = {"dtype": out.type.dtype}
            self.emit(convert, [result], to, eq.source, [out])


def _along_sum(eq: Equation, side: int, stored: _Stored) -> bool:
    """Whether there are several scales along an axis that is summed. A single one may
    be all of some, if there is one element: of open lengths this is asked."""
    shape, summed = eq.inputs[side].type.shape, eq.params["contract"][side]
    if stored.scale is None or not stored.scale.type.shape:
        return False
    return not {*summed}.isdisjoint(stored.axes) or any(
        [is_one(shape[axis]) for axis in summed]
    )


def places_of(eq: Equation, side: int) -> dict[int, int]:
    """Which axis of the result each axis of an operand is, that isn't summed."""
    contract, batch = eq.params["contract"], eq.params["batch"]
    free = [
        free_axes(a.type.ndim, c, b)
        for a, c, b in zip(eq.inputs, contract, batch, strict=True)
    ]
    first = len(batch[0]) + side * len(free[0])
    found = {axis: i for i, axis in enumerate(batch[side])}
    return found | {axis: first + i for i, axis in enumerate(free[side])}


def fuse_bytes(graph: Graph, multiplied: Multiplied) -> Graph:
    """Makes conversions of integers of a byte to floats, which lose nothing, part of
    the products that read them, if the target has kernels for these."""
    if not multiplied.beside_bytes or not mentions(graph, (dot_general,)):
        return graph
    how = {"integers": multiplied.bytes_, "floats": multiplied.beside_bytes}
    return applied(_FuseBytes, graph, **how)

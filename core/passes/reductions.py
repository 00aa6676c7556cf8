"""Puts reductions into the forms that kernels have."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ir.graph import Atom, Equation, Graph, Lit
from treadle.ops.arithmetic import add
from treadle.ops.cast import convert
from treadle.ops.movement import broadcast_in_dim, reshape
from treadle.passes.rewrite import Rewriter
from treadle.passes.signs import Unsigned, signs_seen
from treadle.passes.units import Units, last_axis
from treadle.trace.lowering import Reduction


class _Split(Rewriter):
    concerns = Reduction

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.units = Units()
        self.unsigned = Unsigned()
        self.noted = 0

    @cached_property
    def seen(self) -> set[Atom]:
        """The values of whose zeros something depends on the sign."""
        return signs_seen(self.graph)

    def note(self) -> None:
        """Takes in what was written since the last time, which reductions ask about:
        behind the last of them there may be many equations."""
        for eq in self.equations[self.noted :]:
            self.units.add(eq)
            self.unsigned.add(eq)
        self.noted = len(self.equations)

    def equation(self, eq: Equation) -> None:
        how = eq.op.lowering
        if not isinstance(how, Reduction):
            self.keep(eq)
            return
        if how.finds_place:
            self._place(eq)
            return
        self.note()
        value = self.read(eq.inputs[0])
        out = eq.outputs[0]
        left = set(eq.params["axes"]) - self.units.absent(value)
        if how.combine == "sum" and not left and out in self.seen:
            value = self._plus_zero(value, eq)
        every = range(value.type.ndim)
        if how.sums and len(left) > 1 and out.type.dtype.itemsize == 2:
            value = self._converted(value, _wider(out.type.dtype), eq)
        while left:
            self.note()
            last = last_axis(value, self.units, left if how.sums else every)
            # Over the last axis first, then over the rest: rows run in parallel.
            step = (last,) if last in left else tuple(sorted(left))
            before = [i for i in self.units.present(value) if i < last]
            if len(left) > 1 and last in left and before and before[-1] not in left:
                # A part of the channels: vectors run along all of them meanwhile.
                step = tuple(sorted(left - {last}))
            (value,) = self.emit(eq.op, [value], {"axes": step}, eq.source)
            left = {a - sum(s < a for s in step) for a in left if a not in step}
        value = self._converted(value, out.type.dtype, eq)
        if value.type.shape != out.type.shape:
            (value,) = self.emit(reshape, [value], {"shape": out.type.shape}, eq.source)
        self.values[out] = value

    def _place(self, eq: Equation) -> None:
        """The first of one element is the extreme: nothing is compared."""
        (out,) = eq.outputs
        if eq.inputs[0].type.shape[eq.params["axis"]] > 1:
            self.keep(eq)
            return
        zero: Atom = Lit(np.zeros((), out.type.dtype), ArrayType((), out.type.dtype))
        if out.type.shape:
            params = {"shape": out.type.shape, "dims": ()}
            (zero,) = self.emit(broadcast_in_dim, [zero], params, eq.source)
        self.values[out] = zero

    def _plus_zero(self, value: Atom, eq: Equation) -> Atom:
        """A sum of one term, which is never -0.0, as one of more is not."""
        if dtypes.is_integer(value.type.dtype) or value in self.unsigned:
            return value
        zero = Lit(np.zeros((), value.type.dtype), ArrayType((), value.type.dtype))
        return self.emit(add, [value, zero], {}, eq.source)[0]

    def _converted(self, value: Atom, dtype: np.dtype, eq: Equation) -> Atom:
        if value.type.dtype == dtype:
            return value
        return self.emit(convert, [value], {"dtype": dtype}, eq.source)[0]


def _wider(dtype: np.dtype) -> np.dtype:
    """The dtype of sums of sums: halves are rounded once, at the end."""
    return dtype if dtypes.is_integer(dtype) else dtypes.float32


def split_reductions(graph: Graph) -> Graph:
    """Ensures that each reduction is over the last axis alone, or not over it.

    Absent axes do not count. A reduction over the last axis and others becomes
    two: the first leaves many rows to run in parallel. Where the axis before the last
    is kept (groups of channels), the others come first: the last axis may be short, and
    both are a long one together. The order of summation is the program's, not the
    number of threads'.
    """
    return _Split.apply(graph)

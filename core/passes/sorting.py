"""Sorts as an order of keys, found by one kernel, and gathers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim
from treadle.ir.graph import Atom, Equation, Graph
from treadle.ops.cast import bitcast, convert
from treadle.ops.compare import bitwise_not, bitwise_or, bitwise_xor, lt, ne, select
from treadle.ops.compare import eq as equal
from treadle.ops.gather import take_along_axis
from treadle.ops.movement import move_axis
from treadle.ops.shape import iota
from treadle.ops.sort import order, sort, top_k
from treadle.passes.rewrite import Rewriter, mentions
from treadle.trace.interpreter import at_source
from treadle.trace.stage import stage
from treadle.trace.value import typeof

_SORTS = frozenset({sort, top_k})


class _Lower(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.numbers: dict[Atom, int] = {}

    def equation(self, eq: Equation) -> None:
        inputs = [self.read(a) for a in eq.inputs]
        if eq.op is iota:
            self.keep(eq)
            self.numbers[eq.outputs[0]] = eq.params["axis"]
        elif eq.op is top_k:
            self._write(eq, inputs, lambda x: _top_k(x, eq.params["k"]))
        elif eq.op is sort:
            axis = eq.params["axis"]
            length = eq.outputs[0].type.shape[axis]
            if not is_dim(length) and length < 2:
                self.values.update(zip(eq.outputs, inputs, strict=True))
                return
            counts = [self.numbers.get(a) == axis for a in inputs]
            keys = eq.params["num_keys"]
            self._write(eq, inputs, lambda *xs: _sort(xs, axis, keys, counts))
        else:
            self.keep(eq)

    def _write(
        self, eq: Equation, inputs: list[Atom], function: Callable[..., Sequence[Any]]
    ) -> None:
        """Writes the equations of a function in the place of one equation."""
        types = [a.type for a in inputs]
        with at_source(eq.source):
            graph, captures = stage(function, types, closed=True)
        assert not captures
        results = self.splice(graph, inputs, eq.source)
        self.values.update(zip(eq.outputs, results, strict=True))


def _sort(
    arrays: Sequence[Any], axis: int, num_keys: int, counts: Sequence[bool]
) -> list[Any]:
    """counts: which arrays are 0, 1, 2, ... along the axis."""
    last = typeof(arrays[0]).ndim - 1
    moved = [move_axis(x, axis, last) for x in arrays]
    *others, key = moved[:num_keys]
    count = typeof(key).shape[last]
    places = order(_bits(key), count=count)
    for key in reversed(others):
        # Orders are stable: what later keys have decided stays, where this one ties.
        key = take_along_axis(_bits(key), places, last)
        places = take_along_axis(places, order(key, count=count), last)
    return [
        move_axis(
            convert(places, dtype=typeof(x).dtype)
            if number
            else take_along_axis(x, places, last),
            last,
            axis,
        )
        for x, number in zip(moved, counts, strict=True)
    ]


def _top_k(x: Any, k: int) -> list[Any]:
    last = typeof(x).ndim - 1
    places = order(bitwise_not(_bits(x)), count=k)
    return [take_along_axis(x, places, last), places]


def _bits(x: Any) -> Any:
    """Unsigned integers in the order of x: both zeros are equal, and not-a-number is
    the largest."""
    dtype = typeof(x).dtype
    wide = dtype.itemsize == 8
    word = np.dtype(np.uint64 if wide else np.uint32)
    width = 8 * word.itemsize
    sign, largest = word.type(1 << (width - 1)), word.type((1 << width) - 1)
    if dtypes.is_float(dtype):
        x = convert(x, dtype=np.dtype(np.float64 if wide else np.float32))
        zero = typeof(x).dtype.type(0)
        bits = bitcast(select(equal(x, zero), zero, x), dtype=word)
        bits = select(lt(x, zero), bitwise_not(bits), bitwise_or(bits, sign))
        return select(ne(x, x), largest, bits)
    if dtype.kind != "i":
        return convert(x, dtype=word)
    signed = convert(x, dtype=np.dtype(np.int64 if wide else np.int32))
    return bitwise_xor(bitcast(signed, dtype=word), sign)


def lower_sorts(graph: Graph) -> Graph:
    """Ensures that what is sorted are unsigned integers, for their order alone.

    Needs that there are no complex numbers.
    """
    return _Lower.apply(graph) if mentions(graph, _SORTS) else graph

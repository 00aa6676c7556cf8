"""A loop nest as NumPy expressions over its whole space, in the order of its body.

A value is an array with one axis for each loop (outer, mid, inner), of length 1 where
it is the same for all of the loop. Schedules, sweeps and tasks are not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from treadle.backends.reference import scalars
from treadle.backends.reference.memory import Where
from treadle.errors import InternalError
from treadle.fuse.nests import Launch
from treadle.kernels.nest import STRIDED, Nest

_MOST_POINTS = 1 << 20
"""Larger spaces are worked on in parts, for the sake of memory."""


class _Access(NamedTuple):
    """An operand: where it is (None for a computed index), the number of its first
    element, and its steps per loop and per data-dependent index."""

    dtype: np.dtype
    where: Where | None
    start: int
    steps: tuple[int, ...]
    gathers: tuple[int, ...]

    def moved(self, axis: int, count: int) -> _Access:
        return self._replace(start=self.start + count * self.steps[axis])

    def numbers(
        self, sizes: Sequence[int], indices: Sequence[np.ndarray]
    ) -> np.ndarray:
        """The number of the element at each point of a space; raises InternalError if
        the buffer has none."""
        # A computed index may be of any integer dtype: these are its bits.
        total = np.array((self.start + 2**63) % 2**64 - 2**63)
        for n, step in zip(sizes, self.steps, strict=True):
            total = total[..., None] + np.arange(n if step else 1) * step
        for index, step in zip(indices, self.gathers, strict=True):
            total = total + index.astype(np.int64) * step
        if self.where is None:
            return total
        count = self.where.whole.size // self.dtype.itemsize
        if not count:
            return total[..., :0]
        if total.size and (total.min() < 0 or total.max() >= count):
            raise InternalError(f"{total} are not among the {count} of a buffer")
        return total

    @property
    def elements(self) -> np.ndarray:
        """All that the buffer has."""
        assert self.where is not None
        return self.where.whole.view(self.dtype)


def run(launch: Launch, places: Sequence[Where | None]) -> None:
    """Runs a nest on operands at the given places (None for computed indices).

    Raises:
      InternalError: if an operand leaves its buffer, or is written over another one
        that is read, but for element by element at the same places.
    """
    nest, loops = launch.nest, launch.nest.outer + launch.nest.mid
    accesses = []
    for o, binding, where in zip(nest.operands, launch.bindings, places, strict=True):
        steps, words = binding.strides[:loops], binding.strides[loops:]
        inner, words = (words[0], words[1:]) if o.inner == STRIDED else (o.inner, words)
        start = binding.offset if where is None else where.start // o.dtype.itemsize
        accesses.append(_Access(o.dtype, where, start, (*steps, inner), words))
    most = _MOST_POINTS
    if nest.serial and any(_shared(nest, accesses)):
        # A row may read what the rows before it have written.
        most = math.prod(launch.mid) * launch.inner
    _run_part(nest, (*launch.outer, *launch.mid, launch.inner), accesses, most)


def _shared(nest: Nest, accesses: list[_Access]) -> Iterator[tuple[int, int]]:
    """The operands that are written in the buffers of operands that are read."""
    stored = {i.attr for i in nest.body if i.name.startswith("store")}
    loaded = {i.attr for i in nest.body if i.name == "load"}
    for pair in product(stored, loaded):
        a, b = (accesses[k].where for k in pair)
        if a is not None and b is not None and a.meets(b):
            yield pair


def _run_part(
    nest: Nest, sizes: tuple[int, ...], accesses: list[_Access], most: int
) -> None:
    """Cuts a space along its outer loops, slowest first, to parts of `most` points."""
    count = math.prod(sizes)
    for axis, n in enumerate(sizes[: nest.outer]):
        if n > 1 and count > most:
            each = max(1, most * n // count)
            for start in range(0, n, each):
                part = (*sizes[:axis], min(each, n - start), *sizes[axis + 1 :])
                _run_part(nest, part, [a.moved(axis, start) for a in accesses], most)
            return
    if all(sizes[: nest.outer]):
        _evaluate(nest, sizes, accesses)


def _evaluate(nest: Nest, sizes: tuple[int, ...], accesses: list[_Access]) -> None:
    """Everything is read before anything is written."""
    loops = range(len(sizes))
    swept = tuple(loops[nest.outer : -1] if nest.axis == "mid" else loops[-1:])
    values: list[np.ndarray] = []
    at: dict[int, np.ndarray] = {}

    def along(x: np.ndarray) -> np.ndarray:
        """A value with all elements of the loop that reductions run over."""
        shape = [sizes[a] if a in swept else n for a, n in enumerate(x.shape)]
        return np.broadcast_to(x, shape)

    for instr in nest.body:
        args = [values[a] for a in instr.args]
        if instr.name == "load":
            access = accesses[instr.attr]
            value = at[instr.attr] = access.numbers(sizes, args)
            if access.where is not None:
                value = access.elements[value]
            value = value.astype(instr.dtype, copy=False)
        elif instr.name.startswith("store"):
            value, *indices = args
            at[instr.attr] = accesses[instr.attr].numbers(sizes, indices)
        elif instr.name == "const":
            value = np.full([1] * len(sizes), instr.attr, instr.dtype)
        elif instr.name.startswith("reduce_"):
            value = scalars.reduce(instr, along(args[0]), swept)
        elif instr.name.startswith("running_"):
            args = list(np.broadcast_arrays(*map(along, args)))
            value = scalars.running(instr, args, swept)
        else:
            value = scalars.elementwise(instr, args)
        values.append(value)
    for pair in _shared(nest, accesses):
        _check_in_place(*((accesses[k], at[k]) for k in pair))
    for instr, value in zip(nest.body, values, strict=True):
        if instr.name.startswith("store"):
            places, value = np.broadcast_arrays(at[instr.attr], value)
            scalars.store(instr, accesses[instr.attr].elements, places, value)


def _check_in_place(*operands: tuple[_Access, np.ndarray]) -> None:
    """Raises InternalError if a store hits what is loaded at another point."""
    unit = operands[0][0].dtype.itemsize
    stored, loaded = (
        (a.elements.ctypes.data + at * a.dtype.itemsize) // unit for a, at in operands
    )
    if not np.array_equal(stored, loaded) and np.intersect1d(stored, loaded).size:
        raise InternalError("a nest writes one operand over another at other places")

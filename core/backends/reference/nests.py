"""A loop nest as NumPy expressions over its whole space, in the order of its body.

A value is an array with one axis for each loop (outer, mid, inner), of length 1 where
it is the same for all of the loop. Schedules, sweeps and tasks are not looked at. Half
floats are rounded by each instruction; sums and products are made in double precision.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.backends.reference.memory import Where
from treadle.errors import InternalError
from treadle.fuse.lowering.launches import Launch
from treadle.ir.scalar import SCALARS
from treadle.kernels.nest import STRIDED, Instr, Nest
from treadle.trace.lowering import Elementwise
from treadle.trace.op import registry

_MOST_POINTS = 1 << 20  # Larger spaces are worked on in parts.


class _Access(NamedTuple):
    """An operand: its buffer's elements (None for a computed index), the number of its
    first one, and its steps per loop and per data-dependent index."""

    elements: np.ndarray | None
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
        if self.elements is None:
            return total
        if not self.elements.size:
            # Along a loop of no steps nothing is read, be it the same for all of them.
            total = total[tuple([slice(n and None) for n in sizes])]
        if total.size and (total.min() < 0 or total.max() >= self.elements.size):
            raise InternalError(f"{total} leave a buffer of {self.elements.size}")
        return total


def run(launch: Launch, places: Sequence[Where | None]) -> None:
    """Runs a nest on operands at the given places (None for computed indices). Raises
    InternalError if an operand leaves its buffer, or is written over another one that
    is read, but for element by element at the same places."""
    nest, loops = launch.nest, launch.nest.outer + launch.nest.mid
    accesses = []
    for o, binding, where in zip(nest.operands, launch.bindings, places, strict=True):
        steps, words = binding.strides[:loops], binding.strides[loops:]
        inner, words = (words[0], words[1:]) if o.inner == STRIDED else (o.inner, words)
        start = binding.offset if where is None else where.start // o.dtype.itemsize
        elements = where and where.whole.view(o.dtype)
        accesses.append(_Access(elements, start, (*steps, inner), words))
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
        a, b = (accesses[k].elements for k in pair)
        if a is not None and b is not None and np.may_share_memory(a, b):
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
    whole = np.empty([n if a in swept else 1 for a, n in enumerate(sizes)], np.bool_)
    values: list[np.ndarray] = []
    at: dict[int, np.ndarray] = {}
    for instr in nest.body:
        args = [values[a] for a in instr.args]
        if instr.name == "load":
            access = accesses[instr.attr]
            value = at[instr.attr] = access.numbers(sizes, args)
            if access.elements is not None:
                value = access.elements[value]
            value = value.astype(instr.dtype, copy=False)
        elif instr.name.startswith("store"):
            value = args[0]
            at[instr.attr] = accesses[instr.attr].numbers(sizes, args[1:])
        elif instr.name == "const":
            value = np.full([1] * len(sizes), instr.attr, instr.dtype)
        elif instr.name.startswith(("reduce_", "running_")):
            *args, _ = np.broadcast_arrays(*args, whole)
            sweep = _reduce if instr.name.startswith("reduce_") else _running
            value = sweep(instr, args, swept)
        else:
            value = _elementwise(instr, args)
        values.append(value)
    swept_over = any(i.name.startswith("reduce_") for i in nest.body)
    for pair in _shared(nest, accesses):
        _check_in_place(*((accesses[k].elements, at[k]) for k in pair))
    for instr, value in zip(nest.body, values, strict=True):
        if instr.name.startswith("store"):
            places, value = np.broadcast_arrays(at[instr.attr], value)
            elements = accesses[instr.attr].elements
            if instr.name == "store":
                elements[places] = value
            else:
                # Once at each point, also where nothing is another at the next.
                points = places if swept_over else np.broadcast_to(places, sizes)
                _COMBINE[instr.name].at(elements, points, value)


def _check_in_place(*operands: tuple[Any, np.ndarray]) -> None:
    """Raises InternalError if a store hits what is loaded at another point."""
    (first, _), _ = operands
    stored, loaded = (
        (x.ctypes.data + at * x.itemsize) // first.itemsize for x, at in operands
    )
    if not np.array_equal(stored, loaded) and np.intersect1d(stored, loaded).size:
        raise InternalError("a nest writes one operand over another at other places")


# Instructions -------------------------------------------------------------------------

_COMBINE = {
    **dict.fromkeys(("sum", "store_add"), np.add),
    **dict.fromkeys(("prod", "store_mul"), np.multiply),
    **dict.fromkeys(("max", "store_max"), np.maximum),
    **dict.fromkeys(("min", "store_min"), np.minimum),
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "logsumexp": np.logaddexp,
}


@functools.cache
def meaning(name: str) -> tuple[Callable[..., Any], list[str]]:
    """The function that is an instruction, and the name of its parameter, if any."""
    for op in registry.values():
        how = op.lowering
        if isinstance(how, Elementwise) and how.expression == name:
            ufunc = isinstance(op.run, np.ufunc)
            found = {} if ufunc else inspect.signature(op.run).parameters
            return op.run, [n for n, p in found.items() if p.kind is p.KEYWORD_ONLY]
    return getattr(np, name), []


def _elementwise(instr: Instr, args: Sequence[np.ndarray]) -> np.ndarray:
    """One instruction on arrays of elements."""
    run, names = meaning(instr.name)
    given = SCALARS[instr.name].result == "given"
    if instr.name == "multiply_add":
        # It is rounded once.
        args = list(map(wide, args))
    result = run(*args, **dict.fromkeys(names, instr.dtype if given else instr.attr))
    return np.asarray(result).astype(instr.dtype, copy=False)


def wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if dtypes.is_float(x.dtype) else x


def _merged(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The array with some neighbouring axes made one, and in front."""
    rest = (*x.shape[: axes[0]], *x.shape[axes[-1] + 1 :])
    front = np.moveaxis(wide(x), axes, range(len(axes)))
    return front.reshape(math.prod(x.shape[a] for a in axes), *rest)


def _reduce(instr: Instr, args: Sequence[np.ndarray], axes: tuple) -> np.ndarray:
    """What elements amount to along some axes, which stay with length 1."""
    name, x = instr.name.removeprefix("reduce_"), _merged(args[0], axes)
    if name.startswith("arg"):
        result = (np.argmax if name == "argmax" else np.argmin)(x, axis=0)
    else:
        result = _COMBINE[name].reduce(x, 0, x.dtype)
    return np.expand_dims(result, axes).astype(instr.dtype)


def _running(instr: Instr, args: Sequence[np.ndarray], axes: tuple) -> np.ndarray:
    """What elements amount to so far, along some axes that count as one."""
    name = instr.name.removeprefix("running_")
    *factors, x = (_merged(a, axes) for a in args)
    if name == "linear":
        x = x.copy()
        for i in range(1, len(x)):
            x[i] += factors[0][i] * x[i - 1]
    else:
        x = _COMBINE[name].accumulate(x, 0, x.dtype)
    x = x.reshape([args[-1].shape[a] for a in axes] + list(x.shape[1:]))
    return np.moveaxis(x, range(len(axes)), axes).astype(instr.dtype)

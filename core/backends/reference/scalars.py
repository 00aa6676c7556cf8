"""What scalar instructions, reductions and running reductions mean to NumPy.

An elementwise instruction is what the op of that name does. Half floats are rounded by
each instruction, as NumPy does; sums and products over a loop are made in double
precision and rounded once.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.ir.scalar import SCALARS
from treadle.kernels.nest import Instr
from treadle.trace.lowering import Elementwise
from treadle.trace.op import registry

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


def elementwise(instr: Instr, args: Sequence[np.ndarray]) -> np.ndarray:
    """One instruction on arrays of elements."""
    run, names = meaning(instr.name)
    given = SCALARS[instr.name].result == "given"
    if instr.name == "multiply_add":
        # It is rounded once.
        args = [_wide(a) for a in args]
    result = run(*args, **dict.fromkeys(names, instr.dtype if given else instr.attr))
    return np.asarray(result).astype(instr.dtype, copy=False)


def _wide(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float64) if dtypes.is_float(x.dtype) else x


def _merged(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """The array with some neighbouring axes made one, and in front."""
    rest = (*x.shape[: axes[0]], *x.shape[axes[-1] + 1 :])
    front = np.moveaxis(_wide(x), axes, range(len(axes)))
    return front.reshape(math.prod(x.shape[a] for a in axes), *rest)


def reduce(instr: Instr, x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """What elements amount to along some axes, which stay with length 1."""
    name, x = instr.name.removeprefix("reduce_"), _merged(x, axes)
    if name.startswith("arg"):
        result = (np.argmax if name == "argmax" else np.argmin)(x, axis=0)
    else:
        result = _COMBINE[name].reduce(x, 0, x.dtype)
    return np.expand_dims(result, axes).astype(instr.dtype)


def running(instr: Instr, args: Sequence[np.ndarray], axes: tuple) -> np.ndarray:
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


def store(
    instr: Instr, elements: np.ndarray, places: np.ndarray, value: np.ndarray
) -> None:
    """Writes elements, the last of those at one place; or combines all with what is
    there."""
    if instr.name == "store":
        elements[places] = value
    else:
        _COMBINE[instr.name].at(elements, places, value)

"""Calls of LAPACK for one operation on NumPy arrays, by the kernel of programs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.backends.cpu.lapack import kernel
from treadle.backends.cpu.lapack.library import library
from treadle.backends.cpu.lapack.schedule import task_bytes, words
from treadle.backends.cpu.run import native
from treadle.trace.lowering import Routine
from treadle.trace.op import Op
from treadle.trace.routine import Script


def call(
    op: Op, arrays: Sequence[Any], params: dict[str, Any]
) -> Sequence[np.ndarray] | None:
    """The results of a `Routine`; None where there is no LAPACK, or nothing to do."""
    arrays = [np.ascontiguousarray(a) for a in arrays]
    found = library()
    if found is None or not all([a.size for a in arrays]):
        return None
    types = tuple([ArrayType(a.shape, a.dtype) for a in arrays])
    out_types, script = _script(op, types, tuple(params.items()))
    outs = [np.empty(t.shape, t.dtype) for t in out_types]
    if not all([out.size for out in outs]):
        return None
    work = np.empty(task_bytes(script) + 64, np.uint8)
    start = work.ctypes.data + -work.ctypes.data % 64
    places = [a.ctypes.data for a in (*arrays, *outs)]
    behind = words(script, (*types, *out_types), places, lambda i: start + i, found)
    args = np.array([1, *behind], np.int64)
    _kernel(kernel.source(script, script.times(types)))(args.ctypes.data, 0, 0)
    return outs


@lru_cache(maxsize=1024)
def _script(
    op: Op, types: tuple[ArrayType, ...], params: tuple
) -> tuple[Sequence[ArrayType], Script]:
    how = op.lowering
    assert isinstance(how, Routine)
    given = dict(params)
    outs = op.infer(types, given)
    return outs, how.script(types, outs, given)


@cache
def _kernel(source: native.Source) -> Any:
    address = native.load([source])[source.key]
    return ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_int64, ctypes.c_int64)(
        address
    )

"""The kernel as data: one loop nest with a small expression DAG as its body.

A `Nest` says what is computed per index, never how long the loops are: sizes, strides
and pointers are run-time arguments, so one compiled nest serves every shape with the
same structure. Fusion writes nests, `kernels.lower` schedules them, a backend emits
them. Nothing here knows a device.

Two loop structures cover everything that is not a contraction:

``axis="inner"``  (row nest) ::

    for o in outer...:            # parallel
        row-level instructions    # once per row: scalars
        for i in inner:           # vectorised; one loop per phase
            elem-level instructions; reductions over i give row-level values

  Elementwise nests are row nests without reductions. A reduction ends a phase: what
  depends on its result runs in a later sweep over the same row (softmax, layer norm).

``axis="mid"``  (column nest) ::

    for o in outer...:            # parallel
        for i in inner:           # parallel and vectorised, held in registers
            for m in mid...: accumulate   # reductions over m, elem-level results
            elem-level instructions on the accumulated values, stores

Levels. A value is *row*-level if it is the same for all of ``inner`` (constants, loads
of row operands, and arithmetic on those), otherwise *elem*-level. In a row nest a
reduction turns an elem-level value into a row-level one. In a column nest, values that
depend on ``mid`` are called *mid*-level; a reduction turns them elem-level.
"""

from __future__ import annotations

import hashlib
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.ir.scalar import SCALARS
from treadle.records import record

BROADCAST, CONTIGUOUS, PAIRED, STRIDED = 0, 1, 2, 3
"""Classes of an operand's stride along ``inner``: zero, one, two (parts of complex
numbers), or a run-time value."""


def inner_class(step: Any, in_memory: bool) -> int:
    """The class of a stride. Two is a class of its own where elements are loaded."""
    if step == 0:
        return BROADCAST
    if step == 1:
        return CONTIGUOUS
    return PAIRED if in_memory and isinstance(step, int) and step == 2 else STRIDED


class Operand(NamedTuple):
    """One memory access pattern. Row operands have inner class BROADCAST.

    kind: "array" (a buffer), "index" (an affine function of the indices; no buffer).
    mid: False if all its mid strides are zero (it is then read outside the mid loop).
    gathers: how many data-dependent indices its loads add (each times its own stride).
    beside: whether it is stored right behind the operand before: parts of complex
      numbers, which are PAIRED, or BROADCAST and two apart from row to row.
    back, apart: the stride along inner, a run-time value, is -1; this, if not 0.
    fixed: whether it is a number, or a place for indices, and all outer strides are
      zero.
    written: whether what loads read is what a store with the same indices writes over.
    """

    dtype: np.dtype
    inner: int
    kind: str = "array"
    mid: bool = False
    gathers: int = 0
    beside: bool = False
    back: bool = False
    fixed: bool = False
    written: bool = False
    apart: int = 0


class Instr(NamedTuple):
    """One typed instruction; `args` index earlier instructions of the nest.

    name is "load" (attr: operand; args: gather indices), "store" (attr: operand; args:
    value, then scatter indices), "store_add|mul|max|min" (the same, combining with what
    is there), "const" (attr: a Python number), "reduce_sum|prod|max|min|and|or" (args:
    value), "reduce_argmax|argmin" (the first index of the extremum; NaN is extreme; the
    dtype is the index's), "running_sum|prod|max|min|logsumexp" (args: value; what it
    amounts to so far, along the loop that reductions run over), "running_linear" (args:
    factor, term; factor times the result before, plus the term), or the name of an
    elementwise op of `treadle.ops` with its parameters in attr.

    Half floats are computed as float32, and every result is rounded. It is the same
    number in memory, in a register, and in another nest that computes it again.
    """

    name: str
    args: tuple[int, ...]
    dtype: np.dtype
    attr: Any = None


@record(frozen=True)
class Nest:
    """A kernel's structure. Hashable: equal nests share one compiled kernel.

    axis: "inner" or "mid", the loop that reductions run over.
    serial: True if rows must run in order (scatter-add): tasks then split ``inner``.
    """

    outer: int
    mid: int
    axis: str
    operands: tuple[Operand, ...]
    body: tuple[Instr, ...]
    serial: bool = False

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        # Once: a nest is looked up again and again, and its body is long.
        loops = self.outer, self.mid, self.axis, self.serial
        return hash((loops, self.operands, self.body))

    @cached_property
    def digest(self) -> str:
        """A name for the structure that is the same in every process."""
        loops = self.outer, self.mid, self.axis, self.serial
        operands = [(_spelled(x.dtype), *x[1:]) for x in self.operands]
        body = [(i.name, i.args, _spelled(i.dtype), i.attr) for i in self.body]
        return hashlib.sha256(repr((loops, operands, body)).encode()).hexdigest()

    def __getstate__(self) -> dict[str, Any]:
        self.digest  # noqa: B018  another process need not find it again
        # The hashes of texts differ from process to process.
        return {k: v for k, v in vars(self).items() if k != "_hash"}


# NumPy takes long to spell a dtype, and nests have few of them.
_spelled = lru_cache(maxsize=64)(repr)


@lru_cache(maxsize=4096)
def shared(nest: Nest) -> Nest:
    """The first nest that was equal to this one: what is found out about a structure is
    found out once, and looked up quickly."""
    return nest


_HALVES = (dtypes.float16, dtypes.bfloat16)


def is_half(dtype: np.dtype) -> bool:
    return dtype.itemsize == 2 and dtype in _HALVES


def rounds_half(instr: Instr) -> bool:
    """Whether a backend rounds the instruction's result to a half float: not what has
    the bits of a half float already, or rounds by itself."""
    if not is_half(instr.dtype):
        return False
    if instr.name in SCALARS:
        return SCALARS[instr.name].role == "arithmetic"
    kind, _, combine = instr.name.partition("_")
    return kind in ("reduce", "running") and combine not in ("max", "min")

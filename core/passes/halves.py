"""Products of half floats: their sums are in single precision, and rounded once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.ir.graph import Atom, Var
from treadle.ops.cast import convert
from treadle.passes.rewrite import Rewriter
from treadle.trace.op import Op

_WIDE = np.dtype(np.float32)


def widened(rewriter: Rewriter, a: Atom, source: str, dtype: np.dtype = _WIDE) -> Atom:
    """What sums are made of: a half float in single precision."""
    return rewriter.emit(convert, [a], {"dtype": dtype}, source)[0]


def narrowed(rewriter: Rewriter, a: Atom, dtype: np.dtype, source: str) -> Atom:
    return rewriter.emit(convert, [a], {"dtype": dtype}, source)[0]


def product(
    rewriter: Rewriter,
    op: Op,
    operands: Sequence[Atom],
    params: dict[str, Any],
    source: str,
) -> Atom:
    """A product for a kernel that multiplies half floats."""
    (like,) = op.infer([a.type for a in operands], params)
    result = Var(ArrayType(like.shape, _WIDE))
    rewriter.emit(op, operands, params, source, [result])
    return narrowed(rewriter, result, like.dtype, source)

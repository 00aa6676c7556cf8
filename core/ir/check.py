"""The checker that runs between passes in tests: is this Graph well-formed?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.errors import InternalError
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ir.scalar import BITCAST, CONVERT
from treadle.trace.lowering import Elementwise, Product, Reduction

_HALVES = frozenset({dtypes.float16, dtypes.bfloat16})
_SUMS = (dtypes.int32, dtypes.uint32)
_ARITHMETIC = (Elementwise, Product, Reduction)


def check(graph: Graph) -> None:
    """Verifies single assignment, definition before use, and every type rule.

    Raises:
      InternalError: at the first violation.
    """
    defined: set[Var] = set()

    def fail(n: int, what: str) -> NoReturn:
        eq = graph.equations[n]
        raise InternalError(f"equation {n} ({eq.op.name}) of\n{graph}\n {what}")

    for v in graph.inputs:
        if v in defined:
            raise InternalError("the input list defines a value twice")
        defined.add(v)
    for n, eq in enumerate(graph.equations):
        for a in eq.inputs:
            if not isinstance(a, Lit) and a not in defined:
                fail(n, "uses a value before its definition")
        expected = eq.op.infer(_types(eq, eq.inputs), eq.params)
        found = _types(eq, eq.outputs)
        plain = [(t.shape, t.dtype) for t in expected]
        if plain != [(t.shape, t.dtype) for t in found]:
            fail(n, f"gives {expected}, but its outputs are {found}")
        for v in eq.outputs:
            if v in defined:
                fail(n, "defines a value twice")
            defined.add(v)
        for value in eq.params.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Graph):
                    check(inner)
    for a in graph.outputs:
        if not isinstance(a, Lit) and a not in defined:
            raise InternalError(f"an output of\n{graph}\nis not defined")


def _types(eq: Equation, atoms: Sequence[Atom]) -> list[ArrayType]:
    """The types of operands or results. In arithmetic of half floats some may be left
    in float32 (`treadle.passes.rounding`), as sums in products of them are: they count
    as what they stand for."""
    types = [a.type for a in atoms]
    result = eq.outputs[0].type.dtype if eq.outputs else None
    if isinstance(eq.op.lowering, Product) and result in _SUMS:
        # Small integers stay what they are (`treadle.passes.integers`).
        return [ArrayType(t.shape, result) for t in types]
    if isinstance(eq.op.lowering, Product) and result and dtypes.is_float(result):
        # So do bytes beside floats.
        types = [_beside(t, result) for t in types]
    halves = {a.type.dtype for a in (*eq.inputs, *eq.outputs)} & _HALVES
    if len(halves) != 1 or not isinstance(eq.op.lowering, _ARITHMETIC):
        return types
    if getattr(eq.op.lowering, "expression", None) in (CONVERT, BITCAST):
        return types
    (half,) = halves
    return [ArrayType(t.shape, half) if t.dtype == dtypes.float32 else t for t in types]


def _beside(t: ArrayType, float_: np.dtype) -> ArrayType:
    short = t.dtype.kind in "biu" and t.dtype.itemsize == 1
    return ArrayType(t.shape, float_) if short else t

"""Common subexpressions: an equation that was computed before is not computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from treadle import dtypes
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var, params_key
from treadle.ir.walk import effectful
from treadle.late import Computed, holds
from treadle.passes.rewrite import Rewriter
from treadle.trace.lowering import Same


class _Merge(Rewriter):
    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.seen: dict[Any, Sequence[Var]] = {}
        self._open: dict[Any, list[Equation]] = {}
        """Those of which some number depends on sizes, by all but their numbers."""

    def equation(self, eq: Equation) -> None:
        if effectful(eq) or isinstance(eq.op.lowering, Same):
            # Recomputation behind a barrier is wanted: it saves memory.
            self.keep(eq)
            return
        values = self.values
        inputs = [values.get(a, a) for a in eq.inputs]
        atoms = tuple(map(_key, inputs))
        key = (eq.op, atoms, params_key(eq.params))
        found = self.seen.get(key)
        if found is None:
            found = self._equal_for_sizes(eq, inputs)
        if found is None:
            self.keep(eq)
            self.seen[key] = eq.outputs
        else:
            self.values.update(zip(eq.outputs, found, strict=True))

    def _equal_for_sizes(
        self, eq: Equation, inputs: Sequence[Atom]
    ) -> Sequence[Var] | None:
        """The results of an equation that differs in numbers alone, if those are equal
        for the sizes. It is asked of floats: how often a product is read says how it is
        rounded, and for one size there is one product."""
        numbers = [a for a in inputs if _is_float(a)]
        if len(eq.outputs) != 1 or not numbers:
            return None
        rest = tuple([a.type if _is_float(a) else _key(a) for a in inputs])
        alike = self._open.setdefault((eq.op, rest, params_key(eq.params)), [])
        for other in alike:
            pairs = zip(numbers, filter(_is_float, other.inputs), strict=True)
            if all([_same_number(a, b) for a, b in pairs]):
                return other.outputs
        alike.append(Equation(eq.op, inputs, eq.params, eq.outputs, eq.source))
        return None


def _key(a: Atom) -> Any:
    return a.key() if isinstance(a, Lit) else a


def _is_float(a: Atom) -> TypeGuard[Lit]:
    return (
        isinstance(a, Lit)
        and not a.type.shape
        and dtypes.is_differentiable(a.type.dtype)
    )


def _same_number(a: Lit, b: Lit) -> bool:
    """Whether two literals are: a guard, if that depends on sizes."""
    if a.size is None and b.size is None:
        return a.key() == b.key()
    if a.varies != b.varies:
        return False
    parts = (a.size or a.value, b.size or b.value)
    return holds(bool, Computed(_are_equal, parts, np.dtype(np.bool_)))


def _are_equal(numbers: Sequence[Any]) -> bool:
    first, second = numbers
    return first.tobytes() == second.tobytes()


def merge_equal(graph: Graph) -> Graph:
    """The graph with equal pure equations merged, nested graphs included."""
    return _Merge.apply(graph)

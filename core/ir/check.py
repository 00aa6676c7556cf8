"""The checker that runs between passes in tests: is this Graph well-formed?"""

from __future__ import annotations

from treadle.errors import InternalError
from treadle.ir.graph import Graph, Lit, Var


def check(graph: Graph) -> None:
    """Verifies single assignment, definition before use, and every type rule.

    Raises:
      InternalError: at the first violation.
    """
    defined: set[Var] = set()

    def define(v: Var, where: str) -> None:
        if v in defined:
            raise InternalError(f"{where} defines a value twice")
        defined.add(v)

    for v in graph.inputs:
        define(v, "the input list")
    for n, eq in enumerate(graph.equations):
        where = f"equation {n} ({eq.op.name}) of\n{graph}\n"
        for a in eq.inputs:
            if not isinstance(a, Lit) and a not in defined:
                raise InternalError(f"{where} uses a value before its definition")
        expected = eq.op.infer([a.type for a in eq.inputs], eq.params)
        found = [v.type for v in eq.outputs]
        plain = [(t.shape, t.dtype) for t in expected]
        if plain != [(t.shape, t.dtype) for t in found]:
            raise InternalError(
                f"{where} gives {expected}, but its outputs are {found}"
            )
        for v in eq.outputs:
            define(v, where)
        for value in eq.params.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Graph):
                    check(inner)
    for a in graph.outputs:
        if not isinstance(a, Lit) and a not in defined:
            raise InternalError(f"an output of\n{graph}\nis not defined")

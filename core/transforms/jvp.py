"""Forward mode: each value travels with its directional derivative."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.arraytype import ArrayType
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.trace.interpreter import Interpreter, entering, state
from treadle.trace.op import Op, Zero
from treadle.trace.stage import stage
from treadle.trace.value import Tracer, typeof
from treadle.trace.ways import Restage


class JVPTracer(Tracer):
    """A primal value of the parent interpreter, and its tangent (never a Zero)."""

    __slots__ = ("primal", "tangent", "type")

    def __init__(self, interpreter: Interpreter, primal: Any, tangent: Any) -> None:
        self.interpreter, self.primal, self.tangent = interpreter, primal, tangent
        self.type: ArrayType = typeof(primal)

    def concrete(self) -> Any:
        if isinstance(self.primal, Tracer):
            return self.primal.concrete()
        return self.primal

    def made(self) -> str:
        return self.primal.made() if isinstance(self.primal, Tracer) else ""


def zero_of(x: Any) -> Zero:
    """The zero tangent of a value."""
    return Zero(typeof(x).strong())


class JVPInterpreter(Interpreter):
    """Applies each op's JVP rule, at the parent interpreter."""

    def __init__(self, restages: bool = False) -> None:
        self.parent, self._restages = state.interpreter, restages
        self.writer = self.parent.writer

    def unpack(self, x: Any) -> tuple[Any, Any]:
        """The primal and tangent of any value."""
        if isinstance(x, JVPTracer) and x.interpreter is self:
            return x.primal, x.tangent
        if isinstance(x, Tracer):
            x.check_alive()
        return x, zero_of(x)

    def pack(self, primal: Any, tangent: Any) -> Any:
        if isinstance(tangent, Zero):
            return primal
        return JVPTracer(self, primal, tangent)

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        primals, tangents = (
            zip(*map(self.unpack, args), strict=True) if args else ((), ())
        )
        previous = state.interpreter
        state.interpreter = self.parent
        try:
            if not op.differentiable or all(type(t) is Zero for t in tangents):
                return op(*primals, **params)
            out, tangent = self.rule(op, primals, tangents, params)
        finally:
            state.interpreter = previous
        if op.multiple:
            return [self.pack(p, t) for p, t in zip(out, tangent, strict=True)]
        return self.pack(out, tangent)

    def decide(self, x: Any) -> bool | None:
        if self._restages:
            raise Restage
        return self.parent.decide(self.unpack(x)[0])

    def rule(
        self, op: Op, primals: Sequence[Any], tangents: Sequence[Any], params: dict
    ) -> tuple[Any, Any]:
        """Runs the op's rule. The linearizing interpreter overrides this."""
        if op.jvp is None:
            raise TypeError(f"`{op.name}` has no derivative")
        return op.jvp(primals, tangents, **params)


def jvp_flat(
    function: Any,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    restages: bool = False,
) -> tuple[list[Any], list[Any]]:
    """JVP of a function of flat values; tangents (in and out) may be Zero.

    Raises:
      Restage: if `restages`, and the function branches on a traced value.
    """
    interpreter = JVPInterpreter(restages)
    with entering(interpreter):
        arguments = [
            interpreter.pack(p, t) for p, t in zip(primals, tangents, strict=True)
        ]
        results = function(*arguments)
        pairs = [interpreter.unpack(r) for r in results]
    return [p for p, _ in pairs], [t for _, t in pairs]


def jvp_graph(
    graph: Graph, nonzero: tuple[bool, ...]
) -> tuple[Graph, tuple[bool, ...]]:
    """The graph of a graph's JVP.

    Its inputs are the primals, then the tangents of the `nonzero` inputs; its outputs
    the primal results, then the nonzero tangents. Also returns which those are.
    """
    key = ("jvp", nonzero)
    if key not in graph.cache:
        graph.cache[key] = _jvp_graph(graph, nonzero)
    return graph.cache[key]


def _jvp_graph(graph: Graph, nonzero: tuple[bool, ...]) -> tuple[Graph, tuple]:
    types = graph.in_types
    kept: tuple[bool, ...] = ()

    def function(*values: Any) -> list[Any]:
        nonlocal kept
        given = iter(values[len(types) :])
        tangents = [
            next(given) if nz else Zero(t.strong())
            for nz, t in zip(nonzero, types, strict=True)
        ]
        outs, out_tangents = jvp_flat(
            lambda *xs: call_graph(graph, xs), values[: len(types)], tangents
        )
        kept = tuple(not isinstance(t, Zero) for t in out_tangents)
        return [*outs, *(t for t in out_tangents if not isinstance(t, Zero))]

    moving = [t.strong() for t, nz in zip(types, nonzero, strict=True) if nz]
    result, _ = stage(function, [*types, *moving], closed=True, name=graph.name)
    return result, kept

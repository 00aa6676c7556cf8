"""Splits a differentiated program: primal values now, a linear Graph for tangents.

Each op's JVP rule is run once with its tangents staged: what depends on tangents is
written into the linear graph, everything else happens at the parent interpreter. The
parent's values that the linear graph uses are its residuals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.trace.interpreter import entering, state
from treadle.trace.op import Op, Zero
from treadle.trace.stage import StageInterpreter, StageTracer, is_staging, stage
from treadle.trace.value import typeof
from treadle.transforms.jvp import JVPInterpreter


class _TangentStage(StageInterpreter):
    """Writes what depends on tangents, passes on everything else."""

    writes_all = False

    def __init__(self) -> None:
        super().__init__()
        if not is_staging():
            # Values at a point: the linear graph is to be the same at others.
            self.small = 0

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        for a in args:
            if type(a) is StageTracer and a.interpreter is self:
                return super().process(op, args, params)
        previous = state.interpreter
        state.interpreter = self.parent
        try:
            return op(*args, **params)
        finally:
            state.interpreter = previous


class LinearizeInterpreter(JVPInterpreter):
    """JVP whose tangents are tracers of a tangent stage."""

    def __init__(self, restages: bool = False) -> None:
        super().__init__(restages)
        self.tangents = _TangentStage()

    def rule(
        self, op: Op, primals: Sequence[Any], tangents: Sequence[Any], params: dict
    ) -> tuple[Any, Any]:
        if op.linearize is None:
            raise TypeError(f"`{op.name}` has no derivative")
        state.interpreter = self.tangents
        return op.linearize(primals, tangents, **params)


class Linearized(NamedTuple):
    """What linearizing a function at a point gives.

    outs: the primal results.
    residuals: the parent's values that `graph` starts with.
    graph: (residuals, nonzero input tangents) -> nonzero output tangents.
    nonzero_out: which outputs have tangents.
    """

    outs: list[Any]
    residuals: list[Any]
    graph: Graph
    nonzero_out: tuple[bool, ...]


def linearize_flat(
    function: Callable[..., Sequence[Any]],
    primals: Sequence[Any],
    nonzero: Sequence[bool],
    name: str = "",
    restages: bool = False,
) -> Linearized:
    """Linearizes a function of flat values in the inputs marked `nonzero`.

    Raises:
      Restage: if `restages`, and the function branches on a traced value.
    """
    interpreter = LinearizeInterpreter(restages)
    writer = interpreter.tangents
    with entering(interpreter):
        inputs = [
            writer.argument(typeof(p).strong())
            for p, nz in zip(primals, nonzero, strict=True)
            if nz
        ]
        given = iter(inputs)
        arguments = [
            interpreter.pack(p, next(given)) if nz else p
            for p, nz in zip(primals, nonzero, strict=True)
        ]
        results = function(*arguments)
        pairs = [interpreter.unpack(r) for r in results]
        moving = [t for _, t in pairs if not isinstance(t, Zero)]
        graph = writer.graph(inputs, moving, name)
    writer.alive = False
    return Linearized(
        [p for p, _ in pairs],
        writer.captures(),
        graph,
        tuple(not isinstance(t, Zero) for _, t in pairs),
    )


class LinearizedGraph(NamedTuple):
    """A graph split in two.

    known: inputs -> (results, residuals).
    linear: (residuals, nonzero tangents) -> nonzero tangents.
    residuals: for each residual, the index of the input that it is, or None if `known`
      computes it (only those are outputs of `known`).
    nonzero_out: which results have tangents.
    """

    known: Graph
    linear: Graph
    residuals: tuple[int | None, ...]
    nonzero_out: tuple[bool, ...]

    def gather(self, inputs: Sequence[Any], computed: Sequence[Any]) -> list[Any]:
        """The residuals, from the inputs and what `known` gives past its results."""
        rest = iter(computed)
        return [next(rest) if i is None else inputs[i] for i in self.residuals]


def linearize_graph(graph: Graph, nonzero: tuple[bool, ...]) -> LinearizedGraph:
    """Linearizes a graph in the inputs marked `nonzero`. Cached on the graph."""
    key = ("linearize", nonzero)
    if key not in graph.cache:
        graph.cache[key] = _linearize_graph(graph, nonzero)
    return graph.cache[key]


def _linearize_graph(graph: Graph, nonzero: tuple[bool, ...]) -> LinearizedGraph:
    linear: Graph | None = None
    origins: tuple[int | None, ...] = ()
    nonzero_out: tuple[bool, ...] = ()

    def function(*inputs: Any) -> list[Any]:
        nonlocal linear, origins, nonzero_out
        split = linearize_flat(
            lambda *xs: call_graph(graph, xs), inputs, nonzero, graph.name
        )
        linear, nonzero_out = split.graph, split.nonzero_out
        places = {id(x): i for i, x in enumerate(inputs)}
        origins = tuple(places.get(id(r)) for r in split.residuals)
        computed = [
            r for r, o in zip(split.residuals, origins, strict=True) if o is None
        ]
        return [*split.outs, *computed]

    known, _ = stage(function, graph.in_types, closed=True, name=graph.name)
    assert linear is not None
    return LinearizedGraph(known, linear, origins, nonzero_out)

"""What ops that hold graphs share: which tangents are zero, and graphs with other
inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from treadle.arraytype import ArrayType
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ir.walk import has_effects, live
from treadle.ops.compare import select
from treadle.ops.movement import broadcast_in_dim
from treadle.trace.op import Zero
from treadle.trace.value import typeof

Flags = tuple[bool, ...]
Answer = TypeVar("Answer")


def nonzero(tangents: Sequence[Any]) -> Flags:
    """Which tangents (or cotangents) are not known to be zero."""
    return tuple(not isinstance(t, Zero) for t in tangents)


def pick(items: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """The items whose flag is set."""
    return [x for x, flag in zip(items, flags, strict=True) if flag]


def reached(
    first: Flags, step: Callable[[Flags], tuple[Answer, Flags]]
) -> tuple[Answer, Flags]:
    """Which carries a loop's iterations mark, if `first` are marked before it: one that
    is not at first may be once it has met another. Gives what `step` gave for them.

    step: from the carries marked before an iteration to an answer, and to those marked
      after it.
    """
    marked = first
    while True:
        answer, found = step(marked)
        grown = either(marked, found)
        if grown == marked:
            return answer, marked
        marked = grown


def either(a: Sequence[bool], b: Sequence[bool]) -> Flags:
    """The union of two sets of flags."""
    return tuple(x or y for x, y in zip(a, b, strict=True))


def select_examples(condition: Any, x: Any, y: Any) -> Any:
    """`x` for the examples (along axis 0) whose condition holds, `y` for the others."""
    shape = typeof(x).shape
    if len(shape) > 1:
        condition = broadcast_in_dim(condition, shape=shape, dims=(0,))
    return select(condition, x, y)


def sections(items: Sequence[Any], n_consts: int, n_carry: int) -> tuple[Any, Any, Any]:
    """Splits what belongs to a body's inputs into constants, carries and the rest."""
    n = n_consts + n_carry
    return items[:n_consts], items[n_consts:n], items[n:]


def numbered(flags: Sequence[bool], start: int = 0) -> list[int | None]:
    """Numbers the flags that are set: where the items picked by them stand."""
    places: list[int | None] = []
    for flag in flags:
        places.append(start if flag else None)
        start += flag
    return places


def rewire(
    graph: Graph, inputs: Sequence[int], outputs: Sequence[int | ArrayType]
) -> Graph:
    """The graph with its inputs and outputs in another order.

    Args:
      inputs: for each new input, which old one it is.
      outputs: for each new output, which old one it is, or the type of zeros.
    """
    equations = list(graph.equations)

    def output(place: int | ArrayType) -> Atom:
        if isinstance(place, int):
            return graph.outputs[place]
        return add_zeros(equations, place)

    found = [output(p) for p in outputs]
    return Graph([graph.inputs[i] for i in inputs], equations, found, graph.name)


def add_zeros(equations: list[Equation], t: ArrayType) -> Atom:
    """Writes an array of zeros."""
    zero = Lit(t.dtype.type(0), ArrayType((), t.dtype))
    if not t.shape:
        return zero
    var = Var(t)
    params = {"shape": t.shape, "dims": ()}
    equations.append(Equation(broadcast_in_dim, [zero], params, [var]))
    return var


def cut(graph: Graph, given: Sequence[Var], wanted: Sequence[Atom]) -> Graph:
    """The part of a graph that computes `wanted` from `given`."""
    kept, _ = live(graph.equations, wanted, lambda eq: False, set(given))
    return Graph(given, kept, wanted, graph.name)


def prune(graph: Graph) -> Graph:
    """The graph without pure equations whose results are not used."""
    kept, _ = live(graph.equations, graph.outputs)
    return Graph(graph.inputs, kept, graph.outputs, graph.name)


def silent(graph: Graph) -> Graph:
    """The graph without the effects whose results nobody could use, for a second run.
    Cached on the graph."""
    if not has_effects(graph):
        return graph
    if "silent" not in graph.cache:
        kept = [
            Equation(eq.op, eq.inputs, _silent_params(eq), eq.outputs, eq.source)
            for eq in graph.equations
            if eq.outputs or not eq.op.effect
        ]
        graph.cache["silent"] = Graph(graph.inputs, kept, graph.outputs, graph.name)
    return graph.cache["silent"]


def _silent_params(eq: Equation) -> dict[str, Any]:
    def quiet(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple([quiet(x) for x in value])
        return silent(value) if isinstance(value, Graph) else value

    if not any(map(has_effects, eq.graphs)):
        return eq.params
    return {name: quiet(value) for name, value in eq.params.items()}

"""The ways through a function that branches become one graph, of nested `cond`s."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

from treadle import dtypes, tree
from treadle.arraytype import ArrayType
from treadle.control.callback import io_callback
from treadle.control.cond import cond
from treadle.control.graphs import add_zeros
from treadle.errors import StructureError, TracerError, at
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.ir.walk import call_graph
from treadle.ops.cast import convert
from treadle.trace.caught import caught_at
from treadle.trace.interpreter import entering, state
from treadle.trace.ways import (
    Caller,
    Decision,
    Explorer,
    Refused,
    Retry,
    Way,
    check_resumed,
    restaged,
    retrying,
)


def explore(
    function: Callable[..., Sequence[Any]],
    types: Sequence[ArrayType],
    form: Callable[[], Any],
    *,
    closed: bool = False,
    name: str = "",
) -> tuple[Graph, list[Any]]:
    """Traces a function of flat arrays to flat arrays, as `stage` does. If it branches
    on traced values, it is called once for each way through it.

    form: the structure of what the last call of the function gave.

    Raises:
      StructureError, TypeError: if results differ in structure or type from way to way.
    """
    caller = Caller()
    try:
        with retrying(caller):
            while True:
                try:
                    found = _explored(function, types, form, closed, name)
                except Retry as again:
                    if again.caller is not caller:
                        raise
                    continue
                check_resumed(None, name)
                return found
    except Refused as refused:
        if state.retries:
            raise
        raise refused.error from None


def _explored(
    function: Callable[..., Sequence[Any]],
    types: Sequence[ArrayType],
    form: Callable[[], Any],
    closed: bool,
    name: str,
) -> tuple[Graph, list[Any]]:
    writer = Explorer(name, closed)
    with entering(writer):
        arguments = [writer.argument(t) for t in types]
        writer.explore(function, arguments, form)
        check_uncaught(writer)
        outputs = joined(writer)
        inputs = [*writer.capture_vars, *(a.atom for a in arguments)]
        graph = Graph(inputs, writer.equations, outputs, name)  # type: ignore[arg-type]
        return graph, writer.captures()


def check_uncaught(writer: Explorer) -> None:
    """
    Raises:
      Refused: if an error that the function raises may be caught around it, by what is
        traced, too: when the program runs there is no such `except` any more.
    """
    if len(state.retries) < 2 or len(writer.ways) < 2:
        return
    found = catching_line(writer, sys._getframe(1), state.retries[0].depth)
    if found is not None:
        way, line = found
        text = _CAUGHT.format(
            type(way.error).__name__, line, at(way.decisions[-1].source)
        )
        raise Refused(TracerError(text))


def catching_line(
    writer: Explorer, frame: FrameType, within: int
) -> tuple[Way, str] | None:
    """A way that ends with an error which may be caught in a frame, or one that called
    it, down to a depth; and where."""
    for way in writer.ways:
        if way.error is not None:
            line = caught_at(frame, within, type(way.error))
            if line:
                return way, line
    return None


_CAUGHT = """\
{0} is raised when a traced value says so, in what runs as one operation (a loop, a \
branch, a jitted function), and may be caught around that, at {1}{2}
A compiled program has no `except`: leave the loop by `break` with a flag, choose by \
`tnp.where`, or catch it around the jitted function."""


def branching(
    transform: Callable[..., Any],
    function: Callable[..., Sequence[Any]],
    types: Sequence[ArrayType],
    form: Callable[[], Any],
    *args: Any,
    name: str = "",
) -> Any:
    """``transform(function, *args)``, for a function that may branch on traced values:
    the transform is applied to its graph then.

    types: of the function's arguments, as it sees them.
    """

    def graph() -> Callable[..., list[Any]]:
        found, captured = explore(function, types, form, name=name)
        return lambda *values: call_graph(found, [*captured, *values])

    return restaged(transform, function, graph, *args)


def joined(writer: Explorer) -> Sequence[Atom]:
    """The results, whichever way is gone; writes what is after the first question."""
    ways = writer.ways
    if len(ways) == 1 and ways[0].error is None:
        return ways[0].results
    with_results = [w for w in ways if w.error is None]
    if not with_results:
        assert ways[0].error is not None
        raise ways[0].error
    first = with_results[0]
    for other in with_results[1:]:
        if other.form != first.form:
            raise StructureError(_STRUCTURES.format(writer.name, first, other))
    piece = _piece(ways, 0, 0, first.form)
    writer.equations[:] = piece.equations
    assert piece.results is not None
    return piece.results


_STRUCTURES = """\
{0} branches on a traced value: all ways through it must give results of one structure
  {1.form}{1}
  {2.form}{2}"""


class _Piece(NamedTuple):
    """A part of a program; what it gives, None if it always raises."""

    equations: list[Equation]
    results: Sequence[Atom] | None


def _piece(ways: Sequence[Way], depth: int, start: int, form: Any) -> _Piece:
    """What ways do that answer `depth` questions alike, from equation `start` on."""
    first = ways[0]
    if depth == len(first.decisions):
        equations = first.equations[start:]
        if first.error is None:
            return _Piece(equations, first.results)
        source = first.decisions[-1].source
        return _Piece([*equations, _raising(first.error, source)], None)
    decision = first.decisions[depth]
    equations = first.equations[start : decision.position]
    no, yes = [
        _piece(
            [w for w in ways if w.decisions[depth].taken is taken],
            depth + 1,
            decision.position,
            form,
        )
        for taken in (False, True)
    ]
    return _Piece(equations, _branch(equations, decision, (no, yes), form))


def _branch(
    equations: list[Equation],
    decision: Decision,
    sides: tuple[_Piece, _Piece],
    form: Any,
) -> Sequence[Atom] | None:
    """Writes the equation that takes one of two sides, and gives its results."""
    given = [s.results for s in sides if s.results is not None]
    columns = list(zip(*given, strict=True))
    made = {v for s in sides for eq in s.equations for v in eq.outputs}
    # What is the same on both sides, and known before, need not go through them.
    chosen = [i for i, column in enumerate(columns) if not _passes(column, made)]
    types = [_common(columns[i], i, decision, form) for i in chosen]
    free = list(dict.fromkeys(v for s in sides for v in _free(s, chosen)))
    graphs = tuple([_closed(s, chosen, types, free) for s in sides])
    index = Var(ArrayType((), dtypes.int32))
    params: dict[str, Any] = {"dtype": dtypes.int32}
    # The sides' equations have the names around them, as they were traced here.
    source = str(decision.source)
    equations.append(Equation(convert, [decision.atom], params, [index], source))
    outputs = [Var(t) for t in types]
    equations.append(
        Equation(cond, [index, *free], {"branches": graphs}, outputs, source)
    )
    if not given:
        return None
    found = dict(zip(chosen, outputs, strict=True))
    return [found.get(i, column[0]) for i, column in enumerate(columns)]


def _passes(column: Sequence[Atom], made: set[Var]) -> bool:
    first, *others = column
    if isinstance(first, Lit):
        return all(isinstance(a, Lit) and a.key() == first.key() for a in others)
    return first not in made and all(a is first for a in others)


def _common(column: Sequence[Atom], n: int, decision: Decision, form: Any) -> ArrayType:
    """The type of a result; Python numbers take the dtype of the other side."""
    types = [a.type for a in column]
    dtype = dtypes.promote(*((t.dtype, t.weak) for t in types))[0]
    if any(
        t.shape != types[0].shape or (t.dtype != dtype and not t.weak) for t in types
    ):
        path = tree.paths(form)[n] if n < form.count else ()
        place = "the result" + (tree.key_name(path) if path else "")
        no, yes = types
        raise TypeError(
            f"{place} must have one type whichever way a branch on a traced value is "
            f"taken\n  taken as True:  {yes}\n  taken as False: {no}"
            f"{at(decision.source)}\nConvert (`.astype(...)`) or pad one of them."
        )
    return ArrayType(types[0].shape, dtype, all(t.weak for t in types))


def _free(side: _Piece, chosen: Sequence[int]) -> Iterator[Var]:
    """What a side takes from before it."""
    made: set[Var] = set()
    for eq in side.equations:
        yield from (a for a in eq.inputs if isinstance(a, Var) and a not in made)
        made.update(eq.outputs)
    for i in chosen if side.results is not None else ():
        atom = side.results[i]  # type: ignore[index]
        if isinstance(atom, Var) and atom not in made:
            yield atom


def _closed(
    side: _Piece,
    chosen: Sequence[int],
    types: Sequence[ArrayType],
    free: Sequence[Var],
) -> Graph:
    """A side as a graph of its own, whose results have the given types."""
    names: dict[Var, Var] = {v: Var(v.type) for v in free}
    equations = []

    def own(a: Atom) -> Atom:
        return names[a] if isinstance(a, Var) else a

    for eq in side.equations:
        inputs = [own(a) for a in eq.inputs]
        names.update((v, Var(v.type)) for v in eq.outputs)
        outputs = [names[v] for v in eq.outputs]
        equations.append(Equation(eq.op, inputs, eq.params, outputs, eq.source))
    results: list[Atom] = []
    for i, t in zip(chosen, types, strict=True):
        if side.results is None:
            results.append(add_zeros(equations, t))
        else:
            results.append(_converted(equations, own(side.results[i]), t))
    return Graph([names[v] for v in free], equations, results)


def _converted(equations: list[Equation], a: Atom, t: ArrayType) -> Atom:
    if a.type.dtype == t.dtype:
        return a
    var = Var(t)
    equations.append(Equation(convert, [a], {"dtype": t.dtype}, [var]))
    return var


class _Raise:
    """Raises, when the program comes by, what the function raised in its trace."""

    def __init__(self, error: Exception) -> None:
        self._error, self.__name__ = error, type(error).__name__

    def __call__(self, *_: Any) -> Any:
        raise self._error.with_traceback(None)


def _raising(error: Exception, source: str) -> Equation:
    params = {"function": _Raise(error), "types": (), "batching": "sequential"}
    return Equation(io_callback, [], params, [], source)

"""Statements that branch on traced values: what they leave behind is joined.

The user's functions call these (`treadle.trace.source`): a step is a statement as a
function that writes to the variables around it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CellType, FunctionType
from typing import Any, NamedTuple

from treadle import tree
from treadle.api.ambient import Surroundings
from treadle.api.while_loops import while_loop
from treadle.control.ways import joined
from treadle.errors import MutationError, StructureError, TracerError
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.trace import source
from treadle.trace.interpreter import entering, state
from treadle.trace.outside import ONCE, Outside, owning
from treadle.trace.rewrite import LOOP, STEP
from treadle.trace.source import Place
from treadle.trace.stage import StageInterpreter, StageTracer
from treadle.trace.value import NUMBERS, is_array
from treadle.trace.ways import Explorer, Retry, check_resumed
from treadle.transforms.batch import BatchInterpreter


class _Unbound:
    """Stands for a variable without a value."""


_UNBOUND = _Unbound()


class _Unfit(Exception):
    """A variable can't have one value, whichever way was gone."""


def step(
    function: FunctionType, names: Sequence[str], live: Sequence[str], at: tuple
) -> None:
    """Runs a statement, in each way through it if it is traced.

    Args:
      names: of the variables that it may bind; `live`: those that are read later.
      at: its line and column.
    """
    place: Place = (function.__code__.co_filename, *at)
    check_resumed(place, "a function")
    if place in source.unfit or not _is_tracing():
        function()
        return
    variables = _Variables((function,), names)
    if any(hasattr(type(x), "__next__") for x in variables.before.values()):
        _give_up(place)
    try:
        _Step(function, variables, live).run()
    except (MutationError, StructureError, _Unfit):
        variables.put(variables.before)
        _give_up(place)


def _give_up(place: Place) -> None:
    """Leaves a statement to what is around it."""
    source.unfit.add(place)
    raise Retry(place, sys._getframe(2))


def _is_tracing() -> bool:
    """Whether there may be values that are not known, and someone who traces anew."""
    if not state.retries or state.branching != "statements":
        return False
    interpreter: Any = state.interpreter
    while interpreter is not None:
        if isinstance(interpreter, BatchInterpreter):
            return True
        if isinstance(interpreter, StageInterpreter) and interpreter.writes_all:
            return isinstance(interpreter, Explorer)
        interpreter = getattr(interpreter, "parent", None)
    return False


class _Variables:
    """Variables of a function around a step, which the step may bind."""

    def __init__(self, functions: Sequence[FunctionType], names: Sequence[str]) -> None:
        self.cells: dict[str, CellType] = {}
        for f in functions:
            free = zip(f.__code__.co_freevars, f.__closure__ or (), strict=True)
            self.cells.update((n, cell) for n, cell in free if n in names)
        self.before = self.now()

    @property
    def all(self) -> list[CellType]:
        """The cells that hold them."""
        return list(self.cells.values())

    def now(self) -> dict[str, Any]:
        """Their values."""
        return {name: _value(cell) for name, cell in self.cells.items()}

    def put(self, values: dict[str, Any]) -> None:
        """Gives them values."""
        for name, x in values.items():
            cell = self.cells[name]
            if x is not _UNBOUND:
                cell.cell_contents = x
            elif _value(cell) is not _UNBOUND:
                del cell.cell_contents


def _value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _UNBOUND


class _Joined(NamedTuple):
    """A variable after a step: its structure, and for each leaf a value that is the
    same in all ways, or None if an array is computed."""

    form: tree.Structure
    leaves: list[tuple[Any] | None]


class _Step:
    """A statement that is run in each way."""

    def __init__(
        self, function: Callable[[], None], variables: _Variables, live: Sequence[str]
    ) -> None:
        self.function, self.variables, self.live = function, variables, live
        self.around = Surroundings()
        self.after: list[dict[str, Any]] = []
        self.ambient: list[list[Any]] = []

    def run(self) -> None:
        """Goes all ways, and leaves behind what they give."""
        name = "a statement"
        writer = Explorer(name)
        with entering(writer), owning(self.variables.all):
            writer.explore(self._once, (), lambda: None)
            if any(way.error is not None for way in writer.ways):
                # Of `step`'s caller: an `except` there wants the error itself.
                if source.is_caught(sys._getframe(2), state.retries[-1].depth):
                    raise _Unfit
            known = {
                n: self._join(n, [x[n] for x in self.after], writer)
                for n in (self.variables.cells if self.after else ())
            }
            changed = sorted({i for x in self.ambient for i in self.around.changed(x)})
            self._results(writer, known, changed)
            try:
                outputs = joined(writer)
            except TypeError:
                raise _Unfit from None
            graph = Graph(writer.capture_vars, writer.equations, outputs, name)
            captured = writer.captures()
        found = iter(call_graph(graph, captured))
        after = {}
        for n, x in known.items():
            if isinstance(x, _Joined):
                leaves = [next(found) if leaf is None else leaf[0] for leaf in x.leaves]
                x = x.form.unflatten(leaves)
            after[n] = x
        self.variables.put(after)
        if changed:
            self.around.update(changed, list(found))

    def _once(self) -> list[Any]:
        self.variables.put(self.variables.before)
        with self.around.inside(self.around.leaves):
            self.function()
            self.after.append(self.variables.now())
            self.ambient.append(self.around.kept_values("a branch", "a way"))
        return []

    def _join(self, name: str, values: Sequence[Any], writer: Explorer) -> Any:
        """What a variable is, whichever way was gone: a value that is the same in all,
        or a `_Joined`."""
        first = values[0]
        if all(x is _UNBOUND for x in values):
            return _UNBOUND
        joined = None
        if not any(x is _UNBOUND for x in values):
            flat = [tree.flatten(x) for x in values]
            forms = {form for _, form in flat}
            if len(forms) == 1:
                columns = zip(*(leaves for leaves, _ in flat), strict=True)
                kinds = [_same(column, writer) for column in columns]
                if _DIFFERENT not in kinds:
                    joined = _Joined(flat[0][1], kinds)
        if joined is None:
            if name in self.live:
                raise _Unfit
            return _UNBOUND
        if None not in joined.leaves and all(x is first for x in values):
            return first
        return joined

    def _results(
        self, writer: Explorer, known: dict[str, Any], changed: Sequence[int]
    ) -> None:
        """Says what each way gives: its arrays, and ambient values."""
        given = iter(zip(self.after, self.ambient, strict=True))
        form = tree.structure(())
        for i, way in enumerate(writer.ways):
            if way.error is not None:
                continue
            after, ambient = next(given)
            arrays: list[Any] = []
            for n, x in known.items():
                if isinstance(x, _Joined):
                    leaves = zip(tree.leaves(after[n]), x.leaves, strict=True)
                    arrays += [leaf for leaf, same in leaves if same is None]
            arrays += [ambient[place] for place in changed]
            atoms = [writer.lift(x) for x in arrays]
            writer.ways[i] = way._replace(results=atoms, form=form)


_DIFFERENT = (_UNBOUND,)

_BODY = "the body of a `while`"


def _same(column: Sequence[Any], writer: Explorer) -> tuple[Any] | None:
    """What a leaf is in all ways: one value in a tuple, None for arrays that differ."""
    first = column[0]
    own = any(isinstance(x, StageTracer) and x.interpreter is writer for x in column)
    if not own and all(x is first for x in column):
        return (first,)
    kinds = {type(x) for x in column}
    plain = len(kinds) == 1 and kinds <= {*NUMBERS, str, type(None)}
    if plain and all(x == first for x in column):
        return (first,)
    if all(is_array(x) or isinstance(x, NUMBERS) for x in column):
        return None
    return _DIFFERENT


def loop(
    test: FunctionType,
    body: FunctionType,
    names: Sequence[str],
    live: Sequence[str],
    at: tuple,
) -> None:
    """Runs a `while`: as the operation, if its test is traced.

    Args:
      names: of the variables that it may bind; `live`: those that are read later.
      at: its line and column.
    """
    place: Place = (test.__code__.co_filename, *at)
    check_resumed(place, "a function")
    if place in source.unfit or not _is_tracing():
        while test():
            body()
        return
    while (going := _known(test)) is not None:
        if not going:
            return
        body()
    variables = _Variables((test, body), names)
    before = variables.before
    outside = Outside.of(body, loop.__code__)

    def going_on(carry: dict[str, Any]) -> Any:
        variables.put(carry)
        return test()

    def next_carry(carry: dict[str, Any]) -> dict[str, Any]:
        variables.put({n: carry.get(n, _UNBOUND) for n in before})
        body()
        now = variables.now()
        return {n: now[n] for n in carry}

    next_carry.__name__ = _BODY
    init = {n: x for n, x in before.items() if x is not _UNBOUND}
    with owning(variables.all):
        carry = while_loop(going_on, next_carry, init)
    variables.put(before)
    outside.check(Outside.of(body, loop.__code__), _BODY, ONCE)
    variables.put({n: carry.get(n, _UNBOUND) for n in before})


def _known(test: Callable[[], Any]) -> bool | None:
    """Whether a test holds, if that is known while tracing."""
    with entering(StageInterpreter()):
        try:
            return bool(test())
        except TracerError:
            return None


source.helpers.update({STEP: step, LOOP: loop})

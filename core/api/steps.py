"""Statements that branch on traced values: what they leave behind is joined.

The user's functions call these (`treadle.trace.source`): a step is a statement as a
function that writes to the variables around it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import CellType, FrameType, FunctionType
from typing import Any, NamedTuple, NoReturn

from treadle import tree
from treadle.api.ambient import Surroundings
from treadle.control.ways import catching_line, check_uncaught, joined
from treadle.errors import MutationError, StructureError, is_ours
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.trace import source
from treadle.trace.interpreter import entering, state
from treadle.trace.outside import owning
from treadle.trace.rewrite import STEP
from treadle.trace.source import Place
from treadle.trace.stage import StageInterpreter, StageTracer
from treadle.trace.value import NUMBERS, is_array
from treadle.trace.ways import Explorer, Retry, Unrepeated, check_resumed
from treadle.transforms.batch import BatchInterpreter


class Unbound:
    """Stands for a variable without a value."""


UNBOUND = Unbound()


class Unfit(Exception):
    """A variable can't have one value, whichever way was gone."""


class Differs(Exception):
    """It depends on the way whether a loop goes on."""


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
    if place in source.unfit or not is_tracing():
        function()
        return
    joined_run(function, Variables((function,), names), live, place)


def joined_run(
    function: Callable[[], Any], variables: Variables, live: Sequence[str], at: Place
) -> None:
    """Runs a statement in each way, or leaves it to what is around it."""
    if any(hasattr(type(x), "__next__") for x in variables.before.values()):
        give_up(at)
    try:
        Step(function, variables, live).run()
    except (MutationError, StructureError, Unfit, Unrepeated):
        variables.put(variables.before)
        give_up(at)


def give_up(place: Place) -> NoReturn:
    """Leaves a statement to what is around it."""
    source.unfit.add(place)
    raise Retry(place, caller())


def caller() -> FrameType:
    """The frame of the user's function that has a step."""
    frame = sys._getframe(1)
    while is_ours(frame.f_code.co_filename) and frame.f_back is not None:
        frame = frame.f_back
    return frame


def is_tracing() -> bool:
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


class Variables:
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

    def bound(self) -> dict[str, Any]:
        """The values of those that had one at first."""
        return {n: x for n, x in self.before.items() if x is not UNBOUND}

    def put(self, values: dict[str, Any]) -> None:
        """Gives them values."""
        for name, x in values.items():
            cell = self.cells[name]
            if x is not UNBOUND:
                cell.cell_contents = x
            elif _value(cell) is not UNBOUND:
                del cell.cell_contents


def _value(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNBOUND


class _Joined(NamedTuple):
    """A variable after a step: its structure, and for each leaf a value that is the
    same in all ways, or None if an array is computed."""

    form: tree.Structure
    leaves: list[tuple[Any] | None]


class Step:
    """A statement that is run in each way."""

    def __init__(
        self, function: Callable[[], None], variables: Variables, live: Sequence[str]
    ) -> None:
        self.function, self.variables, self.live = function, variables, live
        self.around = Surroundings()
        self.after: list[dict[str, Any]] = []
        self.ambient: list[list[Any]] = []
        self.given: list[Any] = []

    def run(self) -> Any:
        """Goes all ways, and leaves behind what they give. What the function returned
        must be the same in all of them, and is given.

        Raises:
          Differs: if it is not.
        """
        name = "a statement"
        writer = Explorer(name)
        with entering(writer), owning(self.variables.all):
            writer.explore(self._once, (), lambda: None)
            # An `except` around the statement wants the error itself.
            if catching_line(writer, caller(), state.retries[-1].depth):
                raise Unfit
            check_uncaught(writer)
            if len(set(self.given)) > 1:
                raise Differs
            known = {
                n: self._join(n, [x[n] for x in self.after], writer)
                for n in (self.variables.cells if self.after else ())
            }
            changed = sorted({i for x in self.ambient for i in self.around.changed(x)})
            self._results(writer, known, changed)
            try:
                outputs = joined(writer)
            except TypeError:
                raise Unfit from None
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
        return self.given[0] if self.given else None

    def _once(self) -> list[Any]:
        self.variables.put(self.variables.before)
        with self.around.inside(self.around.leaves):
            self.given.append(self.function())
            self.after.append(self.variables.now())
            self.ambient.append(self.around.kept_values("a branch", "a way"))
        return []

    def _join(self, name: str, values: Sequence[Any], writer: Explorer) -> Any:
        """What a variable is, whichever way was gone: a value that is the same in all,
        or a `_Joined`."""
        first = values[0]
        if all(x is UNBOUND for x in values):
            return UNBOUND
        joined = None
        if not any(x is UNBOUND for x in values):
            flat = [tree.flatten(x) for x in values]
            forms = {form for _, form in flat}
            if len(forms) == 1:
                columns = zip(*(leaves for leaves, _ in flat), strict=True)
                kinds = [_same(column, writer) for column in columns]
                if _DIFFERENT not in kinds:
                    joined = _Joined(flat[0][1], kinds)
        if joined is None:
            if name in self.live:
                raise Unfit
            return UNBOUND
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


_DIFFERENT = (UNBOUND,)


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


source.helpers[STEP] = step

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
from treadle.api.carry import of_types
from treadle.api.while_loops import while_loop
from treadle.arraytype import ArrayType
from treadle.control.ways import joined
from treadle.dtypes import bool_, is_integer, promote
from treadle.errors import MutationError, StructureError, TracerError
from treadle.ir.graph import Graph
from treadle.ir.walk import call_graph
from treadle.ops.arithmetic import add
from treadle.ops.compare import bitwise_and, bitwise_not, bitwise_or, gt, lt, ne
from treadle.trace import source
from treadle.trace.interpreter import entering, state
from treadle.trace.outside import ONCE, Outside, owning
from treadle.trace.rewrite import COUNT, LOOP, STEP
from treadle.trace.source import Place
from treadle.trace.stage import StageInterpreter, StageTracer, known_value
from treadle.trace.value import NUMBERS, is_array, typeof
from treadle.trace.ways import MOST_WAYS, Explorer, Retry, check_resumed
from treadle.transforms.batch import BatchInterpreter


class _Unbound:
    """Stands for a variable without a value."""


_UNBOUND = _Unbound()


class _Unfit(Exception):
    """A variable can't have one value, whichever way was gone."""


class _Differs(Exception):
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
    if place in source.unfit or not _is_tracing():
        function()
        return
    _joined_run(function, _Variables((function,), names), live, place)


def _joined_run(
    function: Callable[[], Any], variables: _Variables, live: Sequence[str], at: Place
) -> None:
    """Runs a statement in each way, or leaves it to what is around it."""
    if any(hasattr(type(x), "__next__") for x in variables.before.values()):
        _give_up(at)
    try:
        _Step(function, variables, live).run()
    except (MutationError, StructureError, _Unfit):
        variables.put(variables.before)
        _give_up(at)


def _give_up(place: Place) -> NoReturn:
    """Leaves a statement to what is around it."""
    source.unfit.add(place)
    raise Retry(place, _caller())


def _caller() -> FrameType:
    """The frame of the user's function that has a step."""
    frame = sys._getframe(1)
    while frame.f_globals is globals() and frame.f_back is not None:
        frame = frame.f_back
    return frame


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

    def bound(self) -> dict[str, Any]:
        """The values of those that had one at first."""
        return {n: x for n, x in self.before.items() if x is not _UNBOUND}

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
        self.given: list[Any] = []

    def run(self) -> Any:
        """Goes all ways, and leaves behind what they give. What the function returned
        must be the same in all of them, and is given.

        Raises:
          _Differs: if it is not.
        """
        name = "a statement"
        writer = Explorer(name)
        with entering(writer), owning(self.variables.all):
            writer.explore(self._once, (), lambda: None)
            raised = any(way.error is not None for way in writer.ways)
            # An `except` around the statement wants the error itself.
            if raised and source.is_caught(_caller(), state.retries[-1].depth):
                raise _Unfit
            if len(set(self.given)) > 1:
                raise _Differs
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

_BODY = "the body of a loop"


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


# Loops --------------------------------------------------------------------------------


def loop(
    test: FunctionType,
    body: FunctionType,
    names: Sequence[str],
    live: Sequence[str],
    at: tuple,
    breaks: bool,
) -> None:
    """Runs a `while`: as the operation, if its end depends on what is traced.

    Args:
      body: True if it has ended the loop.
      names: of the variables that it may bind; `live`: those that are read later.
      at: its line and column.
      breaks: whether there is a `break` in it.
    """
    place: Place = (test.__code__.co_filename, *at)
    check_resumed(place, "a function")
    if place in source.unfit or not _is_tracing():
        while test():
            if body():
                break
        return
    variables = _Variables((test, body), names)
    while (going := _known(test)) is not None:
        if not going:
            return
        ended = _iteration(body, variables, live, place) if breaks else body()
        if ended is None:
            continue
        if ended is not _UNBOUND:
            return
        break
    variables = _Variables((test, body), names)
    carry = variables.bound()
    if breaks:
        carry[_BREAK] = False
    try:
        _repeat(lambda carry: test(), lambda carry: body(), variables, carry)
    except (TracerError, MutationError, StructureError, TypeError):
        if not breaks:
            raise
        # In each way through what is around it, it may do.
        variables.put(variables.before)
        _give_up(place)


def count(
    limits: FunctionType,
    body: FunctionType,
    whole: FunctionType,
    names: Sequence[str],
    live: Sequence[str],
    at: tuple,
    breaks: bool,
    target: str,
) -> None:
    """Runs a `for` over a `range`: as an operation, if its end depends on what is
    traced.

    Args:
      limits: gives what is called `range`, and its arguments.
      body: takes the number, and is True if it has ended the loop; `whole`: the loop.
      names, live, at, breaks: as of `loop`. target: the name of the number.
    """
    place: Place = (body.__code__.co_filename, *at)
    check_resumed(place, "a function")
    kind, *ends = limits()
    if kind is not range or all(known_value(x) is not None for x in ends):
        numbers = kind(*ends)
        if place in source.unfit or not _is_tracing():
            whole(numbers)
            return
        variables = _Variables((body, whole), names)
        long = breaks and kind is range and len(numbers) > MOST_WAYS
        if not long:
            _joined_run(lambda: whole(numbers), variables, live, place)
            return
        for i in numbers:
            ended = _iteration(lambda: body(i), variables, live, place)  # noqa: B023
            if ended is _UNBOUND:
                ends = [i, numbers.stop, numbers.step]
                variables.put({n: i for n in variables.cells if n == target})
                break
            if ended:
                return
        else:
            return
    _count_up(body, ends, _Variables((body, whole), names), live, breaks, target)


def _count_up(
    body: Callable[[Any], Any],
    ends: Sequence[Any],
    variables: _Variables,
    live: Sequence[str],
    breaks: bool,
    target: str,
) -> None:
    """Runs a `for` over the `range` of some numbers as the operation."""
    integers = all(not t.shape and is_integer(t.dtype) for t in map(typeof, ends))
    if not integers or (len(ends) == 3 and known_value(ends[2]) == 0):
        range(*ends)  # which says what is wrong
    start, stop = ends[:2] if len(ends) > 1 else (0, ends[0])
    stride = ends[2] if len(ends) == 3 else 1
    step = known_value(stride)
    dtype = promote(*((t.dtype, t.weak) for t in map(typeof, (start, stop, stride))))[0]
    start, stop, stride = of_types([start, stop, stride], [ArrayType((), dtype)] * 3)
    carry = variables.bound()
    if target not in live:
        carry.pop(target, None)
    carry[_NEXT] = start
    if breaks:
        carry[_BREAK] = False

    def goes_on(carry: dict[str, Any]) -> Any:
        up, down = lt(carry[_NEXT], stop), gt(carry[_NEXT], stop)
        if step is not None:
            return up if step > 0 else down
        return bitwise_or(
            bitwise_and(gt(stride, 0), up), bitwise_and(lt(stride, 0), down)
        )

    def iterated(carry: dict[str, Any]) -> Any:
        ended = body(carry[_NEXT])
        carry[_NEXT] = add(carry[_NEXT], stride)
        return ended

    _repeat(goes_on, iterated, variables, carry)


_BREAK, _NEXT = "break", "for"
"""Parts of a carry that are no variables."""


def _iteration(
    body: Callable[[], Any], variables: _Variables, live: Sequence[str], at: Place
) -> Any:
    """Runs a loop's body once. Says whether it has ended the loop: None or True; if
    that depends on what is traced, it is as if it had not run, and `_UNBOUND`."""
    variables.before = variables.now()
    try:
        return _Step(body, variables, [*variables.cells]).run()
    except _Differs:
        variables.put(variables.before)
        return _UNBOUND
    except (MutationError, StructureError, _Unfit):
        variables.put(variables.before)
        _give_up(at)


def _repeat(
    test: Callable[[dict[str, Any]], Any],
    body: Callable[[dict[str, Any]], Any],
    variables: _Variables,
    init: dict[str, Any],
) -> None:
    """Repeats a body while a test holds, and until the body ends it, as the operation.
    Both are given what is carried, of which the body may change parts.

    init: the variables that are carried, and other parts.
    """
    before = variables.before
    outside = Outside.of(body, _repeat.__code__)

    def put(carry: dict[str, Any]) -> None:
        variables.put({n: carry.get(n, _UNBOUND) for n in before})

    def goes_on(carry: dict[str, Any]) -> Any:
        put(carry)
        going = test(carry)
        if _BREAK not in carry:
            return going
        if typeof(going).dtype != bool_:
            going = ne(going, 0)
        return bitwise_and(bitwise_not(carry[_BREAK]), going)

    def next_carry(carry: dict[str, Any]) -> dict[str, Any]:
        put(carry)
        carry = dict(carry)
        ended = body(carry)
        now = variables.now()
        found = {n: now[n] if n in before else x for n, x in carry.items()}
        if _BREAK in carry:
            found[_BREAK] = ended is True
        return found

    next_carry.__name__ = _BODY
    with owning(variables.all):
        carry = while_loop(goes_on, next_carry, init)
    variables.put(before)
    outside.check(Outside.of(body, _repeat.__code__), _BODY, ONCE)
    put(carry)


def _known(test: Callable[[], Any]) -> bool | None:
    """Whether a test holds, if that is known while tracing."""
    with entering(StageInterpreter()):
        try:
            return bool(test())
        except TracerError:
            return None


source.helpers.update({STEP: step, LOOP: loop, COUNT: count})

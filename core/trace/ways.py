"""Python's own branches on traced values: the ways through a function.

A function under a trace that asks for the truth of a value (`if`, `while`, `and`…) is
run again and again: each run answers otherwise, until all ways have been gone. What
comes before the question is written once: a run that repeats it is compared with what
is written.
"""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple, NoReturn

from treadle.errors import InternalError, TracerError, at, is_ours, user_source
from treadle.ir.graph import Atom, Equation, Lit, Var, params_key
from treadle.ir.walk import effectful
from treadle.trace.interpreter import current_source, state
from treadle.trace.op import Op
from treadle.trace.outside import Outside
from treadle.trace.repeated import same_array, same_atom, same_params
from treadle.trace.source import (
    Place,
    depth,
    function_frame,
    give_steps,
    statement_at,
)
from treadle.trace.stage import StageInterpreter, StageTracer
from treadle.trace.value import Tracer

MOST_WAYS = 64
"""Through one function. Each is traced, and compiled with what comes after it."""

MOST_DECISIONS = 128
"""On one way: a loop that ends on a traced condition would never get to its end."""


class Decision(NamedTuple):
    """An answer to a question for the truth of a value.

    position: how many equations had been written.
    """

    position: int
    atom: Atom
    taken: bool
    source: str


class Way(NamedTuple):
    """A run of a function: the answers that it got, and what it did.

    form: the structure of the results.
    error: what it raised instead of giving results, when the user's own `raise` or
      `assert` did.
    """

    decisions: list[Decision]
    equations: list[Equation]
    results: list[Atom]
    form: Any
    error: Exception | None = None

    def __str__(self) -> str:
        return "".join([f"{at(d.source)} taken as {d.taken}" for d in self.decisions])


class Branches(NamedTuple):
    """What is known of a function that branches on traced values.

    lines: of the user's, where it asks; ways: how many were traced.
    """

    name: str
    lines: tuple[str, ...]
    ways: int

    def __str__(self) -> str:
        return f"{self.ways} ways through {self.name}, by {', '.join(self.lines)}"


class _Noted(threading.local):
    def __init__(self) -> None:
        self.lists: list[list[Branches]] = []


_noted = _Noted()


@contextmanager
def noting() -> Iterator[list[Branches]]:
    """Collects which functions branch on traced values in a block."""
    found: list[Branches] = []
    _noted.lists.append(found)
    try:
        yield found
    finally:
        _noted.lists.pop()


@contextmanager
def disable_branches(what: str = "all") -> Iterator[None]:
    """Makes it an error in the block to branch on a traced value in Python's words (`if
    x > 0`), rather than to trace each way: use `td.cond` and `tnp.where` there.

    Args:
      what: "all"; or "statements", so that the user's functions keep the code that they
        have: ways are joined where a function ends, not where a statement does.

    >>> import treadle as td
    >>> with td.disable_branches():
    ...     td.jit(lambda x: x if x > 0 else -x)(1.0)
    Traceback (most recent call last):
    treadle.errors.TracerError: `if`, `while`, ...
    """
    if what not in ("all", "statements"):
        raise ValueError(f'disable_branches: "all" or "statements", got {what!r}')
    previous = state.branching
    state.branching = "functions" if what == "statements" else ""
    try:
        yield
    finally:
        state.branching = previous


_DIFFERS = """\
{name} did something else when it was traced again, for the other way through a branch \
on a traced value
  first:  {first}
  then:   {then}
It depends on something that changes: a random number of Python's, the time, or an \
object that it has changed itself. Pass that as an argument; or use `td.cond`."""

_TOO_MANY = """\
branches on traced values have more than {limit} {what}{rows}
Write a loop as `td.while_loop` or `td.fori_loop`, and a choice between arrays as \
`tnp.where` or `td.cond`."""


class TooManyWays(TracerError):
    """There are more ways through a function than are traced."""


class Unrepeated(TracerError):
    """A function does something else when it is traced again."""


class Explorer(StageInterpreter):
    """Writes what a function does, whichever way it goes."""

    def __init__(self, name: str, closed: bool = False) -> None:
        super().__init__(closed)
        self.name = name
        self.ways: list[Way] = []
        self._path: list[bool] = []
        self._trail: list[Decision] = []
        self._keys: list[Hashable] = []
        self._cursor: int | None = None
        self._outside: Outside | None = None
        self._alive: list[Any] = []
        self._function: Any = None

    def explore(
        self,
        function: Callable[..., Sequence[Any]],
        arguments: Sequence[Any],
        form: Callable[[], Any],
    ) -> None:
        """Goes all ways through a function of flat values.

        form: the structure of what the last call of the function gave.
        """
        self._function = function
        while self._goes_on(function, arguments, form):
            pass
        if len(self.ways) > 1 and _noted.lists:
            asked = dict.fromkeys(d.source for w in self.ways for d in w.decisions)
            found = Branches(self.name, tuple(asked), len(self.ways))
            _noted.lists[-1].append(found)

    def _goes_on(
        self,
        function: Callable[..., Sequence[Any]],
        arguments: Sequence[Any],
        form: Callable[[], Any],
    ) -> bool:
        """Goes one way; says whether there is another."""
        try:
            results = function(*arguments)
        except Exception as error:
            return self._failed(error)
        atoms = [self.lift(r) for r in results]
        return self._end(Way(self._trail, list(self.equations), atoms, form()))

    # A run

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        if self._cursor is None:
            return super().process(op, args, params)
        inputs = [self.lift(a) for a in args]
        eq = None
        if self._cursor < len(self.equations):
            eq = self.equations[self._cursor]
        if (
            eq is None
            or eq.op is not op
            or len(eq.inputs) != len(inputs)
            or not all(map(self._same_input, eq.inputs, inputs))
            or not same_params(eq.params, params)
        ):
            first = f"`{eq.op.name}`{at(eq.source)}" if eq else "a branch"
            self._differs(first, f"`{op.name}`{at(current_source())}")
        self._cursor += 1
        results = [StageTracer(self, v, eq.source) for v in eq.outputs]
        return results if op.multiple else results[0]

    def _capture(self, x: Any) -> Atom:
        if self.ways and not isinstance(x, Tracer):
            # An array that each run makes anew is one array.
            for known in self.captured:
                atom = self._known[id(known)]
                if isinstance(atom, Var) and same_array(known, x):
                    self._alive.append(x)
                    self._known[id(x)] = atom
                    return atom
        return super()._capture(x)

    def _same_input(self, a: Atom, b: Atom) -> bool:
        if same_atom(a, b):
            return True
        # Of several equal arrays that the first run made, `_capture` gives one.
        arrays = dict(zip(self.capture_vars, self.captures(), strict=True))
        return a in arrays and b in arrays and same_array(arrays[a], arrays[b])

    def decide(self, x: Any) -> bool | None:
        atom = self.lift(x)
        if isinstance(atom, Lit):
            return bool(atom.value)
        key = self._question(atom)
        for decision, asked in zip(self._trail, self._keys, strict=True):
            if asked == key:
                return decision.taken
        if len(self._trail) >= len(self._path):
            self._split()
        source, n = user_source(), len(self._trail)
        if n == 0:
            self._look_outside()
        position, taken = len(self.equations), True
        if n < len(self._path):
            before = self.ways[-1].decisions[n]
            if before.atom is not atom or before.position != self._cursor:
                self._differs(f"a branch{at(before.source)}", f"another{at(source)}")
            position, taken = before.position, self._path[n]
            if n + 1 == len(self._path):
                self._cursor = None
        elif n == MOST_DECISIONS:
            self._too_many("decisions on one way", MOST_DECISIONS)
        self._trail.append(Decision(position, atom, taken, source))
        self._keys.append(key)
        return taken

    def _split(self) -> None:
        """
        Raises:
          Retry: if there is a statement around the question at whose end its answers
            can be joined.
        """
        if not state.retries or state.branching != "statements":
            return
        stop = Explorer._goes_on.__code__
        found = statement_at(sys._getframe(1), stop, state.retries[-1].tried)
        if found is not None:
            again = Retry(found.place, found.frame)
            again.caller.tried.add(found.place)
            give_steps(found, again.caller.depth)
            raise again

    def _question(self, atom: Var) -> Hashable:
        """A key that is equal for values that are computed alike."""
        for eq in reversed(self.equations):
            if atom in eq.outputs and not effectful(eq):
                inputs = [a.key() if isinstance(a, Lit) else a for a in eq.inputs]
                place = eq.outputs.index(atom)
                return eq.op, tuple(inputs), params_key(eq.params), place
        return atom

    def _look_outside(self) -> None:
        found = Outside.of(self._function, Explorer._goes_on.__code__)
        if self._outside is not None:
            self._outside.check(found, self.name)
        self._outside = found

    # From run to run

    def _failed(self, error: Exception) -> bool:
        """Ends a run that raised; says whether there is another way to go.

        Raises:
          Exception: this one, if it is not for the program to raise when it comes by.
        """
        if not self._trail or not _is_users(error):
            way = Way(self._trail, [], [], None)
            if self.ways and self._trail:
                error.add_note(f"while tracing the way through {self.name}{way}")
            raise error
        way = Way(self._trail, list(self.equations), [], None, error)
        return self._end(way)

    def _end(self, way: Way) -> bool:
        if self._cursor is not None and self._cursor < len(self.equations):
            eq = self.equations[self._cursor]
            self._differs(f"`{eq.op.name}`{at(eq.source)}", "its end")
        self.ways.append(way)
        self._cursor = None
        path = [d.taken for d in way.decisions]
        while path and not path[-1]:
            path.pop()
        if not path:
            if way.decisions:
                self._look_outside()
            return False
        if len(self.ways) == MOST_WAYS:
            self._too_many("ways through", MOST_WAYS)
        path[-1] = False
        del self.equations[way.decisions[len(path) - 1].position :]
        self._path, self._cursor = path, 0
        self._trail, self._keys = [], []
        return True

    def _differs(self, first: str, then: str) -> NoReturn:
        if self._outside is not None:
            self._look_outside()  # what a way changed may be asked by the next
        raise Unrepeated(_DIFFERS.format(name=self.name, first=first, then=then))

    def _too_many(self, what: str, limit: int) -> NoReturn:
        lines: dict[str, int] = {}
        for d in self._trail or self.ways[-1].decisions:
            lines[d.source] = lines.get(d.source, 0) + 1
        rows = "".join([f"{at(s)} ({n} times)" for s, n in list(lines.items())[:4]])
        raise TooManyWays(_TOO_MANY.format(limit=limit, what=what, rows=rows))


_RAISE = dis.opmap["RAISE_VARARGS"]


def _is_users(error: Exception) -> bool:
    """Whether a `raise` or an `assert` of the user's raised it."""
    trace = error.__traceback__
    if trace is None or isinstance(error, TracerError | InternalError):
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    return not is_ours(code.co_filename) and code.co_code[trace.tb_lasti] == _RAISE


class Restage(BaseException):
    """A function under `vmap` or a derivative branches on a traced value: that
    transform then begins again, with the function's graph in its place. No `Exception`:
    the user's frames must not catch it."""


class Refused(Restage):
    """Something can't be traced, which no `except` of the user's is to hide: who traces
    the outermost function raises the error."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class Caller:
    """Who traces a function, and does so anew upon `Retry`.

    depth: of its frame. tried: statements that were made steps meanwhile.
    """

    def __init__(self) -> None:
        self.depth = depth(sys._getframe(1))
        around = state.retries[-1].tried if state.retries else ()
        self.tried: set[Place] = set(around)


class Retry(Restage):
    """A function has been given other code: its caller is to trace it anew. What it has
    changed up to this statement would be changed once more.

    frame: in which the statement ran.
    """

    def __init__(self, place: Place, frame: FrameType) -> None:
        own = depth(function_frame(frame))
        self.caller: Caller = [c for c in state.retries if c.depth < own][-1]
        before = Outside.of(None, self.caller.depth)
        state.given_up = place, self.caller, before


def check_resumed(place: Place | None, name: str) -> None:
    """For a function that is traced anew, where it was given up: at this statement, or
    (None) at its end.

    Raises:
      MutationError: if the run that was given up has changed something outside.
    """
    if state.given_up is None:
        return
    where, caller, before = state.given_up
    if place == where or (place is None and state.retries[-1] is caller):
        state.given_up = None
        before.check(Outside.of(None, caller.depth), name)


@contextmanager
def retrying(caller: Caller) -> Iterator[None]:
    """For the calls of a function by one who heeds `Retry`."""
    state.retries.append(caller)
    try:
        yield
    finally:
        state.retries.pop()


def restaged(
    transform: Callable[..., Any],
    function: Callable[..., Any],
    graph: Callable[[], Callable[..., Any]],
    *args: Any,
) -> Any:
    """What a transform gives for a function of flat values, which may branch.

    graph: makes the function that does what `function` does, without branches.
    """
    caller = Caller()
    try:
        with retrying(caller):
            return transform(function, *args, restages=True)
    except Restage as again:
        if isinstance(again, Refused) and not state.retries:
            raise again.error from None
        if isinstance(again, Refused) or (
            isinstance(again, Retry) and again.caller is not caller
        ):
            raise
    return transform(graph(), *args)

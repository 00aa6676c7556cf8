"""Where NaN comes from: results are checked; if some are NaN, the operations that made
them are found by running the program once more, one operation after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from treadle import tree
from treadle.api.axes import place
from treadle.arraytype import of_numpy
from treadle.control.call import call
from treadle.errors import at, user_source
from treadle.ir.filled import filled
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.run.array import as_numpy
from treadle.run.eager import EagerInterpreter, observed, run, run_equation
from treadle.scopes import source_of, within
from treadle.trace.interpreter import current_source, state, using
from treadle.trace.lowering import Counted, Scan, While
from treadle.trace.op import Op

_INSIDE = """\
check_nans was entered inside of a transform (jit, grad, vmap…){at}
It looks at values, so it belongs around the call of the transformed function: \
`with td.debug.check_nans(): step(...)`."""

_MADE = """\
`{op}` gave {count}, in the {direction} pass{at}{operands}
  result: {result}{around}
  found in {where}"""

_GIVEN = """\
{where} has {count}, which {given} brought{at}
No operation of the program made them."""

_ROUNDED = """\
{where} has {count}{at}
One operation after the other, the same program gives none for the same arguments: \
something overflows that is rounded differently there, or a Python function that it \
calls gave other values. `jit(f).explain(...)` shows which operations run together."""


class _Kind:
    """What counts as bad."""

    def __init__(self, nan: bool, inf: bool) -> None:
        self._tests: list[tuple[str, Any]] = []
        self._tests += [("NaN", np.isnan)] * nan + [("infinite", np.isinf)] * inf

    def where(self, x: Any) -> np.ndarray:
        """Which elements of an array are bad."""
        found = np.zeros(np.shape(x), np.bool_)
        if np.asarray(x).dtype.kind not in "biu":
            for _, test in self._tests:
                found |= test(x)
        return found

    def __call__(self, x: Any) -> bool:
        return bool(self.where(x).any())

    def count(self, x: Any) -> str:
        """How many elements are, in words."""
        found = [(int(np.count_nonzero(test(x))), name) for name, test in self._tests]
        words = " and ".join([f"{n} {name}" for n, name in found if n])
        return f"{words} of {np.size(x)} elements"


class _Found(NamedTuple):
    """An operation that gave what it did not get.

    turn: in which evaluation of its graph.
    """

    op: Op
    inputs: Sequence[Any]
    outs: Sequence[Any]
    source: str
    around: str = ""
    turn: int = 0


class _Search:
    """Evaluates graphs one equation after the other, and finds where bad values begin:
    what those of the results were made of is followed back.

    found: where those of the graph that was evaluated last begin; a variable, if that
      is an input.
    """

    def __init__(self, bad: _Kind) -> None:
        self._bad = bad
        self._turns: Counter[int] = Counter()
        self.found: _Found | Var | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Evaluates what is evaluated in the block."""
        previous, observed.by = observed.by, self
        try:
            yield
        finally:
            observed.by = previous

    def __call__(self, graph: Graph, arrays: Sequence[Any]) -> list[Any]:
        before, turn = self.found, self._turns[id(graph)]
        self._turns[id(graph)] += 1
        values: dict[Atom, Any] = dict(zip(graph.inputs, arrays, strict=True))
        made: dict[Atom, tuple[Equation, list[Any], _Found | None]] = {}

        def read(a: Atom) -> Any:
            return a.value if isinstance(a, Lit) else values[a]

        for eq in graph.equations:
            if eq.op.effect and not eq.outputs:
                continue  # It has happened once.
            inputs = [read(a) for a in eq.inputs]
            outs, inside = self._apply(eq, inputs)
            for v, x in zip(eq.outputs, outs, strict=True):
                values[v] = x
                if self._bad(x):
                    made[v] = eq, inputs, inside
        outs = [np.asarray(read(a)) for a in graph.outputs]
        self.found = before
        if not isinstance(before, _Found):
            for a, x in zip(graph.outputs, outs, strict=True):
                if isinstance(a, Var) and self._bad(x):
                    found = self._origin(a, made, values)
                    if isinstance(found, _Found):
                        found = found._replace(turn=turn)
                    self.found = found
                    break
        return outs

    def _apply(
        self, eq: Equation, inputs: Sequence[Any]
    ) -> tuple[list[Any], _Found | None]:
        """The results of an equation, and what is found in graphs that it holds."""
        if not eq.graphs:
            return run_equation(eq, inputs), None
        outer, turns = self.found, self._turns
        self.found, self._turns = None, Counter()
        try:
            # A jitted function would run compiled.
            direct = eq.op is call
            outs = self(eq.graphs[0], inputs) if direct else run_equation(eq, inputs)
            return outs, self.inside(eq.op, eq.source)
        finally:
            self.found, self._turns = outer, turns

    def inside(self, op: Op, source: str) -> _Found | None:
        """What was found in a graph, as seen by whoever follows the operation that
        holds it."""
        found = self.found
        if not isinstance(found, _Found):
            return None
        around = found.around
        if isinstance(op.lowering, Scan | While | Counted):
            around = f"{around}\n  in iteration {found.turn} of `{op.name}`{at(source)}"
        return found._replace(source=within(found.source, source), around=around)

    def _origin(self, bad: Var, made: Any, values: Any) -> _Found | Var:
        while bad in made:
            eq, inputs, inside = made[bad]
            if inside is not None:
                return inside
            given = [
                a for a in eq.inputs if isinstance(a, Var) and self._bad(values[a])
            ]
            if not given:
                outs = [values[v] for v in eq.outputs]
                return _Found(eq.op, inputs, outs, eq.source)
            bad = next((a for a in given if a in made), given[0])
        return bad


class _Checking(EagerInterpreter):
    """Looks at what each operation and each program gives."""

    def __init__(self, bad: _Kind) -> None:
        self._bad = bad

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        out = super().process(op, args, params)
        outs = list(map(as_numpy, out if op.multiple else [out]))
        if any(map(self._bad, outs)):
            self._blame(op, list(map(as_numpy, args)), outs, params)
        return out

    def _blame(
        self, op: Op, inputs: list[Any], outs: list[Any], params: dict[str, Any]
    ) -> None:
        source, search = current_source(), _Search(self._bad)
        with search.watching():
            if op is call:
                search(params["graph"], inputs)
            else:
                run(op, inputs, params)
        found = search.inside(op, source)
        bad, x = next((i, x) for i, x in enumerate(outs) if self._bad(x))
        where = f"result {bad} of `{op.name}`" if op.multiple else f"`{op.name}`"
        given = next((i for i, a in enumerate(inputs) if self._bad(a)), None)
        if found is None and given is not None:
            self._raise_given(where, x, f"operand {given}", source)
        self._raise(found or _Found(op, inputs, outs, source), where)

    def run_program(self, entry: Any, leaves: Sequence[Any]) -> Sequence[Any]:
        types = entry.program.in_types
        given = []
        for i, (a, t) in enumerate(zip((*entry.captured, *leaves), types, strict=True)):
            array = as_numpy(a).astype(t.dtype, copy=False)
            given.append(array.copy() if i in entry.donated else array)
        outs = super().run_program(entry, leaves)
        for i, x in enumerate(map(as_numpy, outs)):
            if self._bad(x):
                self._explain(entry, given, i, x)
        return outs

    def _explain(self, entry: Any, given: list[Any], result: int, x: Any) -> None:
        """Says why a result of a program is bad."""
        graph = entry.graph
        if entry.is_bound:
            graph = filled(graph, entry.program.value_of)
        path = tree.paths(entry.out_form)[result]
        where = f"the result{tree.key_name(path) if path else ''} of {graph.name}"
        search = _Search(self._bad)
        with search.watching():
            search(graph, given)
        found = search.found
        if isinstance(found, _Found):
            self._raise(found, where)
        if found is None:
            text = _ROUNDED.format(
                where=where, count=self._bad.count(x), at=at(user_source())
            )
            raise FloatingPointError(text)
        n = graph.inputs.index(found) - len(entry.captured)
        arguments = entry.row.given
        if n < 0:
            name = "an array that the function closes over"
        elif arguments is None:
            name = f"argument {n}"
        else:
            name = f"`{place(arguments.function, arguments.form, n)}`"
        self._raise_given(where, x, name, user_source())

    def _raise_given(self, where: str, x: Any, given: str, source: str) -> None:
        count = self._bad.count(x)
        raise FloatingPointError(
            _GIVEN.format(where=where, count=count, given=given, at=at(source))
        )

    def _raise(self, found: _Found, where: str) -> None:
        x = next(x for x in found.outs if self._bad(x))
        first = np.unravel_index(int(np.argmax(self._bad.where(x))), np.shape(x))
        result = _described(x)
        if first:
            result += f", the first at {[*map(int, first)]}"
        raise FloatingPointError(
            _MADE.format(
                op=found.op.name,
                count=self._bad.count(x),
                direction=_direction(found.source),
                at=at(found.source),
                operands="".join(
                    [
                        f"\n  operand {i}: {_described(a)}{_element(a, first, x)}"
                        for i, a in enumerate(found.inputs)
                    ]
                ),
                result=result,
                around=found.around,
                where=where,
            )
        )


def _direction(source: str) -> str:
    return "backward" if source_of(source).backward else "forward"


def _described(x: Any) -> str:
    """The type and the range of an array."""
    x = np.asarray(x)
    text = str(of_numpy(x))
    if not x.size or x.dtype.kind in "bc":
        return text
    known = x[~np.isnan(x)] if x.dtype.kind not in "iu" else x
    if not known.size:
        return f"{text}, all NaN"
    return f"{text} from {known.min():.6g} to {known.max():.6g}"


def _element(x: Any, place: tuple, result: Any) -> str:
    if not place or np.shape(x) != np.shape(result):
        return ""
    return f", {x[place]:.6g} there"


@contextmanager
def check_nans(*, nan: bool = True, inf: bool = False) -> Iterator[None]:
    """Finds the operation that makes the first NaN, in compiled programs and eagerly.

    In the block, the results of jitted functions and of single operations are checked.
    Where one is NaN, the program is run again on the same arguments, one operation
    after the other, and the error names the operation that gave NaN without having got
    any: with the user's line and layer, whether it was in the backward pass of that
    line, the iteration of loops, shapes, how many elements, and the operands' ranges.
    NaN that does not reach a result (masked by `where`) is no error in a compiled
    program. What is right is not compiled again and costs little: the results are read
    once. Donated arguments are copied before each call.

    Functions of the user's that the program calls and whose results it uses are called
    again by the search.

    Args:
      nan: whether NaN is looked for.
      inf: whether infinities are.

    Raises:
      FloatingPointError: in the block, for the first one.
      RuntimeError: if entered inside of a transform.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.jit(lambda x: tnp.sum(tnp.log(x)))
    >>> with td.debug.check_nans():
    ...     f(tnp.array([1.0, -2.0]))
    Traceback (most recent call last):
    FloatingPointError: `log` gave 1 NaN of 2 elements, in the forward pass...
    """
    if not isinstance(state.interpreter, EagerInterpreter):
        raise RuntimeError(_INSIDE.format(at=at(user_source())))
    with using(_Checking(_Kind(nan, inf))):
        yield

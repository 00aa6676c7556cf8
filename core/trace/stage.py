"""Python to Graph: the interpreter that writes down instead of computing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import arraytype
from treadle.arraytype import ArrayType
from treadle.dims import CLOSED, is_symbolic
from treadle.errors import at
from treadle.ir import show as _show  # noqa: F401 - graphs can be printed
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var
from treadle.trace.interpreter import (
    Interpreter,
    current_source,
    entering,
    state,
)
from treadle.trace.op import Op, as_size
from treadle.trace.value import Tracer, Value, typeof

_SMALL = 64
"""Constants of up to this many bytes are literals rather than inputs, but for those
whose device counts."""


class StageTracer(Tracer):
    """A value that will exist when the graph runs."""

    __slots__ = ("atom", "source", "type")

    def __init__(self, interpreter: Interpreter, atom: Atom, source: str) -> None:
        self.interpreter, self.atom, self.source = interpreter, atom, source
        self.type = atom.type

    def made(self) -> str:
        return self.source


class StageInterpreter(Interpreter):
    """Writes equations.

    closed: captured arrays become literals; otherwise they become inputs of the graph
      and their values stand in `captured`, in the order of `capture_vars`.
    """

    writes_graph = True
    writes_all = True
    """False if only what depends on its own arguments is written, the rest done."""

    small = _SMALL

    def __init__(self, closed: bool = False) -> None:
        self.parent = state.interpreter
        self.writer = self if self.writes_all else None
        self.equations: list[Equation] = []
        self.closed = closed
        self.captured: list[Any] = []
        self.capture_vars: list[Var] = []
        self._known: dict[int, Atom] = {}

    def argument(self, type: ArrayType) -> StageTracer:
        """A new input."""
        return StageTracer(self, Var(type), "")

    def owns(self, values: Sequence[Any]) -> bool:
        """Whether any of the values is this interpreter's own."""
        return any(isinstance(x, StageTracer) and x.interpreter is self for x in values)

    def lift(self, x: Any) -> Atom:
        """The atom that stands for a value in the graph."""
        if isinstance(x, StageTracer) and x.interpreter is self:
            return x.atom
        kind = type(x)
        if kind in (float, int, bool, complex):
            t = arraytype.of_scalar(x)
            return Lit(t.dtype.type(x), t)
        if is_symbolic(x):
            t = typeof(x)
            return self.lift(as_size(x, t.dtype, t.weak))
        if isinstance(x, np.generic):
            return Lit(x, arraytype.of_numpy(x))
        if isinstance(x, Tracer):
            x.check_alive()
        return self._known.get(id(x)) or self._capture(x)

    def _capture(self, x: Any) -> Atom:
        t = typeof(x)
        concrete = isinstance(x, np.ndarray) or (
            isinstance(x, Value) and not isinstance(x, Tracer)
        )
        # Asked of concrete ones only: other sizes may not be fixed.
        small = concrete and t.nbytes <= self.small and not getattr(x, "placed", False)
        if concrete and (self.closed or small):
            atom: Atom = Lit(np.array(x), t)  # a copy: NumPy's arrays may change
        else:
            atom = Var(t)
            self.capture_vars.append(atom)
        # Kept alive: `_known` is keyed by identity.
        self.captured.append(x)
        self._known[id(x)] = atom
        return atom

    def decide(self, x: Any) -> bool | None:
        return None if self.writes_all or self.owns([x]) else self.parent.decide(x)

    def captures(self) -> list[Any]:
        """The captured values that became inputs."""
        return [x for x in self.captured if isinstance(self._known[id(x)], Var)]

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        inputs = [
            a.atom if type(a) is StageTracer and a.interpreter is self else self.lift(a)
            for a in args
        ]
        source = current_source()
        try:
            types = op.infer([a.type for a in inputs], params)
        except (TypeError, ValueError) as error:
            if source and "\n  at " not in str(error):
                raise type(error)(f"{error}{at(source)}") from None
            raise
        outputs = [Var(t) for t in types]
        for t in types:
            if t.scope is not None and t.scope.phase is CLOSED:
                raise t.scope.leak()
        self.equations.append(Equation(op, inputs, params, outputs, source))
        if not op.multiple:
            return StageTracer(self, outputs[0], source)
        return [StageTracer(self, v, source) for v in outputs]

    def graph(
        self, arguments: Sequence[StageTracer], results: Sequence[Any], name: str = ""
    ) -> Graph:
        """What was written, as a function of captures, then arguments."""
        outputs = [self.lift(r) for r in results]
        inputs = [*self.capture_vars, *(a.atom for a in arguments)]
        return Graph(inputs, self.equations, outputs, name)  # type: ignore[arg-type]


def stage(
    function: Callable[..., Sequence[Any]],
    types: Sequence[ArrayType],
    *,
    closed: bool = False,
    name: str = "",
) -> tuple[Graph, list[Any]]:
    """Traces a function of flat arrays to flat arrays.

    Returns the graph and the captured values: the graph's first inputs.
    """
    interpreter = StageInterpreter(closed)
    with entering(interpreter):
        arguments = [interpreter.argument(t) for t in types]
        results = function(*arguments)
        return interpreter.graph(arguments, results, name), interpreter.captures()


def is_staging() -> bool:
    """Whether all operations are being written down now, so that values of arrays are
    not known."""
    interpreter: Any = state.interpreter
    while interpreter is not None:
        if isinstance(interpreter, StageInterpreter) and interpreter.writes_all:
            return True
        interpreter = getattr(interpreter, "parent", None)
    return False


def known_value(x: Any) -> Any:
    """The concrete value of an array or scalar, or None if it is not known now."""
    if not isinstance(x, Tracer):
        return x
    x.check_alive()
    return x.concrete()

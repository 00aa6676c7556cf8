"""The base interpreter: carries out each operation at once, on NumPy."""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from treadle.errors import TracerError, at, user_source
from treadle.ir.graph import Equation, Graph
from treadle.ir.walk import follow
from treadle.records import record
from treadle.run.array import Array, Placed, as_numpy
from treadle.run.device import common, current, default, running_on
from treadle.trace.interpreter import Interpreter, set_base
from treadle.trace.lowering import Routine
from treadle.trace.op import Op
from treadle.trace.value import Tracer, typeof


class EagerInterpreter(Interpreter):
    """Runs the reference implementation of each op, and whole programs."""

    def run_program(self, entry: Any, leaves: Sequence[Any]) -> Sequence[Any]:
        """The results of a jitted function's program (`treadle.api.entry`)."""
        program, device = entry.program, current()
        if device != default():
            program = program.program_for(device.name)
        return program([*entry.captured, *leaves])

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        for a in args:
            if isinstance(a, Tracer):
                a.check_alive()
                raise TracerError(
                    f"an array of type {a.type} that a transform (grad, vmap…) is "
                    f"tracing is used outside of it{at(user_source())}\n"
                    "A function with a custom derivative, or a callback, closes over "
                    "it: make it an argument."
                )
            if type(a) is Placed:
                return self._placed(op, args, params)
        types = [typeof(a) for a in args]
        try:
            out_types = op.infer(types, params)
        except (TypeError, ValueError) as error:
            if "\n  at " not in str(error):
                raise type(error)(f"{error}{at(user_source())}") from None
            raise
        results = _apart(op, args, params)
        arrays = [_wrap(r, t) for r, t in zip(results, out_types, strict=True)]
        return arrays if op.multiple else arrays[0]

    def _placed(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        """Carries it out where its operands are."""
        placed = [a for a in args if type(a) is Placed]
        device = common(op.name, [a.device for a in placed])
        with running_on(device):
            plain = [a.unplaced() if type(a) is Placed else a for a in args]
            out = self.process(op, plain, params)
        if op.multiple:
            return [Placed.on(device, x) for x in out]
        return Placed.on(device, out)


class Elsewhere(EagerInterpreter):
    """Current in a block that has a default device of its own."""


def _apart(op: Op, args: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
    """The results of an op, not in memory of the caller's, who may write to it."""
    arrays = [as_numpy(a) for a in args]
    results = run(op, arrays, params)
    theirs = [a for a in args if isinstance(a, np.ndarray)]
    if not theirs:
        return results
    shared = [r for r in results if _shares(r, theirs)]
    if not shared:
        return results
    # What is repeated stays a view: of a copy of what it repeats.
    if sum(r.nbytes for r in shared) > sum(a.nbytes for a in theirs):
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        return run(op, [as_numpy(a) for a in copies], params)
    # In the order of what they view: other orders take ten times as long.
    return [r.copy("K") if _shares(r, theirs) else r for r in results]


def _shares(result: Any, arrays: Sequence[np.ndarray]) -> bool:
    return isinstance(result, np.ndarray) and any(
        [np.may_share_memory(result, a) for a in arrays]
    )


def _wrap(data: Any, type: Any) -> Array:
    if isinstance(data, Array):
        return data
    data = np.asarray(data)
    if data.dtype != type.dtype:
        data = data.astype(type.dtype)
    return Array(data, type)


@cache
def _call_lapack() -> Callable[..., Sequence[Any] | None]:
    """What calls LAPACK as compiled programs do (None if there is none): the bits of a
    factorization, and often its signs, depend on how that is done. Loaded when it is
    first needed: the compiler stands before it."""
    return importlib.import_module("treadle.backends.devices").call_lapack


def run(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
    """One op on NumPy arrays."""
    if isinstance(op.lowering, Routine):
        found = _call_lapack()(op, arrays, params)
        if found is not None:
            return found
    return meaning(op, arrays, params)


def meaning(op: Op, arrays: Sequence[Any], params: dict[str, Any]) -> Sequence[Any]:
    """The reference meaning of one op on NumPy arrays."""
    with np.errstate(all="ignore"):
        out = op.run(*arrays, **params)
    return out if op.multiple else (out,)


@record(frozen=True)
class Applied:
    """An op with params, as a function of the list of its operands that gives its only
    result.

    params: names and values, in order.
    """

    op: Op
    params: tuple[tuple[str, Any], ...]

    def __call__(self, arrays: Sequence[Any]) -> Any:
        return run(self.op, arrays, dict(self.params))[0]


class _Observed(threading.local):
    by: Callable[[Graph, Sequence[Any]], list[Any]] | None = None


observed = _Observed()
"""What evaluates graphs in the place of `evaluate` in this thread, those within others
too, to see all their values."""


def evaluate(graph: Graph, arrays: Sequence[Any]) -> list[Any]:
    """The reference meaning of a graph: NumPy arrays in, NumPy arrays out."""
    if observed.by is not None:
        return observed.by(graph, arrays)
    return list(map(np.asarray, follow(graph, arrays, run_equation)))


def run_equation(eq: Equation, inputs: Sequence[Any]) -> list[np.ndarray]:
    """The reference meaning of one equation."""
    outs = map(np.asarray, run(eq.op, inputs, eq.params))
    return [
        x if x.dtype == v.type.dtype else x.astype(v.type.dtype)
        for v, x in zip(eq.outputs, outs, strict=True)
    ]


set_base(EagerInterpreter())

"""vmap: each value travels with the position of its batch axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from treadle.arraytype import ArrayType
from treadle.errors import at
from treadle.ir.graph import Graph
from treadle.ir.walk import axes_named, call_graph
from treadle.ops.movement import move_axis, spread
from treadle.trace.axes import MappedAxis
from treadle.trace.interpreter import (
    Interpreter,
    current_source,
    entering,
    state,
)
from treadle.trace.op import Op
from treadle.trace.stage import stage
from treadle.trace.value import Tracer, typeof
from treadle.trace.ways import Restage


def example(t: ArrayType, axis: int | None) -> ArrayType:
    """The type of one example of an array whose examples are along `axis`."""
    if axis is None:
        return t
    return ArrayType(t.shape[:axis] + t.shape[axis + 1 :], t.dtype, t.weak)


class BatchTracer(Tracer):
    """A batched value of the parent interpreter; its type is that of one example."""

    __slots__ = ("axis", "type", "value")
    unknown = "is not one value: vmap computes all examples at once"

    def __init__(self, interpreter: Interpreter, value: Any, axis: int) -> None:
        self.interpreter, self.value, self.axis = interpreter, value, axis
        self.type = example(typeof(value), axis)

    def made(self) -> str:
        return self.value.made() if isinstance(self.value, Tracer) else ""


class BatchInterpreter(Interpreter):
    """Applies each op's batching rule, at the parent interpreter."""

    def __init__(self, axis: MappedAxis, restages: bool = False) -> None:
        self.parent, self.axis = state.interpreter, axis
        self._restages = restages
        self.writer = self.parent.writer

    def unpack(self, x: Any) -> tuple[Any, int | None]:
        """The full value and the batch axis (None: the same for all examples)."""
        if isinstance(x, BatchTracer) and x.interpreter is self:
            return x.value, x.axis
        if isinstance(x, Tracer):
            x.check_alive()
        return x, None

    def pack(self, value: Any, axis: int | None) -> Any:
        return value if axis is None else BatchTracer(self, value, axis)

    def decide(self, x: Any) -> bool | None:
        if self._restages:
            raise Restage
        value, axis = self.unpack(x)
        return self.parent.decide(value) if axis is None else None

    def process(self, op: Op, args: Sequence[Any], params: dict[str, Any]) -> Any:
        pairs = [self.unpack(a) for a in args]
        values, axes = [v for v, _ in pairs], [a for _, a in pairs]
        previous = state.interpreter
        state.interpreter = self.parent
        try:
            if all(a is None for a in axes) and not self._means_me(op, params):
                return op(*values, **params)
            if op.batch is None:
                raise TypeError(f"`{op.name}` can't be vectorised by vmap")
            mapped = self.axis if op.names_axis else self.axis.size
            out, axis = op.batch(mapped, values, axes, **params)
        except (TypeError, ValueError):
            _check_example(op, args, params)
            raise
        finally:
            state.interpreter = previous
        if op.multiple:
            return [self.pack(v, a) for v, a in zip(out, axis, strict=True)]
        return self.pack(out, axis)

    def _means_me(self, op: Op, params: dict[str, Any]) -> bool:
        """Whether an op speaks of this axis by its name, or may."""
        name = self.axis.name
        if name is None or not op.names_axis:
            return False
        named = axes_named(params)
        return named is None or name in named


def _check_example(op: Op, args: Sequence[Any], params: dict[str, Any]) -> None:
    """
    Raises:
      TypeError, ValueError: if an op can't be applied to one example; the message has
        the shapes that the user sees, without the batch axis.
    """
    try:
        op.infer([typeof(a) for a in args], params)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}{at(current_source())}") from None


def batch_flat(
    function: Callable[..., Sequence[Any]],
    axis: MappedAxis,
    values: Sequence[Any],
    axes: Sequence[int | None],
    restages: bool = False,
) -> tuple[list[Any], list[int | None]]:
    """Vectorises a function of flat values. Returns the results and their axes.

    Raises:
      Restage: if `restages`, and the function branches on a traced value.
    """
    interpreter = BatchInterpreter(axis, restages)
    with entering(interpreter):
        arguments = [interpreter.pack(v, a) for v, a in zip(values, axes, strict=True)]
        pairs = [interpreter.unpack(r) for r in function(*arguments)]
    return [v for v, _ in pairs], [a for _, a in pairs]


def to_axis(value: Any, axis: int | None, wanted: int, size: int) -> Any:
    """The value with its batch axis at `wanted`, made by repetition if it has none."""
    if axis is None:
        return spread(value, wanted, size)
    return value if axis == wanted else move_axis(value, axis, wanted)


def batch_graph(
    graph: Graph,
    axis: MappedAxis,
    batched: tuple[bool, ...],
    force: tuple[bool, ...] | bool = False,
) -> tuple[Graph, tuple[bool, ...]]:
    """The vectorised graph; batch axes are 0, in and out. Cached on the graph.

    Args:
      batched: which inputs have a batch axis.
      force: which outputs must have one (all, if True).

    Returns the graph, and which outputs have a batch axis.
    """
    if isinstance(force, bool):
        force = (force,) * len(graph.outputs)
    key = ("batch", axis, batched, force)
    if key not in graph.cache:
        graph.cache[key] = _batch_graph(graph, axis, batched, force)
    return graph.cache[key]


def _batch_graph(
    graph: Graph, axis: MappedAxis, batched: tuple[bool, ...], force: tuple[bool, ...]
) -> tuple[Graph, tuple[bool, ...]]:
    kept: tuple[bool, ...] = ()

    def function(*values: Any) -> list[Any]:
        nonlocal kept
        outs, axes = batch_flat(
            lambda *xs: call_graph(graph, xs),
            axis,
            values,
            [0 if b else None for b in batched],
        )
        kept = tuple(f or a is not None for f, a in zip(force, axes, strict=True))
        return [
            to_axis(o, a, 0, axis.size) if k else o
            for o, a, k in zip(outs, axes, kept, strict=True)
        ]

    types = [
        ArrayType((axis.size, *t.shape), t.dtype, t.weak) if b else t
        for t, b in zip(graph.in_types, batched, strict=True)
    ]
    result, _ = stage(function, types, closed=True, name=graph.name)
    return result, kept

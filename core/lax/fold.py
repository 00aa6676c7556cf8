"""Elements combined by a function of two: what reductions of any kind share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from treadle import dtypes, tree
from treadle.api.args import name_of
from treadle.api.loops import scan
from treadle.api.staging import trace
from treadle.api.vmap import vmap
from treadle.arraytype import ArrayType
from treadle.dims import is_dim
from treadle.errors import StructureError, at, user_source
from treadle.ir.graph import Graph, Var
from treadle.lax import elementwise
from treadle.lax.operands import scalar_of
from treadle.ops.arithmetic import add, mul
from treadle.ops.binary import maximum, minimum
from treadle.ops.compare import bitwise_and, bitwise_or
from treadle.ops.movement import expand
from treadle.ops.shape import concatenate, slice_axis
from treadle.ops.window import highest, lowest
from treadle.run.array import Array
from treadle.trace.op import Op
from treadle.trace.value import typeof


def seeds(name: str, form: tree.Structure, values: Any, xs: Sequence[Any]) -> list[Any]:
    """What a reduction begins with, one scalar for each array.

    Raises:
      StructureError: if there are not as many, in the same structure.
    """
    try:
        found = tree.flatten_up_to(form, values)
    except ValueError:
        raise StructureError(
            f"{name}: the initial values must have the structure of the operands, "
            f"{form}, got {values!r:.80}{at(user_source())}"
        ) from None
    return [scalar_of(name, v, x.dtype) for v, x in zip(found, xs, strict=True)]


class Monoid:
    """A function of two elements, and what it changes nothing with.

    op: the operation that it is, if it is one: whoever asks may have something faster.
    """

    op: Any

    def __init__(
        self,
        name: str,
        function: Callable[[Any, Any], Any],
        form: tree.Structure,
        inits: Sequence[Any],
    ) -> None:
        self.name, self.function, self.form = name, function, form
        self.inits = inits
        self.types = [ArrayType((), typeof(i).dtype) for i in inits]
        own = isinstance(function, FunctionType) and len(inits) == 1
        self.op = _OWN.get(function) if own and _ordered(self.types[0].dtype) else None
        if self.op is None:
            one = form.unflatten(self.types)
            self.op = _only_op(trace(self._checked)(one, one))

    def _checked(self, a: Any, b: Any) -> Any:
        out = self.function(a, b)
        found, form = tree.flatten(out)
        types = [typeof(x) for x in found]
        if form != self.form or [(t.shape, t.dtype) for t in types] != [
            (t.shape, t.dtype) for t in self.types
        ]:
            raise TypeError(
                f"{self.name}: {name_of(self.function)} of two elements must give one "
                f"of the same types, {self.form.unflatten(self.types)}; got {out!r:.80}"
                f"{at(user_source())}"
            )
        return out

    def __call__(self, a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        """Combines arrays of one shape, element by element."""
        if self.op is not None:
            return [self.op(a[0], b[0])]
        function = self._checked
        for _ in typeof(a[0]).shape:
            function = vmap(function)
        out = function(self.form.unflatten(a), self.form.unflatten(b))
        return tree.leaves(out)


def _only_op(graph: Graph) -> Op | None:
    """The operation of two operands that a graph consists of, if it does."""
    if len(graph.equations) != 1 or len(graph.inputs) != 2:
        return None
    (eq,) = graph.equations
    operands = [a for a in eq.inputs if isinstance(a, Var)]
    same = len(operands) == len(eq.inputs) and set(operands) == set(graph.inputs)
    known = eq.op in _NEUTRAL and _ordered(eq.outputs[0].type.dtype)
    return eq.op if same and known and [*graph.outputs] == [*eq.outputs] else None


def _ordered(dtype: np.dtype) -> bool:
    return not dtypes.is_complex(dtype)


# What need not be traced in order to know which operation it is.
_OWN = {elementwise.add: add, elementwise.max: maximum, elementwise.min: minimum}


_NEUTRAL: dict[Op, Callable[[np.dtype], Any]] = {
    add: lambda d: 0,
    mul: lambda d: 1,
    maximum: lowest,
    minimum: highest,
    bitwise_and: lambda d: True if d == dtypes.bool_ else ~d.type(0),
    bitwise_or: lambda d: False if d == dtypes.bool_ else 0,
}


def neutral(op: Op, dtype: np.dtype) -> Any:
    """The scalar with which an operation changes nothing."""
    return dtype.type(_NEUTRAL[op](dtype))


def begun(op: Op, init: Any, out: Any) -> Any:
    """A reduction that began with what changes nothing, as if with another value."""
    known = isinstance(init, Array | np.generic | np.ndarray)
    if known and np.asarray(init) == neutral(op, typeof(init).dtype):
        return out
    return op(out, init)


def in_pairs(monoid: Monoid, parts: list[list[Any]]) -> list[Any]:
    """All of some parts combined, neighbours first."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        rest = parts[-1:] if len(parts) % 2 else []
        parts = [monoid(a, b) for a, b in pairs] + rest
    return parts[0]


def folded(monoid: Monoid, xs: list[Any]) -> list[Any]:
    """Arrays combined along their first axis, beginning with the initial values."""
    n, rest = xs[0].shape[0], xs[0].shape[1:]
    begin = [expand(i, rest) for i in monoid.inits]
    if is_dim(n):
        # How often to halve is not known.
        last, _ = scan(lambda c, row: (monoid(c, row), None), begin, xs)
        return last
    if n == 0:
        return begin
    while n > 1:
        half = n // 2
        even = [slice_axis(x, 0, 0, 2 * half, 2) for x in xs]
        odd = [slice_axis(x, 0, 1, 2 * half, 2) for x in xs]
        pairs = monoid(even, odd)
        if n % 2:
            ends = [slice_axis(x, 0, n - 1, n) for x in xs]
            pairs = [
                concatenate(p, e, axis=0) for p, e in zip(pairs, ends, strict=True)
            ]
        xs, n = pairs, n - half
    return monoid(begin, [x.reshape(rest) for x in xs])

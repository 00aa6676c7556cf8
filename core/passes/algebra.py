"""Local simplification: small rules of pattern and result, applied in one sweep."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import ge, le
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import hint, is_dim, positive_part
from treadle.ir.graph import Atom, Equation, Graph, Lit, Var, params_key
from treadle.late import Computed, SizeOf
from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.binary import clamp, maximum, minimum
from treadle.ops.cast import convert
from treadle.ops.conv import conv_filter_grad, conv_general
from treadle.ops.dot import dot_general
from treadle.ops.gather import gather
from treadle.ops.identity import checkpoint_name, stop_gradient
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.ops.reduce import reduce_sum
from treadle.ops.scatter import scatter_add
from treadle.ops.shape import concatenate, pad, slice_
from treadle.ops.unary import ceil, floor, round_
from treadle.passes.places import SCATTERS, read_in_place, write_in_place
from treadle.passes.rewrite import Rewriter, ops_of, same_type
from treadle.run.eager import Applied, run
from treadle.trace.lowering import Elementwise
from treadle.trace.op import Op, size_op

Atoms = tuple[Atom, ...]
Rule = Callable[["_Simplify", Equation, Atoms], Atom | None]


class _Simplify(Rewriter):
    """`origin` finds the new equation that defines a variable, `fills` what number all
    elements of one are."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.origin: dict[Atom, Equation] = {}
        self.fills: dict[Atom, Atom] = {}
        self._uses: Counter[Atom] | None = None
        ops = ops_of(graph)
        self.rules = {
            op: [r for r in _RULES[op] if _READS.get(r, op) in ops]
            for op in _RULES.keys() & ops
        }

    def uses(self, a: Atom) -> int:
        """How often the given graph reads a variable."""
        if self._uses is None:
            read = (x for eq in self.graph.equations for x in eq.inputs)
            self._uses = Counter((*read, *self.graph.outputs))
        return self._uses[a]

    def write(self, eq: Equation) -> None:
        self.equations.append(eq)
        for v in eq.outputs:
            self.origin[v] = eq
        if eq.op is broadcast_in_dim and not eq.inputs[0].type.shape:
            self.fills[eq.outputs[0]] = eq.inputs[0]

    def defines(self, a: Atom, *ops: Op) -> Equation | None:
        """The equation behind an atom, if it is of one of these ops."""
        eq = self.origin.get(a)
        return eq if eq is not None and eq.op in ops else None

    def equation(self, eq: Equation) -> None:
        if len(eq.outputs) != 1 or eq.op.effect or eq.graphs:
            self.keep(eq)
            return
        op, out, inputs = eq.op, eq.outputs[0], self.inputs(eq)
        if isinstance(op.lowering, Elementwise):
            if not self.fills.keys().isdisjoint(inputs):
                if self._simpler(_fill, eq, inputs):
                    return
                inputs = _scalars_for_fills(self, inputs, eq)
            if op is div:
                inputs = (inputs[0], _count(inputs[1]))
            if not out.type.shape and self._simpler(_fold, eq, inputs):
                return
        for rule in self.rules.get(op, ()):
            if self._simpler(rule, eq, inputs):
                return
        if inputs is eq.inputs or inputs == eq.inputs:
            self.write(eq)
        else:
            self.emit(op, inputs, eq.params, eq.source, eq.outputs)

    def _simpler(self, rule: Rule, eq: Equation, inputs: Atoms) -> bool:
        """Whether a rule has found something to take the place of a result."""
        out, found = eq.outputs[0], rule(self, eq, inputs)
        if found is None or not same_type(found.type, out.type):
            return False
        self.values[out] = found
        return True


def _scalars_for_fills(s: _Simplify, inputs: Atoms, eq: Equation) -> Atoms:
    """Elementwise ops take scalars as they are: a broadcast scalar need not exist."""
    shape = eq.outputs[0].type.shape
    result = list(inputs)
    for i, a in enumerate(inputs):
        fill = s.fills.get(a)
        if fill is None:
            continue
        rest = result[:i] + result[i + 1 :]
        if any(other.type.shape == shape for other in rest):
            result[i] = fill
    return tuple(result)


def _fill(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """What is made of arrays of one number each is such an array, too."""
    scalars = [s.fills.get(a, a) for a in inputs]
    if any(a.type.shape for a in scalars):
        return None
    out = eq.outputs[0].type
    one = Equation(eq.op, scalars, eq.params, [Var(_scalar_type(out))], eq.source)
    number = _fold(s, one, scalars)
    if number is None:
        (number,) = s.emit(eq.op, scalars, eq.params, eq.source, one.outputs)
    params = {"shape": out.shape, "dims": ()}
    return s.emit(broadcast_in_dim, [number], params, eq.source)[0]


def _count(a: Atom) -> Atom:
    """A divisor: if it is a number, it is likely a count (of a mean, say) and another
    one for the next batch."""
    if isinstance(a, Lit) and a.type.ndim == 0 and not a.varies:
        return Lit(a.value, a.type, varies=True, size=a.size)
    return a


def _value(a: Atom) -> Any:
    """The number that a literal scalar is, whatever the sizes are."""
    return a.value if isinstance(a, Lit) and not (a.type.ndim or a.varies) else None


def _is(a: Atom, number: float) -> bool:
    plain = isinstance(a, Lit) and not (a.type.shape or a.varies)
    return plain and bool(a.value == number)  # type: ignore[union-attr]


def _fold(s: _Simplify, eq: Equation, inputs: Sequence[Atom]) -> Atom | None:
    """Computes scalar equations of literals."""
    literals = [a for a in inputs if isinstance(a, Lit) and not a.type.shape]
    if len(literals) < len(inputs):
        return None
    out = np.asarray(run(eq.op, [a.value for a in literals], eq.params)[0])
    varies = any(a.varies for a in literals)
    t, size = eq.outputs[0].type, None
    if any(a.size for a in literals):
        parts = tuple([a.size or a.value for a in literals])
        size = Computed(Applied(eq.op, params_key(eq.params)), parts, t.dtype)
    return Lit(out.astype(t.dtype)[()], t, varies, size)


def _plus_zero(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """The other summand. Adding 0.0 makes 0.0 of -0.0, so that is for summands that
    never are -0.0."""
    for a, other in (inputs, inputs[::-1]):
        if type(a) is not Lit or not _is(a, 0):
            continue
        if not _floating(other) or all(_signs(a.value)):
            return other
        if s.defines(other, *_SUMS):
            return other
    return None


def _floating(a: Atom) -> bool:
    return not (dtypes.is_integer(a.type.dtype) or a.type.dtype == dtypes.bool_)


def _signs(number: Any) -> list[bool]:
    """Whether the parts of a number are negative, negative zeros included."""
    parts = (number.real, number.imag) if np.iscomplexobj(number) else (number,)
    return [bool(np.signbit(part)) for part in parts]


_SUMS = (dot_general, conv_general, conv_filter_grad, reduce_sum)


def _times_unit(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """The other factor of 1 or -1, if it is real: complex infinities times 1 are
    not-a-number."""
    for a, other in (inputs, inputs[::-1]):
        if type(a) is not Lit or dtypes.is_complex(a.type.dtype):
            continue
        if _is(a, 1):
            return other
        if _is(a, -1):
            return s.emit(neg, [other], {}, eq.source)[0]
    return None


def _minus_zero(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    x, y = inputs
    return x if _is(y, 0) and not any(_signs(_value(y))) else None


def _double_negative(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    inner = s.defines(inputs[0], neg)
    return inner.inputs[0] if inner else None


def _no_change(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """Reshapes, conversions, slices and broadcasts that change nothing."""
    return inputs[0]


def _identity_order(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    order = eq.params["permutation"]
    return inputs[0] if order == tuple(range(len(order))) else None


def _reshape_twice(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    inner = s.defines(inputs[0], reshape)
    if inner is None:
        return None
    shape = eq.params["shape"]
    if inner.inputs[0].type.shape == shape:
        return inner.inputs[0]
    return s.emit(reshape, inner.inputs, {"shape": shape}, eq.source)[0]


def _transpose_twice(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    inner = s.defines(inputs[0], transpose)
    if inner is None:
        return None
    first, second = inner.params["permutation"], eq.params["permutation"]
    order = tuple(first[p] for p in second)
    if order == tuple(range(len(order))):
        return inner.inputs[0]
    return s.emit(transpose, inner.inputs, {"permutation": order}, eq.source)[0]


def _broadcast_twice(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    inner = s.defines(inputs[0], broadcast_in_dim)
    if inner is None:
        return None
    dims = tuple(eq.params["dims"][d] for d in inner.params["dims"])
    params = {"shape": eq.params["shape"], "dims": dims}
    return s.emit(broadcast_in_dim, inner.inputs, params, eq.source)[0]


def _sum_of_pads(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """Zero-padded pieces that touch, added up: a concatenation (what the backward pass
    of splitting an array gives)."""
    parts: list[tuple[int, int, Atom]] = []
    axes = set()
    for a in inputs:
        piece = _piece(s, a)
        if piece is None:
            return None
        axes.add(piece[0])
        parts += piece[1]
    if len(axes) != 1:
        return None
    axis = axes.pop()
    parts.sort(key=lambda p: p[0])
    if any(a[1] != b[0] for a, b in pairwise(parts)):
        return None
    if parts[0][0] == 0 and parts[-1][1] == eq.outputs[0].type.shape[axis]:
        atoms = [p[2] for p in parts]
        return s.emit(concatenate, atoms, {"axis": axis}, eq.source)[0]
    joined = [p[2] for p in parts]
    (middle,) = s.emit(concatenate, joined, {"axis": axis}, eq.source)
    padding = [(0, 0, 0)] * eq.outputs[0].type.ndim
    padding[axis] = (parts[0][0], eq.outputs[0].type.shape[axis] - parts[-1][1], 0)
    zero = Lit(middle.type.dtype.type(0), _scalar_type(middle.type))
    return s.emit(pad, [middle, zero], {"padding": tuple(padding)}, eq.source)[0]


def _scalar_type(t: ArrayType) -> ArrayType:
    return ArrayType((), t.dtype)


def _piece(s: _Simplify, a: Atom) -> tuple[int, list[tuple[int, int, Atom]]] | None:
    """The axis, and (start, stop, contents), of an array padded with zeros there."""
    eq = s.defines(a, pad)
    if eq is None or not _is(eq.inputs[1], 0):
        return None
    moved = [(i, p) for i, p in enumerate(eq.params["padding"]) if p != (0, 0, 0)]
    if len(moved) != 1:
        return None
    axis, (low, high, inner) = moved[0]
    if inner or low < 0 or high < 0:
        return None
    inside = eq.inputs[0]
    joined = s.defines(inside, concatenate)
    if joined is None or joined.params["axis"] != axis:
        return axis, [(low, low + inside.type.shape[axis], inside)]
    parts, start = [], low
    for x in joined.inputs:
        parts.append((start, start + x.type.shape[axis], x))
        start += x.type.shape[axis]
    return axis, parts


def _cropped(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """Negative padding is a slice."""
    padding = eq.params["padding"]
    if all(low >= 0 and high >= 0 for low, high, _ in padding):
        return None
    grown = tuple((max(low, 0), max(high, 0), inner) for low, high, inner in padding)
    (wide,) = s.emit(pad, inputs, {"padding": grown}, eq.source)
    shape = wide.type.shape
    params = {
        "starts": tuple(positive_part(-low) for low, _, _ in padding),
        "limits": tuple(
            n - positive_part(-high)
            for n, (_, high, _) in zip(shape, padding, strict=True)
        ),
        "steps": (1,) * len(shape),
    }
    return s.emit(slice_, [wide], params, eq.source)[0]


def _size(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """A size is a literal: its value here is that of the sizes that were traced."""
    size, t = SizeOf(eq.params["dim"], eq.params["dtype"]), eq.outputs[0].type
    if not is_dim(size.size):
        return Lit(size.at(hint), t)
    return Lit(size.at(hint), t, varies=True, size=size)


def _converted_table(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """What is picked of a converted array is converted instead, if it is less."""
    inner, out = s.defines(inputs[0], convert), eq.outputs[0].type
    if inner is None or eq.params["mode"] != "clip":
        return None
    if hint(out.size) >= hint(inputs[0].type.size):
        return None
    picked = [inner.inputs[0], *inputs[1:]]
    (found,) = s.emit(eq.op, picked, eq.params, eq.source)
    return s.emit(convert, [found], {"dtype": out.dtype}, eq.source)[0]


def _saturating(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """Floats saturate where they become integers: bounds beyond these change nothing,
    nor do those at their ends."""
    (x,), dtype = inputs, eq.outputs[0].type.dtype
    if not (dtypes.is_float(x.type.dtype) and dtypes.is_integer(dtype)):
        return None
    found = _unbounded(s, x, np.iinfo(dtype))
    if found is x:
        return None
    return s.emit(convert, [found], eq.params, eq.source)[0]


def _unbounded(s: _Simplify, a: Atom, ends: np.iinfo) -> Atom:
    """What has bounds no nearer than the ends, or is rounded to a whole number then."""
    eq = s.defines(a, clamp, maximum, minimum, round_, floor, ceil)
    if eq is None:
        return a
    low, high = _is_number(s, ends.min, le), _is_number(s, ends.max, ge)
    if eq.op in (round_, floor, ceil):
        inner = _unbounded(s, eq.inputs[0], ends)
        if inner is eq.inputs[0]:
            return a
        return s.emit(eq.op, [inner], eq.params, eq.source)[0]
    if eq.op is clamp:
        bounds = low(eq.inputs[0]) and high(eq.inputs[2])
        return _unbounded(s, eq.inputs[1], ends) if bounds else a
    beyond = low if eq.op is maximum else high
    for bound, x in (eq.inputs, eq.inputs[::-1]):
        if beyond(bound) and same_type(x.type, a.type):
            return _unbounded(s, x, ends)
    return a


def _is_number(
    s: _Simplify, end: int, compare: Callable[[float, int], bool]
) -> Callable[[Atom], bool]:
    """Whether all elements of something are one number, that compares so to an end."""

    def found(a: Atom) -> bool:
        a = s.fills.get(a, a)
        if not isinstance(a, Lit) or a.varies or a.type.shape:
            return False
        return compare(float(a.value), end)

    return found


_HALVES = (dtypes.float16, dtypes.bfloat16)


def _sum_with_scatter(s: _Simplify, eq: Equation, inputs: Atoms) -> Atom | None:
    """What is scattered into zeros, and an array: it is scattered into the array. Half
    floats would be rounded more often."""
    if eq.outputs[0].type.dtype in _HALVES:
        return None
    for a, b in (inputs, inputs[::-1]):
        found = s.defines(b, scatter_add)
        if found is None or s.uses(b) > 1 or a.type.ndim != b.type.ndim:
            continue
        zeros = found.inputs[0]
        if _is(s.fills.get(zeros, zeros), 0):
            operands = [a, *found.inputs[1:]]
            return s.emit(scatter_add, operands, found.params, eq.source)[0]
    return None


_RULES: dict[Op, tuple[Rule, ...]] = {
    size_op: (_size,),
    add: (_plus_zero, _sum_of_pads, _sum_with_scatter),
    sub: (_minus_zero,),
    mul: (_times_unit,),
    neg: (_double_negative,),
    convert: (_no_change, _saturating),
    gather: (_converted_table,),
    reshape: (_no_change, _reshape_twice),
    slice_: (_no_change,),
    pad: (_cropped,),
    broadcast_in_dim: (_no_change, _broadcast_twice),
    transpose: (_identity_order, _transpose_twice, read_in_place),
    **dict.fromkeys(SCATTERS, (write_in_place,)),
    stop_gradient: (_no_change,),
    checkpoint_name: (_no_change,),
}
_READS: dict[Rule, Op] = {_sum_of_pads: pad, _sum_with_scatter: scatter_add}
"""Of rules that are seldom needed, what makes what they read."""


def simplify(graph: Graph) -> Graph:
    """The graph with local simplifications made, nested graphs included."""
    return _Simplify.apply(graph)

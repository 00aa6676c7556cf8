"""Complex arrays that are only moved, as arrays of what their memory holds.

A pair of parts would be moved by two kernels, each over every other number. Instead,
what is in memory as complex numbers, and is wanted so again, moves as words of 64 bits,
or as lines of two numbers of 64 bits: where whole runs of these move, they are as fast.
So do conjugates of words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ir.graph import Atom, Equation, Lit
from treadle.ops.compare import bitwise_xor
from treadle.ops.complex import conj, parts, words
from treadle.ops.dynamic import dynamic_slice, dynamic_update_slice
from treadle.ops.gather import gather
from treadle.ops.identity import copy
from treadle.ops.movement import broadcast_in_dim, reshape, reverse, transpose
from treadle.ops.scatter import scatter_set
from treadle.ops.shape import concatenate, pad, slice_
from treadle.trace.op import Op

Emit = Callable[[Op, Sequence[Atom], dict[str, Any]], Atom]
Params = dict[str, Any]


class Packed:
    """The packed form of values that have one, beside their parts.

    emit: writes an equation with one result.
    """

    def __init__(self, emit: Emit) -> None:
        self.emit = emit
        self.found: dict[Atom, Atom] = {}

    def of(self, a: Atom, joined: dict[Atom, Atom]) -> Atom | None:
        """The packed form of a value: of a number, of what is in memory (`joined`), or
        of what was moved."""
        if a not in self.found:
            packed: Atom | None
            if isinstance(a, Lit):
                packed = _literal(a)
            elif a in joined and a.type.size:
                packed = self.emit(_view(a), [joined[a]], {})
            else:
                packed = None
            if packed is None:
                return None
            self.found[a] = packed
        return self.found[a]

    def move(
        self, eq: Equation, operands: Sequence[Atom], joined: dict[Atom, Atom]
    ) -> None:
        """Moves the packed operands of an equation, too, if all of them have such a
        form. Who reads it not at all leaves it dead."""
        (out,) = eq.outputs
        params = _params(eq)
        if params is None or not out.type.size:
            return
        if eq.op is conj:
            self._conjugate(eq, operands[0], joined)
            return
        inputs = []
        for a in operands:
            packed = self.of(a, joined) if a.type.dtype.kind == "c" else a
            if packed is None:
                return
            inputs.append(packed)
        last = _ENDS.get(eq.op, ()) if params is not eq.params else ()
        self.found[out] = self.emit(eq.op, [*inputs, *last], params)

    def _conjugate(self, eq: Equation, a: Atom, joined: dict[Atom, Atom]) -> None:
        """One bit of a word: the sign of its second half."""
        packed = self.of(a, joined)
        if packed is not None:
            self.found[eq.outputs[0]] = self.emit(bitwise_xor, [packed, _SIGN], {})


def _view(a: Atom) -> Op:
    return words if a.type.dtype == dtypes.complex64 else parts


def _literal(a: Lit) -> Lit | None:
    """A number as its bits, or as the one number that both of its parts are."""
    if a.size is not None:
        return None
    value = np.asarray(a.value)
    if a.type.dtype == dtypes.complex64:
        bits = value.reshape(-1).view(np.uint64).reshape(value.shape)
        t = ArrayType(a.type.shape, dtypes.uint64)
        return Lit(bits if t.shape else bits[()], t, a.varies)
    if value.shape or value.real.tobytes() != value.imag.tobytes():
        return None
    return Lit(value.real[()], ArrayType((), dtypes.float64), a.varies)


def _params(eq: Equation) -> Params | None:
    """The params that move the packed form; None if that is no good."""
    if eq.op not in _LINES:
        return None
    if eq.outputs[0].type.dtype == dtypes.complex64:
        return eq.params
    return _LINES[eq.op](eq.inputs, eq.params)


def _broadcast(inputs: Sequence[Atom], params: Params) -> Params:
    shape, dims = params["shape"], params["dims"]
    # Only a number that is known is one number (see `_literal`).
    last = () if isinstance(inputs[0], Lit) else (len(shape),)
    return {"shape": (*shape, 2), "dims": (*dims, *last)}


def _transposed(inputs: Sequence[Atom], params: Params) -> Params | None:
    order = params["permutation"]
    if order and order[-1] != len(order) - 1:
        return None
    return {"permutation": (*order, len(order))}


def _sliced(inputs: Sequence[Atom], params: Params) -> Params | None:
    if not inputs[0].type.shape or params["steps"][-1] != 1:
        return None
    ends = {"starts": 0, "limits": 2, "steps": 1}
    return {name: (*params[name], end) for name, end in ends.items()}


def _padded(inputs: Sequence[Atom], params: Params) -> Params | None:
    x, value = inputs
    if not x.type.shape or params["padding"][-1][2] or not isinstance(value, Lit):
        return None
    return {"padding": (*params["padding"], (0, 0, 0))}


def _placed(inputs: Sequence[Atom], params: Params) -> Params | None:
    return None if inputs[0].type.ndim - 1 in params["axes"] else params


_FIRST = Lit(np.int32(0), ArrayType((), dtypes.int32))
_ENDS: dict[Op, Sequence[Atom]] = {
    dynamic_slice: (_FIRST,),
    dynamic_update_slice: (_FIRST,),
}
"""Where lines of two numbers begin, for what is told so of each axis."""

_SIGN = Lit(np.uint64(1 << 63), ArrayType((), dtypes.uint64))

_LINES: dict[Op, Callable[[Sequence[Atom], Params], Params | None]] = {
    conj: lambda x, params: None,
    broadcast_in_dim: _broadcast,
    reshape: lambda x, params: {"shape": (*params["shape"], 2)},
    transpose: _transposed,
    reverse: _placed,
    slice_: _sliced,
    pad: _padded,
    concatenate: lambda x, params: params,
    copy: lambda x, params: params,
    gather: _placed,
    scatter_set: _placed,
    dynamic_slice: lambda x, params: {"sizes": (*params["sizes"], 2)},
    dynamic_update_slice: lambda x, params: dict(params),
}
"""What moves words, with the params that move lines of two numbers: None where lines
would go to places of their own."""

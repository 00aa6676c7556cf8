"""Ops that are functions from outside: LLVM IR or C, on numbers or on whole arrays.

`scalar_call` computes each element by LLVM IR (which may be no more than the call of a
C function) and is part of loop nests like any elementwise op. `foreign_call` gives
memory to a C function for each example of a batch.

Neither has a derivative of its own.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.errors import at
from treadle.ir import scalar
from treadle.ops.elementwise import batch_elementwise, common_shape
from treadle.ops.movement import move_axis, spread
from treadle.trace.foreign import Function, ScalarCode
from treadle.trace.interpreter import current_source
from treadle.trace.lowering import Elementwise, Foreign
from treadle.trace.op import Op

_NO_DERIVATIVE = (
    "{name} has no derivative: what {what} computes is not known to differentiation"
    "{at}\n{remedy}"
)


@cache
def devices() -> Any:
    """The devices, loaded when they are first needed: the compiler stands before
    them."""
    return importlib.import_module("treadle.backends.devices")


# scalar_call --------------------------------------------------------------------------


def _scalar_type(*types: ArrayType, code: ScalarCode) -> ArrayType:
    found = tuple([t.dtype.name for t in types])
    if found != code.operands:
        raise TypeError(f"{code.symbol} takes {code.operands}, got {types}")
    return ArrayType(common_shape(code.symbol, types), dtypes.canonical(code.result))


def _scalar_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    raise TypeError(
        _NO_DERIVATIVE.format(
            name="a kernel of native code",
            what="it",
            at=at(current_source()),
            remedy="Say what it is by `td.kernel(..., partials=[...])`, or give the "
            "kernel `td.stop_gradient(x)`.",
        )
    )


scalar_call = Op(
    "scalar_call",
    _scalar_type,
    lambda *arrays, code: devices().call_scalar(code, arrays),
    lowering=Elementwise(scalar.CALL),
    jvp=_scalar_jvp,
    batch=lambda size, args, axes, **p: batch_elementwise(
        scalar_call, size, args, axes, p
    ),
)

# foreign_call -------------------------------------------------------------------------


def _foreign_run(*arrays: Any, function: Function, types: Any, lead: int) -> Any:
    outs = [np.zeros(t.shape, t.dtype) for t in types]
    devices().call_foreign(
        function, [np.asarray(a, order="C") for a in arrays], outs, lead
    )
    return outs


def _foreign_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    raise TypeError(
        _NO_DERIVATIVE.format(
            name="ffi_call",
            what="a C function",
            at=at(current_source()),
            remedy="Wrap the call in a function with `td.custom_jvp` or "
            "`td.custom_vjp`, or give it `td.stop_gradient(x)`.",
        )
    )


def _foreign_batch(
    size: int, args: Any, axes: Any, *, function: Function, types: Any, lead: int
) -> Any:
    wide = tuple([ArrayType((size, *t.shape), t.dtype) for t in types])
    lined = [
        spread(x, 0, size) if a is None else move_axis(x, a, 0)
        for x, a in zip(args, axes, strict=True)
    ]
    outs = foreign_call(*lined, function=function, types=wide, lead=lead + 1)
    return outs, [0] * len(wide)


def _foreign_type(
    *operands: ArrayType, function: Function, types: Any, lead: int
) -> Sequence[ArrayType]:
    shapes = {t.shape[:lead] for t in (*operands, *types)}
    if len(shapes) != 1:
        raise ValueError(f"ffi_call of {operands} to {types} by {lead} axes")
    return types


foreign_call = Op(
    "foreign_call",
    _foreign_type,
    _foreign_run,
    lowering=Foreign(),
    jvp=_foreign_jvp,
    batch=_foreign_batch,
    multiple=True,
)
"""Params: the function; the types of the results; and how many leading axes of operands
and results are those of a batch."""

"""Steps that the host does: an operation's meaning, called from compiled programs."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle.arraytype import ArrayType
from treadle.plan.steps import HostStep
from treadle.run.eager import run
from treadle.trace.op import Op

_Callback = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.POINTER(ctypes.c_int64))
Meaning = tuple[Op, dict[str, Any], Sequence[ArrayType], Sequence[ArrayType]]


def meaning(step: HostStep) -> Meaning:
    """What a host step computes: its op and params, types of operands and results."""
    call = step.call
    return call.op, call.params, *call.types


def address_of(call: Any) -> int:
    """Where the code of a C function is."""
    address = ctypes.cast(call, ctypes.c_void_p).value
    assert address is not None
    return address


def host_call(what: Meaning, failures: dict[int, BaseException]) -> Any:
    """A C function that runs an op's reference implementation on raw memory."""
    op, params, in_types, out_types = what
    n = len(in_types)

    def call(words: Any) -> int:
        try:
            arrays = [
                view_memory(words[i], t) for i, t in enumerate((*in_types, *out_types))
            ]
            results = run(op, arrays[:n], params)
            for target, result in zip(arrays[n:], results, strict=True):
                np.copyto(target, result, casting="unsafe")
        except BaseException as error:
            failures[threading.get_ident()] = error
            return 1
        return 0

    return _Callback(call)


def view_memory(address: int, t: Any) -> np.ndarray:
    """Raw memory as an array."""
    if not t.nbytes:
        return np.empty(t.shape, t.dtype)
    raw = (ctypes.c_char * t.nbytes).from_address(address)
    return np.frombuffer(raw, t.dtype).reshape(t.shape)

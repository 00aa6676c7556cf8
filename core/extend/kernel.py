"""Functions of numbers as elementwise operations: `td.kernel`."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import update_wrapper, wraps
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.api.args import check_function, name_of
from treadle.api.boundary import boundary
from treadle.api.custom import custom_jvp
from treadle.control.foreign import devices, scalar_call
from treadle.errors import at, user_source
from treadle.np.mapping import vectorize
from treadle.np.operands import PYTHON_SCALARS, broadcast, cast, operand
from treadle.np.shapes import broadcast_to
from treadle.run.array import Array
from treadle.trace.foreign import ScalarCode, named
from treadle.trace.value import NUMBERS, Value, typeof

Partial = Callable[..., Any]


@boundary
def kernel(
    function: Callable[..., Any] | str | Any,
    *,
    partials: Sequence[Partial | None] | None = None,
) -> Callable[..., Array]:
    """Makes an elementwise operation of a function of numbers.

    The operation takes arrays, which are broadcast. It is part of fused kernels, runs
    under every transform, and on sizes that are open.

    Args:
      function: one of

        - a Python function of scalars, in Treadle's operations (also with `if`). Its
          derivative is derived.
        - LLVM IR, as text, that defines one function of numbers (helpers are
          `internal`). Its arguments and its result are `float`, `double`, or integers
          from `i8` to `i64`.
        - a C function of `ctypes`, with `argtypes` and `restype`. It is called without
          the interpreter, perhaps from several threads at once, so it must be pure.

      partials: the derivative, for each argument ``(g, out, *args) -> tangent``: what a
        tangent g of it makes of the result, in Treadle's operations; None where that
        is zero. LLVM and C have no other.

    Raises:
      TypeError: for what is none of these, or a signature that is no function of
        numbers; and, when it is called, for arguments of another number or dtype.
      ValueError: if LLVM rejects the text, saying why.

    >>> import treadle as td, treadle.numpy as tnp
    >>> @td.kernel
    ... def soft(x, limit):
    ...     return x if abs(x) < limit else limit * tnp.tanh(x / limit)
    >>> td.jit(soft)(tnp.array([0.5, 3.0]), 1.0)
    Array([0.5   , 0.9951], dtype=float32)
    """
    if isinstance(function, str):
        apply = _of_code(_parsed(function))
    elif hasattr(function, "argtypes") and hasattr(function, "restype"):
        apply = _of_code(_of_c_function(function), name_of(function))
    else:
        check_function("kernel", function)
        apply = update_wrapper(vectorize(_of_numbers(function)), function)
    if partials is None:
        return apply
    return _with_partials(apply, tuple(partials))


def _of_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which must give a number, or several."""

    @wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        found = function(*args, **kwargs)
        for x in found if isinstance(found, tuple | list) else (found,):
            if not _is_number(x):
                raise TypeError(
                    f"{name_of(function)} is a kernel, a function of numbers, and "
                    f"gives {x!r:.60}{at(user_source())}\nReturn a number; functions "
                    "of arrays need no `td.kernel`."
                )
        return found

    return checked


def _is_number(x: Any) -> bool:
    known = isinstance(x, (Value, np.ndarray, np.generic, *NUMBERS))
    return known and not typeof(x).shape


def _parsed(text: str) -> ScalarCode:
    try:
        return devices().code_of_text(text)
    except ValueError as error:
        raise ValueError(
            f"this LLVM IR is no kernel: {error}{at(user_source())}"
        ) from None


_C_TYPES: dict[Any, str] = {
    **{ctypes.c_float: "float32", ctypes.c_double: "float64"},
    **{ctypes.c_int8: "int8", ctypes.c_int16: "int16", ctypes.c_int32: "int32"},
    **{ctypes.c_int64: "int64", ctypes.c_uint8: "uint8", ctypes.c_uint16: "uint16"},
    **{ctypes.c_uint32: "uint32", ctypes.c_uint64: "uint64"},
}


def _of_c_function(function: Any) -> ScalarCode:
    name = name_of(function)
    kinds = function.argtypes
    wide = [k for k in (*(kinds or ()), function.restype) if k in _WIDE]
    if not kinds or len(wide) != len(kinds) + 1:
        raise TypeError(
            f"kernel of the C function {name}: argtypes {kinds}, restype "
            f"{function.restype}{at(user_source())}\nSet both: "
            "`f.argtypes = [ctypes.c_double]`, `f.restype = ctypes.c_double`; of "
            "numbers,\nc_float, c_double, or integers of 32 or 64 bits. Functions of "
            "arrays: `td.ffi_call`."
        )
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    *operands, result = [_C_TYPES[k] for k in (*kinds, function.restype)]
    return devices().code_of_function(named(address, name, function), operands, result)


# How narrower integers are passed depends on the machine.
_WIDE = tuple([k for k in _C_TYPES if ctypes.sizeof(k) >= 4])


def _of_code(code: ScalarCode, name: str = "") -> Callable[..., Any]:
    name = name or code.symbol.rpartition(".")[2]

    @boundary
    def apply(*args: Any) -> Any:
        if len(args) != len(code.operands):
            raise TypeError(
                f"{name} takes {len(code.operands)} arguments, got {len(args)}"
                f"{at(user_source())}"
            )
        numbers = [
            _fitting(name, i, operand(name, x), dtypes.canonical(d))
            for i, (x, d) in enumerate(zip(args, code.operands, strict=True))
        ]
        return scalar_call(*broadcast(name, numbers), code=code)

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = (
        f"A kernel of {', '.join(code.operands)}, which gives {code.result}."
    )
    return apply


def _fitting(name: str, i: int, x: Any, dtype: Any) -> Any:
    """An argument of the dtype that native code takes: numbers of Python's become it,
    arrays must have it."""
    t = typeof(x)
    plain = type(x) in PYTHON_SCALARS or t.weak
    fits = t.dtype == dtype
    if plain and not fits:
        real = dtypes.is_float(dtype) and not dtypes.is_complex(t.dtype)
        fits = real or not dtypes.is_differentiable(t.dtype)
    if not fits:
        raise TypeError(
            f"argument {i} of {name} is {t}, and it takes {dtype.name}"
            f"{at(user_source())}\nConvert it: `x.astype({dtype.name!r})`."
        )
    return cast(x, dtype)


def _with_partials(
    apply: Callable[..., Any], partials: tuple[Partial | None, ...]
) -> Callable[..., Any]:
    function = custom_jvp(apply)

    @function.defjvp
    def _(primals: tuple, tangents: tuple) -> tuple[Any, Any]:
        out = function(*primals)  # not `apply`, which has no second derivative
        if len(partials) != len(primals):
            raise TypeError(
                f"{name_of(apply)} has {len(primals)} arguments, and {len(partials)} "
                f"partials{at(user_source())}\nGive one for each; None where the "
                "derivative is zero."
            )
        total: Any = None
        for g, partial in zip(tangents, partials, strict=True):
            if partial is None:
                continue
            term = partial(g, out, *primals)
            total = term if total is None else total + term
        if total is None:
            return out, None
        return out, cast(broadcast_to(total, typeof(out).shape), typeof(out).dtype)

    return function

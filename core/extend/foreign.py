"""C functions on whole arrays: `td.ffi_call`."""

from __future__ import annotations

import ctypes
from typing import Any, overload

from treadle import tree
from treadle.api.args import check_leaf, name_of
from treadle.api.boundary import boundary
from treadle.api.carry import as_array
from treadle.api.staging import type_of_leaf
from treadle.arraytype import ArrayType
from treadle.control.foreign import foreign_call
from treadle.errors import at, user_source
from treadle.run.array import Array
from treadle.trace.foreign import Address, Function, named

_SIGNATURE = (
    "It is `void f(void **buffers, const int64_t *sizes)`: its address, or a function "
    "of ctypes with\n`f.argtypes = [ctypes.POINTER(ctypes.c_void_p), "
    "ctypes.POINTER(ctypes.c_int64)]` and\n`f.restype = None`. A function of numbers "
    "is a `td.kernel`."
)


@overload
def ffi_call(function: Any, result_types: ArrayType | Array, *args: Any) -> Array: ...
@overload
def ffi_call(
    function: Any, result_types: tuple[ArrayType | Array, ...], *args: Any
) -> tuple[Array, ...]: ...
@overload
def ffi_call(
    function: Any, result_types: list[ArrayType | Array], *args: Any
) -> list[Array]: ...
@overload
def ffi_call(
    function: Any, result_types: dict[str, ArrayType | Array], *args: Any
) -> dict[str, Array]: ...
@overload
def ffi_call(function: Any, result_types: Any, *args: Any) -> Any: ...
@boundary
def ffi_call(function: Any, result_types: Any, *args: Any) -> Any:
    """Calls a C function on the memory of arrays, also from compiled programs, without
    the interpreter. (Nothing guards memory from a function that writes elsewhere.)

    The function is ``void f(void **buffers, const int64_t *sizes)``. `buffers` are the
    addresses of the arguments, then of the results, in row-major order; `sizes` the
    lengths of all axes of the arguments, then of the results, one behind the other. It
    writes all of the results and nothing else, keeps no address, and may be called from
    several threads at once.

    Under `td.vmap` it is called for each example. For a derivative wrap the call with
    `td.custom_jvp` or `td.custom_vjp`.

    Args:
      function: an address, or a function of ctypes (it is kept as long as programs that
        call it; behind an address, that is the caller's concern).
      result_types: a pytree of `td.ShapeDtype`, or of arrays like the results. (The
        leaves of a dict are in the order of its sorted keys.)
      args: pytrees of arrays, one at least; their dtypes are the function's concern.

    Raises:
      TypeError: for what is no function, one whose `argtypes` or `restype` are others,
        or if differentiated.

    >>> import ctypes, numpy as np, treadle as td
    >>> signature = ctypes.CFUNCTYPE(
    ...     None, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int64)
    ... )
    >>> @signature  # in earnest a function of a library, or of numba.cfunc
    ... def copy(buffers, sizes):
    ...     ctypes.memmove(buffers[1], buffers[0], 4 * sizes[0])
    >>> f = td.jit(lambda x: 2 * td.ffi_call(copy, x, x))
    >>> f(np.array([3, 1, 2], "float32"))
    Array([6., 2., 4.], dtype=float32)
    """
    target = _target(function)
    wanted, out_form = tree.flatten(result_types)
    name = f"ffi_call of {name_of(function)}"
    types = []
    for leaf in wanted:
        t = type_of_leaf(leaf, f"a result type of {name}")
        types.append(ArrayType(t.shape, t.dtype))
    leaves, form = tree.flatten(args)
    for path, leaf in zip(tree.paths(form), leaves, strict=True):
        check_leaf(leaf, f"argument {tree.key_name(path)} of {name}")
    if not leaves or not types:
        raise TypeError(
            f"{name} takes an array and gives one, at least{at(user_source())}"
        )
    outs = foreign_call(
        *map(as_array, leaves), function=target, types=tuple(types), lead=0
    )
    return out_form.unflatten(outs)


def _target(function: Any) -> Function:
    if isinstance(function, int) and not isinstance(function, bool) and function > 0:
        return Address(function, None)
    if not hasattr(function, "argtypes") or not hasattr(function, "restype"):
        raise TypeError(
            f"ffi_call of {function!r:.60}{at(user_source())}\n{_SIGNATURE}"
        )
    kinds, result = function.argtypes, function.restype
    pointers = kinds and len(kinds) == 2 and all(map(_is_pointer, kinds))
    # Unless it is told otherwise, ctypes takes it that functions give an int.
    if not pointers or result not in (None, ctypes.c_int):
        raise TypeError(
            f"ffi_call of {name_of(function)}: argtypes {kinds}, restype {result}"
            f"{at(user_source())}\n{_SIGNATURE}"
        )
    address = ctypes.cast(function, ctypes.c_void_p).value
    if not address:
        raise TypeError(f"ffi_call of a null pointer{at(user_source())}\n{_SIGNATURE}")
    return named(address, name_of(function), function)


def _is_pointer(kind: Any) -> bool:
    return kind is ctypes.c_void_p or hasattr(kind, "contents")

"""Python functions as operations: pure_callback, io_callback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, overload

from treadle import tree
from treadle.api.args import check_leaf, name_of, signature_of
from treadle.api.boundary import boundary
from treadle.api.carry import as_array
from treadle.api.staging import type_of_leaf
from treadle.arraytype import ArrayType
from treadle.control import callback as ops
from treadle.errors import at, user_source
from treadle.run.array import Array
from treadle.trace.op import Op


@dataclass(frozen=True)
class _Host:
    """A function of pytrees, as one of flat NumPy arrays. Equal for the same function
    and structures, so that programs that hold it can be compared."""

    function: Callable[..., Any]
    form: tree.Structure
    out_form: tree.Structure

    @property
    def __name__(self) -> str:
        return name_of(self.function)

    def __call__(self, *leaves: Any) -> list[Any]:
        args, kwargs = self.form.unflatten(leaves)
        return tree.flatten_up_to(self.out_form, self.function(*args, **kwargs))


def _bind(
    op: Op,
    function: Callable[..., Any],
    result_types: Any,
    args: tuple,
    kwargs: dict[str, Any],
    batching: str,
) -> Any:
    wanted, out_form = tree.flatten(result_types)
    name = name_of(function)
    types = []
    for leaf in wanted:
        t = type_of_leaf(leaf, f"a result type of the callback {name}")
        types.append(ArrayType(t.shape, t.dtype))
    leaves, form = tree.flatten((args, kwargs))
    for path, leaf in zip(tree.paths(form), leaves, strict=True):
        check_leaf(leaf, f"argument {tree.key_name(path)} of the callback {name}")
    outs = op(
        *map(as_array, leaves),
        function=_Host(function, form, out_form),
        types=tuple(types),
        batching=batching,
    )
    return out_form.unflatten(outs)


@overload
def pure_callback(
    function: Callable[..., Any],
    result_types: ArrayType | Array,
    *args: Any,
    vmap_method: str = "sequential",
    **kwargs: Any,
) -> Array: ...
@overload
def pure_callback(
    function: Callable[..., Any],
    result_types: tuple[ArrayType | Array, ...],
    *args: Any,
    vmap_method: str = "sequential",
    **kwargs: Any,
) -> tuple[Array, ...]: ...
@overload
def pure_callback(
    function: Callable[..., Any],
    result_types: list[ArrayType | Array],
    *args: Any,
    vmap_method: str = "sequential",
    **kwargs: Any,
) -> list[Array]: ...
@overload
def pure_callback(
    function: Callable[..., Any],
    result_types: dict[str, ArrayType | Array],
    *args: Any,
    vmap_method: str = "sequential",
    **kwargs: Any,
) -> dict[str, Array]: ...
@overload
def pure_callback(
    function: Callable[..., Any],
    result_types: Any,
    *args: Any,
    vmap_method: str = "sequential",
    **kwargs: Any,
) -> Any: ...
@boundary
def pure_callback(
    function: Callable[..., Any],
    result_types: Any,
    *args: Any,
    vmap_method: str = "sequential",
    **kwargs: Any,
) -> Any:
    """Calls a Python function on NumPy arrays, also from compiled programs.

    Args:
      function: must be pure: it may be called any number of times, or never.
      result_types: a pytree of `td.ShapeDtype` (or of arrays like the results).
      args, kwargs: pytrees of arrays.
      vmap_method: what `vmap` does. "sequential": it calls `function` for each example,
        in order. Otherwise it calls it once, and the results have a new leading axis:
        with "broadcast_all" all arguments have it, too; with "expand_dims", those that
        are not mapped have one of length 1 in its place.

    Raises:
      ValueError: for another `vmap_method`.
      TypeError: if the function returns arrays of other shapes or dtypes (Python's
        numbers have none of their own); or if differentiated: wrap it with
        `td.custom_jvp` or `td.custom_vjp`.

    >>> import numpy as np, treadle as td
    >>> f = td.jit(lambda x: td.pure_callback(np.cbrt, x, x))
    >>> f(np.float32(27.0))
    Array(3., dtype=float32)
    """
    if "vectorized" in kwargs and not _takes(function, "vectorized"):
        raise TypeError(
            f"pure_callback has no argument 'vectorized'{at(user_source())}\n"
            'Write `vmap_method="broadcast_all"` for a function that takes batches.'
        )
    if vmap_method not in ops.BATCHINGS:
        raise ValueError(
            f"vmap_method={vmap_method!r}: take one of "
            f"{', '.join(map(repr, ops.BATCHINGS))}{at(user_source())}"
        )
    return _bind(ops.pure_callback, function, result_types, args, kwargs, vmap_method)


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function may have an argument of a name."""
    signature = signature_of(function)
    if signature is None:
        return True
    parameters = signature.parameters.values()
    return any(p.name == name or p.kind is p.VAR_KEYWORD for p in parameters)


@overload
def io_callback(
    function: Callable[..., Any],
    result_types: ArrayType | Array,
    *args: Any,
    ordered: bool = True,
    **kwargs: Any,
) -> Array: ...
@overload
def io_callback(
    function: Callable[..., Any],
    result_types: tuple[ArrayType | Array, ...],
    *args: Any,
    ordered: bool = True,
    **kwargs: Any,
) -> tuple[Array, ...]: ...
@overload
def io_callback(
    function: Callable[..., Any],
    result_types: list[ArrayType | Array],
    *args: Any,
    ordered: bool = True,
    **kwargs: Any,
) -> list[Array]: ...
@overload
def io_callback(
    function: Callable[..., Any],
    result_types: dict[str, ArrayType | Array],
    *args: Any,
    ordered: bool = True,
    **kwargs: Any,
) -> dict[str, Array]: ...
@overload
def io_callback(
    function: Callable[..., Any],
    result_types: None,
    *args: Any,
    ordered: bool = True,
    **kwargs: Any,
) -> None: ...
@overload
def io_callback(
    function: Callable[..., Any],
    result_types: Any,
    *args: Any,
    ordered: bool = True,
    **kwargs: Any,
) -> Any: ...
@boundary
def io_callback(
    function: Callable[..., Any],
    result_types: Any,
    *args: Any,
    ordered: bool = True,
    **kwargs: Any,
) -> Any:
    """Like `pure_callback`, for a function with side effects: it is called exactly when
    the program comes by, in the program's order, even if its result is not used. Under
    `vmap` it is called for one example after the other, if the example comes by; a call
    that is the same for all of them may be made once.

    Args:
      ordered: says that the order matters; calls are in the program's order anyway.

    >>> import treadle as td
    >>> seen = []
    >>> @td.jit
    ... def f(x):
    ...     td.io_callback(lambda x: seen.append(float(x)), None, x)
    ...     return x
    >>> _ = f(2.0), f(3.0)
    >>> seen
    [2.0, 3.0]
    """
    del ordered
    return _bind(ops.io_callback, function, result_types, args, kwargs, "sequential")


def effects_barrier() -> None:
    """Returns when the effects of this thread's calls have happened: callbacks, prints.

    They have when a call returns, so there is nothing to wait for. It is for programs
    that shall also be right where calls return before they are done.
    """


def effect_on_host(
    function: Callable[..., None], args: Sequence[Any], kwargs: dict[str, Any]
) -> None:
    """Binds a callback that gives nothing, and that differentiation passes by."""
    _bind(ops.debug_callback, function, None, tuple(args), kwargs, "sequential")

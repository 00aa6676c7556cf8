"""Looking at functions without running them: trace, eval_shape, disable_jit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, overload

import numpy as np

from treadle import dtypes, tree
from treadle.api.ambient import Surroundings
from treadle.api.args import (
    Chosen,
    Which,
    argument,
    check_leaf,
    check_results,
    name_of,
    positions,
)
from treadle.api.boundary import boundary
from treadle.arraytype import ArrayType
from treadle.control.ways import explore
from treadle.dims import Dim, Scope, plain
from treadle.errors import at, user_source
from treadle.ir.graph import Graph
from treadle.run.array import Array
from treadle.trace.interpreter import state
from treadle.trace.value import typeof


def ShapeDtype(shape: Sequence[int | str], dtype: Any = float) -> ArrayType:
    """What stands for an array of which only the shape and the dtype matter. For
    `td.jit(dynamic=...)` it may have names for lengths.

    >>> import treadle as td
    >>> td.ShapeDtype((2, 3), "bfloat16"), td.ShapeDtype(("batch", 3))
    (bf16[2,3], f32[batch,3])
    """
    lengths = [_named(n) if isinstance(n, str) else plain(n) for n in shape]
    return ArrayType(tuple(lengths), dtypes.canonical(dtype))


_names = Scope()
_names.close()


@cache
def _named(name: str) -> Any:
    return _names.symbol(name, 2)


def check_lengths(t: ArrayType, where: str) -> ArrayType:
    """
    Raises:
      TypeError: for a `ShapeDtype` that has names for lengths.
    """
    # (Sizes that are open in a trace around this are as good as numbers.)
    if any([type(n) is Dim and n.scope is _names for n in t.shape]):
        raise TypeError(
            f"{where} is a ShapeDtype with names, {t}{at(user_source())}\n"
            "Names are for `td.jit(dynamic=...)`: here each length is a number."
        )
    return t


def type_of_leaf(leaf: Any, where: str) -> ArrayType:
    """The type of an array, a number, or of a type itself.

    Raises:
      TypeError: for what has none, such as a dtype or its name alone.
    """
    if isinstance(leaf, ArrayType):
        return check_lengths(leaf, where)
    if isinstance(leaf, str | type | np.dtype):
        raise TypeError(
            f"{where} is {leaf!r}, and says nothing of a shape{at(user_source())}\n"
            "Give an array like it, or `td.ShapeDtype(shape, dtype)`."
        )
    return typeof(check_leaf(leaf, where))


@boundary
def trace(function: Callable[..., Any], static: Which = ()) -> Callable[..., Graph]:
    """A function that returns the graph of `function` for the given arguments.

    Its inputs are the leaves of the arguments (which may be `ShapeDtype`); arrays that
    `function` closes over are constants in it.

    Args:
      static: arguments, by name or position, that are Python values to the function.

    >>> import treadle as td
    >>> print(td.trace(lambda x: x * 2.0 + 1.0)(td.ShapeDtype((3,))))
    graph <lambda>(a:f32[3]):
      b:f32[3] = mul a 2.0 ...
      c:f32[3] = add b 1.0 ...
      return c
    """

    numbers, names = positions(function, static, "static")

    @boundary
    @wraps(function)
    def trace_function(*args: Any, **kwargs: Any) -> Graph:
        if not numbers and not names:
            return stage_pytrees(function, args, kwargs)[0]
        fixed = {n % len(args) for n in numbers if -len(args) <= n < len(args)}
        moving = [n for n in range(len(args)) if n not in fixed]
        named = {k: kwargs.pop(k) for k in names & kwargs.keys()}
        chosen = Chosen(function, moving, args, named)
        return stage_pytrees(chosen, tuple([args[n] for n in moving]), kwargs)[0]

    return trace_function


def stage_pytrees(
    function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]
) -> tuple[Graph, tree.Structure, tree.Structure]:
    """The closed graph of a function of pytrees; the structures of what goes in (args,
    kwargs) and of what comes out."""
    leaves, form = tree.flatten((args, kwargs))
    name = name_of(function)
    types = [
        type_of_leaf(x, argument(function, path[1:]))
        for path, x in zip(tree.paths(form), leaves, strict=True)
    ]
    out_form: Any = None
    around = Surroundings()

    def flat(*values: Any) -> list[Any]:
        nonlocal out_form
        inner_args, inner_kwargs = form.unflatten(values)
        with around.inside(around.leaves):
            outs, out_form = tree.flatten(function(*inner_args, **inner_kwargs))
        check_results(function, outs, out_form)
        return outs

    graph, _ = explore(flat, types, lambda: out_form, closed=True, name=name)
    return graph, form, out_form


@overload
def eval_shape(
    function: Callable[..., Array], *args: Any, **kwargs: Any
) -> ArrayType: ...
@overload
def eval_shape(
    function: Callable[..., tuple[Array, Array]], *args: Any, **kwargs: Any
) -> tuple[ArrayType, ArrayType]: ...
@overload
def eval_shape(
    function: Callable[..., list[Array]], *args: Any, **kwargs: Any
) -> list[ArrayType]: ...
@overload
def eval_shape(
    function: Callable[..., dict[str, Array]], *args: Any, **kwargs: Any
) -> dict[str, ArrayType]: ...
@overload
def eval_shape(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any: ...
@boundary
def eval_shape(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The shapes and dtypes of a function's result, computed without arithmetic.

    Args:
      args, kwargs: pytrees of arrays or of `ShapeDtype`.

    Returns:
      The result's pytree, with a `ShapeDtype` for each array.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.eval_shape(lambda x: x @ x.T, td.ShapeDtype((1000, 10)))
    f32[1000,1000]
    """
    graph, _, out_form = stage_pytrees(function, args, kwargs)
    return out_form.unflatten([ShapeDtype(t.shape, t.dtype) for t in graph.out_types])


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Runs everything in the block as plain Python, one operation at a time.

    `jit` calls its function; `scan`, `while_loop`, `fori_loop`, `cond` and `remat` are
    Python's own loops and branches, so that print and a debugger see values.

    Args:
      disable: False compiles again, in a block inside of one that does not.

    >>> import treadle as td
    >>> with td.disable_jit():
    ...     y = td.jit(lambda x: x * x)(3.0)
    """
    previous = state.staging_disabled
    state.staging_disabled = bool(disable)
    try:
        yield
    finally:
        state.staging_disabled = previous

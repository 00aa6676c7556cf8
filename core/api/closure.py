"""closure_convert: what a function closes over becomes arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from treadle import tree
from treadle.api.args import (
    as_results,
    check_arguments,
    check_function,
    check_results,
    name_of,
)
from treadle.api.boundary import boundary
from treadle.api.tangents import differentiable, matching
from treadle.control.ways import explore
from treadle.errors import at, user_source
from treadle.ir.walk import call_graph
from treadle.trace.value import Tracer, typeof

R = TypeVar("R")


@boundary
def closure_convert(
    function: Callable[..., R], *example_args: Any
) -> tuple[Callable[..., R], list[Any]]:
    """A function that closes over nothing that is being differentiated or vectorised,
    and the values that it takes instead.

    A function with a derivative of its own (`td.custom_vjp`) must be given all that has
    a derivative as arguments. If one of its arguments is a function, what that closes
    over has to be taken out of it.

    Args:
      function: from pytrees of arrays to a pytree of arrays. It is traced.
      example_args: arguments of the types that it will be called with.

    Returns:
      (converted, values): ``converted(*args, *values)`` is ``function(*args)``.

    Raises:
      TypeError, ValueError: when `converted` is called, for arguments of other types.

    >>> import treadle as td
    >>> def minimum(f, x):
    ...     converted, values = td.closure_convert(f, x)
    ...     return newton(converted, x, *values)
    >>> newton = td.custom_jvp(lambda f, x, *values: x, nondiff_argnums=(0,))
    >>> @newton.defjvp
    ... def _(f, primals, tangents):
    ...     return primals[0], 10.0 * tangents[1]
    >>> td.grad(lambda a: minimum(lambda x: (x - a) ** 2, 3.0))(2.0)
    Array(10., dtype=float32)
    """
    check_function("closure_convert", function)
    leaves, form = tree.flatten(example_args)
    check_arguments(function, leaves, form, skip=0)
    types = [typeof(x) for x in leaves]
    out_form: Any = None

    def flat(*values: Any) -> list[Any]:
        nonlocal out_form
        outs, out_form = tree.flatten(function(*form.unflatten(values)))
        check_results(function, outs, out_form)
        return outs

    name = name_of(function)
    graph, captured = explore(flat, types, lambda: out_form, name=name)
    moves = [isinstance(x, Tracer) and differentiable(x) for x in captured]

    @boundary
    def converted(*args_and_values: Any) -> Any:
        n = len(example_args)
        args, values = args_and_values[:n], args_and_values[n:]
        if len(values) != sum(moves):
            raise TypeError(
                f"{name}, converted, takes {n} arguments and {sum(moves)} values, got "
                f"{len(args_and_values)} in all{at(user_source())}"
            )
        given = matching(f"the arguments of {name}, converted,", form, args)
        for t, x in zip(types, given, strict=True):
            found = typeof(x)
            if found.shape != t.shape or (found.dtype != t.dtype and not found.weak):
                raise TypeError(
                    f"{name} was converted for an argument of type {t}, got {found}"
                    f"{at(user_source())}"
                )
        rest = iter(values)
        closed = [next(rest) if m else x for x, m in zip(captured, moves, strict=True)]
        return out_form.unflatten(as_results(call_graph(graph, [*closed, *given])))

    return converted, [x for x, m in zip(captured, moves, strict=True) if m]

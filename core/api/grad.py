"""Gradients: grad and value_and_grad."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from treadle import dtypes
from treadle.api.argnums import Argnums, Differentiated
from treadle.api.args import check_function, described, name_of
from treadle.api.boundary import boundary
from treadle.api.linear import vjp
from treadle.errors import at, user_source
from treadle.trace.value import typeof

_NOT_SCALAR = (
    "grad takes the gradient of a function with one {kind} scalar result, but {name} "
    "returned {result}{at}\n"
    "Reduce it (`.mean()`, `.sum()`), or use `td.jacrev`; extra results go through "
    "`has_aux=True`{more}."
)
_HOLOMORPHIC = (
    "; for the derivative of a holomorphic\nfunction of complex numbers: "
    "`holomorphic=True`"
)


A = TypeVar("A")
B = TypeVar("B")
R = TypeVar("R")
Aux = TypeVar("Aux")
P = ParamSpec("P")


@overload
def value_and_grad(
    function: Callable[Concatenate[A, P], R],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[A, P], tuple[R, A]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[A, P], tuple[R, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[A, P], tuple[tuple[R, Aux], A]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[A, B, P], R],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[A, B, P], tuple[R, tuple[A, B]]]: ...
@overload
def value_and_grad(
    function: Callable[Concatenate[A, B, P], tuple[R, Aux]],
    argnums: tuple[Literal[0], Literal[1]],
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[A, B, P], tuple[tuple[R, Aux], tuple[A, B]]]: ...
@overload
def value_and_grad(
    function: Callable[P, R],
    argnums: Argnums,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, tuple[R, Any]]: ...
@overload
def value_and_grad(
    function: Callable[P, tuple[R, Aux]],
    argnums: Argnums,
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, tuple[tuple[R, Aux], Any]]: ...
@overload
def value_and_grad(
    function: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, Any]: ...
@boundary
def value_and_grad(
    function: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns `function`'s value and its gradient.

    Args:
      function: returns a real scalar; its arguments are pytrees of arrays (Modules,
        optimizer states, dicts…). Its keyword arguments are not differentiated.
      argnums: the argument, or arguments, to differentiate in.
      has_aux: if True, `function` returns (value, aux).
      holomorphic: if True, arguments and value are complex, and `function` is complex
        differentiable: the gradient is its derivative. Otherwise the gradient of a real
        value in z = x + iy is ``df/dx - i df/dy``.
      allow_int: if True, an argument may be without any derivative (integers, a frozen
        model): its gradient is None.

    Returns:
      A function returning (value, gradient), or ((value, aux), gradient). The gradient
      has the structure of the argument (a tuple of them, if `argnums` is a sequence);
      leaves that can't be differentiated (integers, keys, state cells) are None in it.

    Raises:
      TypeError: when called, if the value is not a real scalar, or if there is nothing
        to differentiate: arguments are integers, or all in them is frozen.

    >>> import treadle as td
    >>> td.value_and_grad(lambda x: x**2)(3.0)
    (Array(9., dtype=float32), Array(6., dtype=float32))
    >>> td.value_and_grad(lambda z: z**2, holomorphic=True)(1j)
    (Array(-1.+0.j, dtype=complex64), Array(0.+2.j, dtype=complex64))
    """
    check_function("grad", function)
    inputs = Differentiated("grad", function, argnums, holomorphic, allow_int)

    @boundary
    @wraps(function)
    def value_and_grad_function(*args: Any, **kwargs: Any) -> Any:
        partial, chosen = inputs.choose(args, kwargs)
        value, pullback, *aux = vjp(partial, *chosen, has_aux=has_aux)
        _check_scalar(value, function, holomorphic)
        grads = pullback(typeof(value).dtype.type(1))
        grads = grads if inputs.many else grads[0]
        return ((value, *aux) if has_aux else value), grads

    return value_and_grad_function


def _check_scalar(value: Any, function: Any, holomorphic: bool) -> None:
    more = ""
    try:
        t = typeof(value)
        of_kind = dtypes.is_complex if holomorphic else dtypes.is_float
        if t.shape == () and of_kind(t.dtype):
            return
        found = repr(t)
        if dtypes.is_complex(t.dtype) and not holomorphic:
            more = _HOLOMORPHIC
    except TypeError:
        found = described(value)
    raise TypeError(
        _NOT_SCALAR.format(
            kind="complex" if holomorphic else "real",
            name=name_of(function),
            result=found,
            at=at(user_source()),
            more=more,
        )
    )


@overload
def grad(
    function: Callable[Concatenate[A, P], Any],
    argnums: Literal[0] = 0,
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[A, P], A]: ...
@overload
def grad(
    function: Callable[Concatenate[A, P], tuple[Any, Aux]],
    argnums: Literal[0] = 0,
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[A, P], tuple[A, Aux]]: ...
@overload
def grad(
    function: Callable[Concatenate[A, B, P], Any],
    argnums: tuple[Literal[0], Literal[1]],
    has_aux: Literal[False] = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[A, B, P], tuple[A, B]]: ...
@overload
def grad(
    function: Callable[Concatenate[A, B, P], tuple[Any, Aux]],
    argnums: tuple[Literal[0], Literal[1]],
    *,
    has_aux: Literal[True],
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[Concatenate[A, B, P], tuple[tuple[A, B], Aux]]: ...
@overload
def grad(
    function: Callable[P, Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[P, Any]: ...
@boundary
def grad(
    function: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    holomorphic: bool = False,
    allow_int: bool = False,
) -> Callable[..., Any]:
    """A function that returns the gradient of `function`; see `value_and_grad`.

    >>> import treadle as td
    >>> td.grad(lambda x: x**3)(2.0)
    Array(12., dtype=float32)
    """
    both = value_and_grad(function, argnums, has_aux, holomorphic, allow_int)

    @boundary
    @wraps(function)
    def grad_function(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return grad_function

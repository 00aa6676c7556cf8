"""Errors that a program raises when it comes by: error_if, and checkify."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from treadle import dtypes, tree
from treadle.api.args import check_function
from treadle.api.boundary import boundary
from treadle.api.carry import as_array
from treadle.control.checks import error_if as op
from treadle.errors import CheckError, TracerError, at, user_source
from treadle.run.eager import EagerInterpreter
from treadle.trace.interpreter import state
from treadle.trace.value import is_array, typeof

_Tree = TypeVar("_Tree")

_INSIDE = """\
a checkified function was called inside of a transform (jit, grad, vmap…){at}
There, whether a check fails is not known yet. Checkify the transformed function \
instead: `error, out = td.debug.checkify(td.jit(f))(x)`."""


@boundary
def error_if(x: _Tree, pred: Any, message: str) -> _Tree:
    """Raises an error when the program comes by and a condition holds, also in compiled
    programs, under vmap and in branches and loops.

    A program that does not fail runs no Python for it: it reads the condition (and has
    `x` in memory, to show it). Derivatives pass it by.

    Args:
      x: a pytree of arrays; the error shows them.
      pred: a bool, or an array of bools of which none should be True.
      message: what is wrong.

    Returns:
      `x`, as it is. The check happens whether or not that is used.

    Raises:
      CheckError: a `RuntimeError`, with the user's line and layer, the values of `x`,
        which elements fail, and which example of `vmap`.
      TypeError: if `pred` is not of bools, or `message` no text.

    >>> import treadle as td, treadle.numpy as tnp
    >>> @td.jit
    ... def f(x):
    ...     x = td.debug.error_if(x, x < 0, "x must not be negative")
    ...     return tnp.sqrt(x)
    >>> f(tnp.array([4.0, -1.0]))
    Traceback (most recent call last):
    treadle.errors.CheckError: x must not be negative...
    """
    if not isinstance(message, str):
        raise TypeError(
            f"error_if(x, pred, message): the message must be text, got "
            f"{type(message).__name__}{at(user_source())}"
        )
    if pred is False:
        return x
    if not isinstance(pred, bool) and typeof(pred).dtype != dtypes.bool_:
        raise TypeError(
            f"error_if(x, pred, message): pred must be a bool or an array of bools, "
            f"got {typeof(pred)}{at(user_source())}\nCompare: `x < 0`, `tnp.isnan(x)`."
        )
    leaves, form = tree.flatten(x)
    shown = [
        (f"x{tree.key_name(path) if path else ''}", leaf)
        for path, leaf in zip(tree.paths(form), leaves, strict=True)
        if is_array(leaf)
    ]
    arrays = [as_array(pred), *(leaf for _, leaf in shown)]
    op(
        *arrays,
        message=message,
        names=tuple([name for name, _ in shown]),
        line=str(user_source()),
        levels=((),) * len(arrays),
    )
    return x


@boundary
def checkify(
    function: Callable[..., Any],
) -> Callable[..., tuple[CheckError | None, Any]]:
    """A function that gives the error of a check that failed, rather than raising it.

    Args:
      function: may be jitted, and call `error_if` anywhere.

    Returns:
      A function that takes the same arguments, and gives a pair: the `CheckError` and
      None; or None and the result.

    Raises:
      TracerError: if that function is called inside of a transform.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.jit(lambda x: tnp.log(td.debug.error_if(x, x <= 0, "not positive")))
    >>> error, out = td.debug.checkify(f)(-1.0)
    >>> str(error).split("\\n")[0], out
    ('not positive', None)
    >>> td.debug.checkify(f)(1.0)
    (None, Array(0., dtype=float32))
    """
    check_function("checkify", function)

    @wraps(function)
    @boundary
    def checked(*args: Any, **kwargs: Any) -> tuple[CheckError | None, Any]:
        if not isinstance(state.interpreter, EagerInterpreter):
            raise TracerError(_INSIDE.format(at=at(user_source())))
        try:
            return None, function(*args, **kwargs)
        except CheckError as error:
            return error, None

    return checked

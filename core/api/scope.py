"""Which transform the program is in, for those who keep state outside of arrays."""

from __future__ import annotations

from typing import Any

from treadle.trace.interpreter import state


def current_transform() -> Any:
    """A token of the innermost transform that is running: the same object as long as
    the program is in the same call of it.

    What is made in one transform must not be kept for another: layers compare tokens
    to find a random stream or a state cell that is used inside a scan or vmap, where
    one piece of Python stands for many iterations.

    >>> import treadle as td
    >>> outside = td.current_transform()
    >>> outside is td.current_transform()
    True
    >>> inside = []
    >>> _ = td.grad(lambda x: inside.append(td.current_transform()) or x)(1.0)
    >>> inside[0] is outside
    False
    """
    return state.interpreter

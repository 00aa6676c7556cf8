"""Whether two runs of a function do the same: what they write is compared.

Each run makes its constants, tuples and functions anew, so identity says little.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Any

import numpy as np

from treadle.ir.graph import Atom, Graph, Lit
from treadle.trace.value import Tracer, typeof


def same_atom(a: Atom, b: Atom) -> bool:
    """Whether two runs of a function mean the same by what an equation takes."""
    if a is b:
        return True
    return isinstance(a, Lit) and isinstance(b, Lit) and a.key() == b.key()


def same_array(a: Any, b: Any) -> bool:
    """Whether two concrete arrays are equal to the bit."""
    if isinstance(a, Tracer) or typeof(a) != typeof(b):
        return False
    if getattr(a, "device", None) != getattr(b, "device", None):
        return False
    x, y = np.asarray(a), np.asarray(b)
    return x.tobytes() == y.tobytes()


def same_params(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two runs of a function mean the same by the parameters of an equation."""
    return a is b or (a.keys() == b.keys() and all(_same(a[k], b[k]) for k in a))


def _same(a: Any, b: Any) -> bool:
    """Whether two runs of a function mean the same by a parameter. They make functions
    anew (rules of custom derivatives, callbacks): of these the code counts."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    code = getattr(a, "__code__", None)
    if code is not None:
        return isinstance(code, CodeType) and code is b.__code__
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, Graph):
        return _same_graph(a, b)
    if isinstance(a, BaseException):
        return _same(a.args, b.args) and same_params(vars(a), vars(b))
    if isinstance(a, np.ndarray | np.generic):
        return same_array(a, b)
    if isinstance(a, float) and a != a:
        return b != b
    if not hasattr(a, "__dict__"):
        return bool(a == b)
    return a == b or same_params(vars(a), vars(b))


def _same_graph(a: Graph, b: Graph) -> bool:
    if a.in_types != b.in_types or len(a.equations) != len(b.equations):
        return False
    names: dict[Atom, Atom] = dict(zip(b.inputs, a.inputs, strict=True))

    def same(xs: Sequence[Atom], ys: Sequence[Atom]) -> bool:
        return len(xs) == len(ys) and all(
            same_atom(x, names.get(y, y)) for x, y in zip(xs, ys, strict=True)
        )

    for x, y in zip(a.equations, b.equations, strict=True):
        if x.op is not y.op or not same(x.inputs, y.inputs):
            return False
        if len(x.outputs) != len(y.outputs) or not same_params(x.params, y.params):
            return False
        names.update(zip(y.outputs, x.outputs, strict=True))
    return same(a.outputs, b.outputs)

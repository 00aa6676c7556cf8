"""Values that passes must not look through."""

from __future__ import annotations

from typing import Any

from treadle import tree
from treadle.lax.operands import array
from treadle.ops import identity


def optimization_barrier(operand: Any, /) -> Any:
    """The same pytree of arrays; what is computed before and behind is not merged,
    moved or simplified across.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.lax.optimization_barrier(tnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    leaves, form = tree.flatten(operand)
    if not leaves:
        return operand
    arrays = [array("optimization_barrier", x) for x in leaves]
    return form.unflatten(identity.optimization_barrier(*arrays))

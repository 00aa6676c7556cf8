"""Functions of whole pytrees that compute: `tree.ravel`, `tree.equal`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from treadle import dtypes, tree
from treadle.api.args import check_leaf, described
from treadle.api.boundary import boundary
from treadle.arraytype import ArrayType
from treadle.errors import at, user_source
from treadle.np.creation import asarray, zeros
from treadle.np.join import concatenate
from treadle.np.logic import allclose, array_equal, logical_and
from treadle.records import record
from treadle.trace.value import is_array, is_traced, typeof


@record(frozen=True)
class Unravel:
    """Makes a pytree of an array with one axis. Equal for trees of equal types.

    Raises:
      TypeError: for an array of another type.
    """

    form: tree.Structure
    types: tuple[ArrayType, ...]
    dtype: np.dtype

    @boundary
    def __call__(self, flat: Any) -> Any:
        wanted = ArrayType((sum([t.size for t in self.types]),), self.dtype)
        given = typeof(flat)
        if (given.shape, given.dtype) != (wanted.shape, wanted.dtype):
            raise TypeError(
                f"unravel takes an array of type {wanted}, got {described(flat)}"
                f"{at(user_source())}"
            )
        values, leaves, start = asarray(flat), [], 0
        for t in self.types:
            part = values[start : start + t.size]
            leaves.append(part.reshape(t.shape).astype(t.dtype))
            start += t.size
        return self.form.unflatten(leaves)


@boundary
def ravel(values: Any) -> tuple[Any, Callable[[Any], Any]]:
    """See `treadle.tree.ravel`."""
    leaves, form = tree.flatten(values)
    for path, leaf in zip(tree.paths(form), leaves, strict=True):
        where = f"tree.ravel: the leaf {tree.key_name(path)}"
        check_leaf(leaf, where, "A flat array is made of arrays and numbers alone.")
    types = tuple(map(typeof, leaves))
    pairs = [(t.dtype, t.weak) for t in types]
    dtype = dtypes.promote(*pairs)[0] if pairs else dtypes.float32
    parts = [asarray(x, dtype).reshape(-1) for x in leaves]
    flat = concatenate(parts) if parts else zeros(0, dtype)
    return flat, Unravel(form, types, dtype)


@boundary
def equal(first: Any, others: Sequence[Any], rtol: float, atol: float) -> Any:
    """See `treadle.tree.equal`."""
    leaves, form = tree.flatten(first)
    found: Any = True
    for other in others:
        more, other_form = tree.flatten(other)
        if other_form != form:
            return False
        for a, b in zip(leaves, more, strict=True):
            same = _same(a, b, rtol, atol)
            if same is False:
                return False
            if same is not True:
                found = same if found is True else logical_and(found, same)
    return found


def _same(a: Any, b: Any, rtol: float, atol: float) -> Any:
    if not is_array(a) or not is_array(b):
        return is_array(a) == is_array(b) and bool(a == b)
    s, t = typeof(a), typeof(b)
    if (s.shape, s.dtype) != (t.shape, t.dtype):
        return False
    inexact = dtypes.is_differentiable(s.dtype)
    same = (
        allclose(a, b, rtol, atol) if inexact and (rtol or atol) else array_equal(a, b)
    )
    # What is known is Python's.
    return same if is_traced(same) else bool(same)

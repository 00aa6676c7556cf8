"""Leaf by leaf: which are trained, in which dtype, and how a transform visits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import dtypes, tree
from treadle.errors import StructureError, at, user_source


def trainable(params: Any) -> list[bool]:
    """For each leaf, whether `grad` gives a gradient for it."""
    leaves, form = tree.flatten(params)
    return [
        not constant and dtypes.is_differentiable(td.typeof(x).dtype)
        for x, constant in zip(leaves, tree.constants(form), strict=True)
    ]


def map_trainable(function: Callable[[Any], Any], params: Any) -> Any:
    """`params` with `function` applied to trainable leaves, and None for others."""
    leaves, form = tree.flatten(params)
    return form.unflatten(
        [
            function(x) if wanted else None
            for x, wanted in zip(leaves, trainable(params), strict=True)
        ]
    )


def zeros_for(params: Any, dtype: Any = None, real: bool = False) -> Any:
    """Zeros for a moment of the gradients: by default in the parameter's dtype, but in
    float32 where that has 16 bits, because decay rates near 1 are lost there."""

    def zeros(x: Any) -> Any:
        t = td.typeof(x)
        own = dtypes.to_real(t.dtype) if real else t.dtype
        return tnp.zeros(t.shape, wide(own) if dtype is None else dtype)

    return map_trainable(zeros, params)


def wide(dtype: np.dtype) -> np.dtype:
    """The dtype in which updates are computed: at least float32."""
    return td.float32 if dtype.itemsize < 4 else dtype


def widen(x: Any) -> Any:
    """An array in the dtype in which updates are computed."""
    return x.astype(td.float32) if x.dtype.itemsize < 4 else x


def square(x: Any) -> Any:
    """``|x|**2``, real."""
    return tnp.real(x * tnp.conj(x)) if dtypes.is_complex(x.dtype) else x * x


@lru_cache(maxsize=1024)
def _positions(form: tree.Structure, whole: tree.Structure) -> tuple[int, ...]:
    """Where the leaves of `form` stand among those of `whole`, which it equals but for
    subtrees that are None in it."""
    found: list[int] = []

    def walk(part: tree.Structure, full: tree.Structure, depth: int, n: int) -> None:
        if part.kind is type(None):
            return
        if part is tree.LEAF and full is tree.LEAF:
            found.append(n)
            return
        same = part.kind is full.kind and part.aux == full.aux
        if not same or len(part.children) != len(full.children):
            at_leaf = tree.paths(form)[len(found)] if part.count else ()
            place = tree.key_name(at_leaf[:depth])
            raise StructureError(f"at {place}: {part} against {full}")
        for a, b in zip(part.children, full.children, strict=True):
            walk(a, b, depth + 1, n)
            n += b.count

    walk(form, whole, 0, 0)
    return tuple(found)


def positions(form: tree.Structure, whole: tree.Structure, what: str) -> Sequence[int]:
    """Where the leaves of gradients stand among those of another tree.

    Raises:
      StructureError: if the gradients have a leaf or a node that the other has not.
    """
    if form == whole:
        return range(form.count)
    try:
        return _positions(form, whole)
    except StructureError as error:
        raise StructureError(
            f"the gradients and {what} have different structures, {error}"
            f"{at(user_source())}\n"
            "Gradients have the structure of the parameters for which `init` made the "
            "state, with None where there is no gradient."
        ) from None


def map_updates(
    function: Callable[..., Any], grads: Any, *states: Any, params: Any = None
) -> tuple[Any, ...]:
    """Carries out one transform on every leaf that has a gradient.

    Args:
      function: from a gradient, its leaf of each of the states, and its parameter (if
        `params` is given) to the update and the new leaves of the states.
      grads: gradients, None where there is none.
      states: trees like the parameters; leaves without gradient keep their value.
      params: the parameters, or None.

    Returns:
      The tree of updates, then the new states.
    """
    leaves, form = tree.flatten(grads)
    flat = [tree.flatten(s) for s in states]
    places = [positions(form, f, "the optimizer's state") for _, f in flat]
    columns = [[s[i] for i in p] for (s, _), p in zip(flat, places, strict=True)]
    if params is not None:
        values, whole = tree.flatten(params)
        columns.append([values[i] for i in positions(form, whole, "the parameters")])
    rows = [function(*row) for row in zip(leaves, *columns, strict=True)]
    results = [form.unflatten([row[0] for row in rows])]
    for n, ((old, whole), place) in enumerate(zip(flat, places, strict=True), 1):
        new = list(old)
        for i, row in zip(place, rows, strict=True):
            new[i] = row[n] if row[n].dtype == old[i].dtype else row[n].astype(old[i].dtype)
        results.append(whole.unflatten(new))
    return tuple(results)

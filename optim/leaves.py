"""Leaf by leaf: which are trained, in which dtype, and how a transform visits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import dtypes, tree
from treadle.errors import StructureError, at, on_one_line, user_source


def trainable(params: Any) -> list[bool]:
    """For each leaf, whether `grad` gives a gradient for it."""
    leaves, form = tree.flatten(params)
    return [
        not constant and dtypes.is_differentiable(td.typeof(x).dtype)
        for x, constant in zip(leaves, tree.constants(form), strict=True)
    ]


def map_trainable(
    function: Callable[[Any], Any], params: Any, chosen: Sequence[bool] | None = None
) -> Any:
    """`params` with `function` applied to trainable leaves, and None for others.

    chosen: for each leaf, whether it is applied there, instead.
    """
    leaves, form = tree.flatten(params)
    chosen = trainable(params) if chosen is None else chosen
    return form.unflatten(
        [
            function(x) if wanted else None
            for x, wanted in zip(leaves, chosen, strict=True)
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
            fields = part.kind is full.kind and part.aux != full.aux
            statics = f", {part.aux} against {full.aux}" if fields else ""
            raise StructureError(f"at {place}: {part} against {full}{statics}")
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
    function: Callable[..., Any], grads: Any, *states: Any, read: Sequence[Any] = ()
) -> tuple[Any, ...]:
    """Carries out one transform on every leaf that has a gradient.

    Args:
      function: from a gradient, and its leaf of each of the states and of `read`, to
        the update and the new leaves of the states.
      grads: gradients, None where there is none.
      states: trees like the parameters; leaves without gradient keep their value.
      read: more trees like the parameters: they themselves, labels.

    Returns:
      The tree of updates, then the new states.
    """
    leaves, form = tree.flatten(grads)
    flat, columns = [], []
    for number, whole in enumerate((*states, *read)):
        values, own = tree.flatten(whole)
        what = "the state" if number < len(states) else "the parameters"
        places = positions(form, own, what)
        flat.append((values, own, places))
        columns.append([values[i] for i in places])
    with on_one_line():
        rows = [function(*row) for row in zip(leaves, *columns, strict=True)]
    results = [form.unflatten([row[0] for row in rows])]
    for number, (values, own, places) in enumerate(flat[: len(states)], 1):
        new = list(values)
        for i, row in zip(places, rows, strict=True):
            new[i] = settle(values[i], row[number])
        results.append(own.unflatten(new))
    return tuple(results)


def settle(old: Any, new: Any) -> Any:
    """The new value of a leaf, in the dtype that the leaf has.

    Raises:
      ValueError: if it has another shape: the gradient was not the leaf's.
    """
    had = td.typeof(old)
    if new.shape != had.shape:
        raise ValueError(
            f"a leaf of type {had} would become {td.typeof(new)}{at(user_source())}\n"
            "A gradient has the shape of its parameter."
        )
    return new if new.dtype == had.dtype else new.astype(had.dtype)


def spread(prefix: Any, params: Any, what: str) -> Any:
    """What a prefix of the parameters (or a function from them to one) says of each.

    Returns:
      A pytree of the parameters' structure.

    Raises:
      StructureError: if it is not a prefix.
    """
    if tree.all_leaves([prefix]) and callable(prefix):
        prefix = prefix(params)
    values, form = tree.flatten(prefix)
    try:
        parts = tree.flatten_up_to(form, params)
    except StructureError as error:
        raise StructureError(
            f"{what} does not fit the parameters: {error}{at(user_source())}"
        ) from None
    return tree.structure(params).unflatten(
        [
            value
            for value, part in zip(values, parts, strict=True)
            for _ in tree.leaves(part)
        ]
    )

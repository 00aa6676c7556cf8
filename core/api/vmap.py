"""vmap: a function of one example becomes a function of many."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from treadle import tree
from treadle.api.args import check_leaf, name_of
from treadle.errors import at, user_source
from treadle.trace.value import typeof
from treadle.transforms.batch import batch_flat, to_axis


def vmap(
    function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0
) -> Callable[..., Any]:
    """Vectorises a function over an axis of its arguments.

    Args:
      function: from pytrees of arrays to a pytree of arrays, for one example.
      in_axes: which axis of each argument counts examples: an int, None (the argument
        is the same for all), or a tuple with one entry per positional argument; an
        entry may be a pytree prefix of its argument. Keyword arguments map axis 0.
      out_axes: where the examples' axis goes in the results: an int, or a pytree prefix
        of the result. None demands a result that is the same for all.

    Raises:
      ValueError: when called, if the lengths of the axes differ, or nothing is mapped.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.vmap(lambda a, b: a @ b, in_axes=(0, None))(tnp.ones((3, 2)), tnp.ones(2))
    Array([2., 2., 2.], dtype=float32)
    """

    @wraps(function)
    def vmap_function(*args: Any, **kwargs: Any) -> Any:
        leaves, form = tree.flatten((args, kwargs))
        for path, leaf in zip(tree.paths(form), leaves, strict=True):
            check_leaf(leaf, f"argument {tree.key_name(path)} of {name_of(function)}")
        spec = tuple(in_axes) if isinstance(in_axes, list) else in_axes
        axes = _spread(spec, args, "in_axes") + _spread(0, kwargs, "in_axes")
        axes = [_normal(a, typeof(x).ndim) for a, x in zip(axes, leaves, strict=True)]
        size = _size(function, leaves, axes, form)
        out_form: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_form
            inner_args, inner_kwargs = form.unflatten(values)
            out = function(*inner_args, **inner_kwargs)
            out_leaves, out_form = tree.flatten(out)
            return out_leaves

        outs, found = batch_flat(flat, size, leaves, axes)
        result = out_form.unflatten(outs)
        wanted = _spread(out_axes, result, "out_axes")
        return out_form.unflatten(
            [
                _place(function, o, a, w, size)
                for o, a, w in zip(outs, found, wanted, strict=True)
            ]
        )

    return vmap_function


def _place(function: Any, out: Any, axis: int | None, wanted: Any, size: int) -> Any:
    if wanted is None:
        if axis is not None:
            raise ValueError(
                f"out_axes=None, but a result of {name_of(function)} differs between "
                f"examples{at(user_source())}"
            )
        return out
    rank = typeof(out).ndim + (axis is None)
    return to_axis(out, axis, _normal(wanted, rank), size)


def _normal(axis: Any, ndim: int) -> Any:
    if axis is None:
        return None
    if not isinstance(axis, int) or not -ndim <= axis < ndim:
        raise ValueError(
            f"vmap over axis {axis!r} of an array with {ndim} axes{at(user_source())}"
        )
    return axis % ndim


def _is_axis(x: Any) -> bool:
    return x is None or isinstance(x, int)


def _spread(axes: Any, values: Any, what: str) -> list[Any]:
    """One axis per leaf, from a prefix."""
    if _is_axis(axes):
        return [axes] * len(tree.leaves(values))
    entries, form = tree.flatten(axes, is_leaf=_is_axis)
    try:
        parts = tree.flatten_up_to(form, values)
    except ValueError as error:
        raise ValueError(
            f"{what}={axes!r} does not fit the arguments: {error}{at(user_source())}"
        ) from None
    return [
        axis
        for axis, part in zip(entries, parts, strict=True)
        for _ in tree.leaves(part)
    ]


def _size(function: Any, leaves: list, axes: list, form: tree.Structure) -> int:
    sizes = {
        tree.key_name(p): typeof(x).shape[a]
        for p, x, a in zip(tree.paths(form), leaves, axes, strict=True)
        if a is not None
    }
    if not sizes:
        raise ValueError(
            f"vmap of {name_of(function)} maps no argument: every in_axes is None"
            f"{at(user_source())}"
        )
    if len(set(sizes.values())) > 1:
        listing = ", ".join(f"{k}: {n}" for k, n in sizes.items())
        raise ValueError(
            f"vmap of {name_of(function)}: the mapped axes differ in length: {listing}"
            f"{at(user_source())}"
        )
    return next(iter(sizes.values()))

"""vmap: a function of one example becomes a function of many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from treadle import tree
from treadle.api.args import (
    argument,
    as_results,
    check_arguments,
    check_function,
    check_results,
    is_operand,
    name_of,
)
from treadle.api.boundary import boundary
from treadle.api.collection import Additions
from treadle.api.purity import call_pure
from treadle.arraytype import ArrayType
from treadle.control.ways import branching
from treadle.errors import at, user_source
from treadle.trace.axes import MappedAxis
from treadle.trace.value import typeof
from treadle.transforms.batch import batch_flat, example, to_axis

P = ParamSpec("P")
R = TypeVar("R")


@boundary
def vmap(
    function: Callable[P, R],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_name: str | None = None,
    axis_size: int | None = None,
) -> Callable[P, R]:
    """Vectorises a function over an axis of its arguments.

    Args:
      function: from pytrees of arrays to a pytree of arrays, for one example.
      in_axes: which axis of each argument counts examples: an int, None (the argument
        is the same for all, and need be no array), or a tuple with one entry per
        positional argument, a pytree prefix of it. Keyword arguments map axis 0.
      out_axes: where the examples' axis goes in the results: an int, or a pytree prefix
        of the result. None demands a result that is the same for all.
      axis_name: by which the function speaks of the other examples, in `td.psum`,
        `td.all_gather`, `td.axis_index`…
      axis_size: the number of examples. It must be given where no argument is mapped.

    Raises:
      ValueError: when called, if the lengths of the axes differ, or nothing is mapped
        and there is no `axis_size`.
      TypeError: for an `axis_name` that is no string, an `axis_size` that is no count.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.vmap(lambda a, b: a @ b, in_axes=(0, None))(tnp.ones((3, 2)), tnp.ones(2))
    Array([2., 2., 2.], dtype=float32)
    >>> td.vmap(lambda a: a / td.psum(a, "i"), axis_name="i")(tnp.array([1.0, 3.0]))
    Array([0.25, 0.75], dtype=float32)
    """

    check_function("vmap", function)
    _check_axis(axis_name, axis_size)

    @boundary
    @wraps(function)
    def vmap_function(*args: Any, **kwargs: Any) -> Any:
        if added := Additions():
            both = added.returned_by(function)
            mapped = vmap(both, in_axes, (out_axes, 0), axis_name, axis_size)
            return added.taken(lambda: mapped(*args, **kwargs))
        leaves, form = tree.flatten((args, kwargs))
        axes = _in_axes(function, in_axes, args) + _spread(0, kwargs, "in_axes")
        given = _given(leaves, axes)
        check_arguments(function, leaves, form, remedy=_SAME)
        axes = [
            _normal(a, typeof(x), partial(_place_of, function, form, i))
            for i, (a, x) in enumerate(zip(axes, leaves, strict=True))
        ]
        size = _size(function, leaves, axes, form, axis_size)
        out_form: Any = None

        def flat(*values: Any) -> list[Any]:
            nonlocal out_form
            whole = [given.get(i, x) for i, x in enumerate(values)]
            out = call_pure(function, form, whole)
            out_leaves, out_form = tree.flatten(out)
            check_results(function, out_leaves, out_form)
            return out_leaves

        outs, found = branching(
            batch_flat,
            flat,
            [example(typeof(x), a) for x, a in zip(leaves, axes, strict=True)],
            lambda: out_form,
            MappedAxis(axis_name, size),
            leaves,
            axes,
            name=name_of(function),
        )
        result = out_form.unflatten(outs)
        wanted = _spread(out_axes, result, "out_axes")
        placed = [
            _place(function, o, a, w, size)
            for o, a, w in zip(outs, found, wanted, strict=True)
        ]
        return out_form.unflatten(as_results(placed))

    return vmap_function


_SAME = (
    "Say None for it in `in_axes`, or close over it: `lambda x: function(x, value)`."
)


def _given(leaves: list[Any], axes: list[Any]) -> dict[int, Any]:
    """What the function gets as it is: leaves that are the same for all examples and no
    arrays (functions, strings); numbers stand in their places from now on."""
    given = {
        i: x
        for i, (x, a) in enumerate(zip(leaves, axes, strict=True))
        if a is None and not is_operand(x)
    }
    for i in given:
        leaves[i] = 0
    return given


def _check_axis(name: Any, size: Any) -> None:
    if name is not None and not isinstance(name, str):
        raise TypeError(
            f"vmap: axis_name={name!r} is not a string{at(user_source())}\n"
            "One `td.vmap` maps one axis: nest two for two names."
        )
    counts = isinstance(size, int) and not isinstance(size, bool) and size >= 0
    if size is not None and not counts:
        raise TypeError(
            f"vmap: axis_size={size!r} is not a number of examples{at(user_source())}"
        )


def _place(function: Any, out: Any, axis: int | None, wanted: Any, size: int) -> Any:
    if wanted is None:
        if axis is not None:
            raise ValueError(
                f"out_axes=None, but a result of {name_of(function)} differs between "
                f"examples{at(user_source())}"
            )
        return out
    rank = typeof(out).ndim + (axis is None)
    if not isinstance(wanted, int) or not -rank <= wanted < rank:
        raise ValueError(
            f"vmap: out_axes={wanted!r}, but the result of {name_of(function)} has "
            f"{rank} axes with that of the examples{at(user_source())}"
        )
    return to_axis(out, axis, wanted % rank, size)


def _in_axes(function: Any, axes: Any, args: tuple) -> list[Any]:
    """One axis per leaf of the positional arguments."""
    axes = tuple(axes) if isinstance(axes, list) else axes
    if isinstance(axes, tuple) and len(axes) != len(args):
        raise ValueError(
            f"vmap: in_axes={axes!r} has {len(axes)} entries, but {name_of(function)} "
            f"was called with {len(args)} positional arguments{at(user_source())}\n"
            "Give one entry per argument (None: the same for all examples), or one int "
            "for all."
        )
    return _spread(axes, args, "in_axes")


def _place_of(function: Callable[..., Any], form: tree.Structure, leaf: int) -> str:
    """An argument's leaf, by name, for messages."""
    return argument(function, tree.paths(form)[leaf][1:])


def _normal(axis: Any, t: ArrayType, place: Callable[[], str]) -> Any:
    if axis is None:
        return None
    if not isinstance(axis, int):
        raise TypeError(
            f"vmap: in_axes holds {axis!r} for {place()}, not an int or None"
            f"{at(user_source())}"
        )
    if not -t.ndim <= axis < t.ndim:
        raise ValueError(
            f"vmap over axis {axis} of {place()}, of type {t}, which has no such axis"
            f"{at(user_source())}\n"
            "For an argument that is the same for all examples, say None in `in_axes`."
        )
    return axis % t.ndim


_FITS = {"in_axes": "arguments", "out_axes": "result"}


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
            f"vmap: {what}={axes!r} does not fit the {_FITS[what]}: {error}"
            f"{at(user_source())}"
        ) from None
    return [
        axis
        for axis, part in zip(entries, parts, strict=True)
        for _ in tree.leaves(part)
    ]


def _size(
    function: Any,
    leaves: list,
    axes: list,
    form: tree.Structure,
    axis_size: int | None,
) -> int:
    mapped = [(i, a) for i, a in enumerate(axes) if a is not None]
    sizes = {i: typeof(leaves[i]).shape[a] for i, a in mapped}
    if axis_size is not None:
        size = axis_size
    elif sizes:
        size = next(iter(sizes.values()))
    else:
        raise ValueError(
            f"vmap of {name_of(function)} maps no argument: every in_axes is None"
            f"{at(user_source())}\n"
            "Say how many examples there are: `axis_size=`."
        )
    if any([n != size for n in sizes.values()]):
        paths = tree.paths(form)
        rows = [
            f"  axis {a} of {argument(function, paths[i][1:])}: {sizes[i]}"
            for i, a in mapped
        ]
        if axis_size is not None:
            rows.insert(0, f"  axis_size: {axis_size}")
        listing = "\n".join(rows)
        raise ValueError(
            f"vmap of {name_of(function)}: the mapped axes differ in length\n{listing}"
            f"{at(user_source())}\n"
            "For an argument that is the same for all examples, say None in `in_axes`."
        )
    return size

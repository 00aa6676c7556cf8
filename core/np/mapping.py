"""Functions of single elements or vectors, applied all over arrays."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from functools import wraps
from typing import Any, Concatenate, TypeVar

from treadle.api.boundary import boundary
from treadle.api.vmap import vmap
from treadle.dims import one
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.creation import arange
from treadle.np.operands import (
    ArrayLike,
    Shape,
    as_array,
    as_shape,
    common_shape,
    one_axis,
    operand,
)
from treadle.np.shapes import expand_dims, reshape
from treadle.run.array import Array
from treadle.trace.value import typeof

R = TypeVar("R")

_LABELS = r"\(\s*(?:\w+(?:\s*,\s*\w+)*)?\s*\)"
_SIGNATURE = re.compile(rf"\s*{_LABELS}(\s*,\s*{_LABELS})*\s*")

Labels = tuple[str, ...]


@boundary
def vectorize(
    function: Callable[..., Any],
    *,
    excluded: Collection[int | str] = (),
    signature: str | None = None,
) -> Callable[..., Any]:
    """A function of scalars becomes one of arrays, which are broadcast; or, by a
    signature, one of vectors, matrices… becomes one of arrays of these.

    Args:
      excluded: the arguments, by number or name, that stay as they are; those given by
        name always do.
      signature: the axes of the function's own, as ``"(n,m),(m)->(n)"``: axes of one
        name have one length.

    >>> import treadle as td, treadle.numpy as tnp
    >>> norm = tnp.vectorize(lambda v, w: tnp.sum(v * w), signature="(n),(n)->()")
    >>> norm(tnp.ones((3, 2)), tnp.array([1.0, 2.0]))
    Array([3., 3., 3.], dtype=float32)
    """
    wanted = None if signature is None else _parse(signature)

    @boundary
    @wraps(function)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        places = [i for i in range(len(args)) if i not in excluded]
        name = getattr(function, "__name__", "function")
        arrays = [as_array(operand(name, args[i])) for i in places]
        inputs, outputs = wanted or ([()] * len(arrays), None)
        if len(inputs) != len(arrays):
            raise TypeError(
                f"{name} takes {len(inputs)} arrays by its signature {signature!r}, "
                f"got {len(arrays)}{at(user_source())}"
            )
        sizes: dict[str, int] = {}
        leads = [
            _lead(name, x.shape, labels, sizes)
            for x, labels in zip(arrays, inputs, strict=True)
        ]

        def inner(*found: Any) -> Any:
            filled = list(args)
            for i, x in zip(places, found, strict=True):
                filled[i] = x
            out = function(*filled, **kwargs)
            _check_results(name, out, outputs, sizes)
            return out

        return _over(inner, arrays, leads, common_shape(name, leads))

    return vectorized


def _parse(signature: str) -> tuple[list[Labels], list[Labels]]:
    sides = signature.split("->")
    if len(sides) != 2 or not all(map(_SIGNATURE.fullmatch, sides)):
        raise ValueError(
            f"vectorize: {signature!r} is no signature such as '(n,m),(m)->(n)'"
            f"{at(user_source())}"
        )
    found = [re.findall(_LABELS, side) for side in sides]
    left, right = ([tuple(re.findall(r"\w+", x)) for x in side] for side in found)
    return left, right


def _lead(name: str, shape: Shape, labels: Labels, sizes: dict[str, int]) -> Shape:
    """The axes of an argument that are not its function's own."""
    own = len(shape) - len(labels)
    if own < 0:
        raise ValueError(
            f"{name}: an array of shape {shape} for the axes ({','.join(labels)}) of "
            f"its signature{at(user_source())}"
        )
    _check_sizes(name, shape[own:], labels, sizes)
    return shape[:own]


def _check_sizes(
    name: str, shape: Shape, labels: Labels, sizes: dict[str, int]
) -> None:
    for n, label in zip(shape, labels, strict=True):
        known = int(label) if label.isdigit() else sizes.setdefault(label, n)
        if known != n:
            raise ValueError(
                f"{name}: axis {label!r} of its signature has lengths {known} and {n}"
                f"{at(user_source())}"
            )


def _check_results(
    name: str, out: Any, outputs: list[Labels] | None, sizes: dict[str, int]
) -> None:
    if outputs is None:
        return
    results = out if isinstance(out, list | tuple) else [out]
    if len(results) != len(outputs):
        raise ValueError(
            f"{name} returns {len(results)} arrays; its signature says {len(outputs)}"
            f"{at(user_source())}"
        )
    for x, labels in zip(results, outputs, strict=True):
        shape = typeof(x).shape
        if len(shape) != len(labels):
            raise ValueError(
                f"{name} returns an array of shape {shape}; its signature says "
                f"({','.join(labels)}){at(user_source())}"
            )
        _check_sizes(name, shape, labels, sizes)


def _over(
    function: Callable[..., Any], arrays: list[Any], leads: list[Shape], shape: Shape
) -> Any:
    """The function over leading axes that are broadcast to a shape."""
    mapped: list[tuple[int | None, ...]] = []
    has: list[list[bool]] = []
    for lead in leads:
        missing = len(shape) - len(lead)
        has.append(
            [
                k >= missing and (not one(lead[k - missing]) or one(n))
                for k, n in enumerate(shape)
            ]
        )
    arrays = [
        reshape(
            x,
            (*[n for n, h in zip(shape, own, strict=True) if h], *x.shape[len(lead) :]),
        )
        for x, own, lead in zip(arrays, has, leads, strict=True)
    ]
    for k in range(len(shape)):
        mapped.append(tuple(0 if own[k] else None for own in has))
    for axes in reversed(mapped):
        function = vmap(function, in_axes=axes)
    return function(*arrays)


@boundary
def apply_along_axis(
    function: Callable[Concatenate[Array, ...], R],
    axis: int,
    x: ArrayLike,
    *args: Any,
    **kwargs: Any,
) -> R:
    """A function of a vector, applied to each vector along an axis. The axes of its
    result come where the axis was.

    >>> import treadle.numpy as tnp
    >>> tnp.apply_along_axis(tnp.cumsum, 0, tnp.ones((2, 2))).tolist()
    [[1.0, 1.0], [2.0, 2.0]]
    """
    array = as_array(operand("apply_along_axis", x))
    number = one_axis("apply_along_axis", axis, array.ndim)

    def mapped(vector: Any) -> Any:
        return function(vector, *args, **kwargs)

    for k in range(1, array.ndim - number):
        mapped = vmap(mapped, in_axes=k, out_axes=-1)
    for _ in range(number):
        mapped = vmap(mapped)
    return mapped(array)


@boundary
def apply_over_axes(
    function: Callable[[Any, int], Any], x: ArrayLike, axes: int | Sequence[int]
) -> Array:
    """A function of an array and an axis, such as `tnp.sum`, applied for one axis after
    the other; axes that it drops are kept, with length 1."""
    out = as_array(operand("apply_over_axes", x))
    for axis in axes if isinstance(axes, Sequence) else [axes]:
        number = one_axis("apply_over_axes", axis, out.ndim)
        found = as_array(operand("apply_over_axes", function(out, number)))
        if found.ndim == out.ndim - 1:
            found = expand_dims(found, number)
        if found.ndim != out.ndim:
            raise ValueError(
                f"apply_over_axes: the function made {found.type} of {out.type}: it "
                f"may keep the axis or drop it{at(user_source())}"
            )
        out = found
    return out


@boundary
def fromfunction(
    function: Callable[..., Any],
    shape: int | Sequence[int],
    *,
    dtype: DTypeLike = float,
    **kwargs: Any,
) -> Any:
    """The array of a function's values at the indices of each element.

    Args:
      function: of as many scalars as there are axes.
      dtype: of the indices; float32 by default.

    >>> import treadle.numpy as tnp
    >>> tnp.fromfunction(lambda i, j: 10 * i + j, (2, 2), dtype=int).tolist()
    [[0, 1], [10, 11]]
    """
    lengths = as_shape("fromfunction", shape)

    def mapped(*places: Any) -> Any:
        return function(*places, **kwargs)

    for k in reversed(range(len(lengths))):
        axes = tuple([0 if i == k else None for i in range(len(lengths))])
        mapped = vmap(mapped, in_axes=axes)
    return mapped(*[arange(n, dtype=dtype) for n in lengths])

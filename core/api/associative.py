"""associative_scan: all prefixes in logarithmically many steps."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, TypeVar

from treadle import tree
from treadle.api.args import name_of
from treadle.api.boundary import boundary
from treadle.api.carry import flatten_checked
from treadle.errors import at, user_source
from treadle.ops.movement import reshape, reverse, spread
from treadle.ops.shape import concatenate, slice_axis
from treadle.trace.value import typeof

Combine = Callable[[list[Any], list[Any]], list[Any]]


T = TypeVar("T")


@boundary
def associative_scan(
    fn: Callable[[T, T], T],
    elems: T,
    reverse: bool = False,
    axis: int = 0,
) -> T:
    """All partial results of an associative operation: a, a∘b, a∘b∘c…

    The work is done by elementwise steps on halves of the arrays, about two for each
    doubling of the length.

    Args:
      fn: ``(a, b) -> c``, associative; applies to whole arrays at once, row by
        row along `axis`.
      elems: a pytree of arrays, of equal length along `axis`.
      reverse: combine from the last element to the first: ``z, z∘y, z∘y∘x…`` where
        x, y and z come last. The first operand of fn is then what comes later.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.associative_scan(tnp.maximum, tnp.array([1.0, 3.0, 2.0, 5.0]))
    Array([1., 3., 3., 5.], dtype=float32)
    """
    leaves, form = flatten_checked(elems, "associative_scan: elems")
    axes = _check(leaves, form, axis, name_of(fn))

    def combine(a: list[Any], b: list[Any]) -> list[Any]:
        out = fn(form.unflatten(a), form.unflatten(b))
        return tree.flatten_up_to(form, out)

    if reverse:
        leaves = [_flip(x, a) for x, a in zip(leaves, axes, strict=True)]
    found = _prefixes(combine, leaves, axes)
    if reverse:
        found = [_flip(x, a) for x, a in zip(found, axes, strict=True)]
    return form.unflatten(found)


def _check(leaves: list[Any], form: tree.Structure, axis: int, name: str) -> list[int]:
    axes, lengths = [], {}
    for path, x in zip(tree.paths(form), leaves, strict=True):
        t = typeof(x)
        place = "elems" + (tree.key_name(path) if path else "")
        if not -t.ndim <= axis < t.ndim:
            raise ValueError(
                f"associative_scan of {name}: {place} ({t}) has no axis {axis}"
                f"{at(user_source())}"
            )
        axes.append(axis % t.ndim)
        lengths[place] = t.shape[axis]
    if any([n != m for n, m in pairwise(lengths.values())]):
        listing = ", ".join(f"{k}: {n}" for k, n in lengths.items())
        raise ValueError(
            f"associative_scan of {name}: the lengths along axis {axis} differ: "
            f"{listing}{at(user_source())}"
        )
    return axes


def _flip(x: Any, axis: int) -> Any:
    return reverse(x, axes=(axis,))


def _prefixes(combine: Combine, xs: list[Any], axes: list[int]) -> list[Any]:
    n = typeof(xs[0]).shape[axes[0]] if xs else 0
    if n < 2:
        return xs

    def part(values: list[Any], start: int, limit: int, step: int = 1) -> list[Any]:
        return [
            slice_axis(x, a, start, limit, step)
            for x, a in zip(values, axes, strict=True)
        ]

    # The prefixes of odd length end in pairs; those of even length need one more step.
    pairs = combine(part(xs, 0, n - 1, 2), part(xs, 1, n, 2))
    odd = _prefixes(combine, pairs, axes)
    n_odd = n // 2
    even = part(xs, 0, 1)
    if n > 2:
        rest = combine(part(odd, 0, (n - 1) // 2), part(xs, 2, n, 2))
        even = [
            concatenate(a, b, axis=axis)
            for a, b, axis in zip(even, rest, axes, strict=True)
        ]
    return [
        _interleave(e, o, axis, n, n_odd)
        for e, o, axis in zip(even, odd, axes, strict=True)
    ]


def _interleave(even: Any, odd: Any, axis: int, n: int, n_odd: int) -> Any:
    """even[0], odd[0], even[1], odd[1]…"""
    pairs = slice_axis(even, axis, 0, n_odd)
    both = concatenate(
        spread(pairs, axis + 1, 1), spread(odd, axis + 1, 1), axis=axis + 1
    )
    shape = typeof(pairs).shape
    flat = reshape(both, shape=(*shape[:axis], 2 * n_odd, *shape[axis + 1 :]))
    if n == 2 * n_odd:
        return flat
    last = slice_axis(even, axis, n_odd, n_odd + 1)
    return concatenate(flat, last, axis=axis)

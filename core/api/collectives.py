"""Values of the other members of a named axis: psum, all_gather, ppermute…"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, TypeVar

import numpy as np

from treadle import dtypes, tree
from treadle.api.args import as_results
from treadle.api.boundary import boundary
from treadle.api.carry import flatten_checked
from treadle.control import collective as ops
from treadle.control.collective import Over
from treadle.errors import at, user_source
from treadle.ops.arithmetic import add, mul
from treadle.ops.cast import convert
from treadle.ops.compare import select
from treadle.ops.gather import take
from treadle.ops.movement import move_axis, reshape, zeros_like
from treadle.ops.shape import slice_axis
from treadle.run.array import Array
from treadle.trace.axes import axes_in_scope
from treadle.trace.value import typeof

AxisName = str | tuple[str, ...]
T = TypeVar("T")

_UNBOUND = (
    "{what} over axis {name!r}, which is not mapped here{at}\n"
    "{scope}: name the axis where it is mapped, `td.vmap(f, axis_name={name!r})`, and "
    "call this inside of `f`."
)


def _over(what: str, axis_name: Any) -> Over:
    """The axes that are meant.

    Raises:
      NameError: if one is not mapped here; the message has the names that are.
    """
    names = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
    known = axes_in_scope()
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"{what}: an axis is named by a string, or by a tuple of them for "
                f"several; got {axis_name!r}{at(user_source())}"
            )
        if name not in known:
            listing = ", ".join(map(repr, known))
            scope = f"In scope: {listing}" if known else "No named axis is mapped"
            where = at(user_source())
            raise NameError(
                _UNBOUND.format(what=what, name=name, scope=scope, at=where)
            )
    if len(set(names)) != len(names) or not names:
        raise ValueError(
            f"{what}: {axis_name!r} must name at least one axis, and none twice"
            f"{at(user_source())}"
        )
    return tuple([known[name] for name in names])


def _members(over: Over) -> int:
    return math.prod([a.size for a in over])


def _each(what: str, x: Any, function: Callable[[Any], Any]) -> Any:
    """Applies a function to each leaf."""
    leaves, form = flatten_checked(x, f"{what}: x")
    return form.unflatten(as_results([function(leaf) for leaf in leaves]))


def _axis_of(what: str, x: Any, axis: Any, rank: int) -> int:
    if not isinstance(axis, int) or not -rank <= axis < rank:
        raise ValueError(
            f"{what}: axis {axis!r} of an array of type {typeof(x)}: there are {rank} "
            f"places for it{at(user_source())}"
        )
    return axis % rank


# Reductions ---------------------------------------------------------------------------


@boundary
def psum(x: T, axis_name: AxisName) -> T:
    """The sum over the members of a named axis; each of them gets it.

    Its derivative is that of the function of all members at once: what one of them
    gives to all gets the sum of their cotangents.

    Args:
      x: a pytree of arrays. A Python number is multiplied with the number of members,
        and stays one; bools are counted.
      axis_name: the name of an axis that is mapped around this, or several.

    Raises:
      NameError: if no such axis is mapped here.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.vmap(lambda x: td.psum(x, "i"), axis_name="i")(tnp.array([1.0, 2.0, 4.0]))
    Array([7., 7., 7.], dtype=float32)
    """
    over = _over("psum", axis_name)

    def total(leaf: Any) -> Any:
        if isinstance(leaf, bool | int | float | complex):
            return leaf * _members(over)
        if typeof(leaf).dtype == dtypes.bool_:
            leaf = convert(leaf, dtype=dtypes.int32)
        return ops.psum(leaf, over=over)

    leaves, form = flatten_checked(x, "psum: x")
    return form.unflatten([total(leaf) for leaf in leaves])


@boundary
def pmean(x: T, axis_name: AxisName) -> T:
    """The mean over the members of a named axis (see `td.psum`).

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.vmap(lambda x: x - td.pmean(x, "i"), axis_name="i")(tnp.array([1.0, 5.0]))
    Array([-2.,  2.], dtype=float32)
    """
    n = _members(_over("pmean", axis_name))
    return tree.map(lambda total: total / n, psum(x, axis_name))


@boundary
def pmax(x: T, axis_name: AxisName) -> T:
    """The largest value among the members of a named axis (see `td.psum`). Members that
    have it share its derivative.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.vmap(lambda x: td.pmax(x, "i"), axis_name="i")(tnp.array([1, 5, 3]))
    Array([5, 5, 5], dtype=int32)
    """
    over = _over("pmax", axis_name)
    return _each("pmax", x, lambda leaf: ops.pmax(leaf, over=over))


@boundary
def pmin(x: T, axis_name: AxisName) -> T:
    """The smallest value among the members of a named axis (see `td.pmax`).

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.vmap(lambda x: td.pmin(x, "i"), axis_name="i")(tnp.array([4, 5, 3]))
    Array([3, 3, 3], dtype=int32)
    """
    over = _over("pmin", axis_name)
    return _each("pmin", x, lambda leaf: ops.pmin(leaf, over=over))


# Exchange -----------------------------------------------------------------------------


@boundary
def all_gather(x: T, axis_name: AxisName, *, axis: int = 0, tiled: bool = False) -> T:
    """The values of all members of a named axis, side by side; each member gets all.

    Args:
      x: a pytree of arrays.
      axis_name: a mapped axis; of several, the last one varies fastest.
      axis: where their axis goes.
      tiled: put them together along the axis that is there, rather than a new one.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.vmap(lambda x: td.all_gather(x, "i"), axis_name="i")(tnp.array([1, 2]))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    over = _over("all_gather", axis_name)

    def gathered(leaf: Any) -> Any:
        rank = typeof(leaf).ndim + (not tiled)
        place = _axis_of("all_gather", leaf, axis, rank)
        for a in reversed(over):
            leaf = ops.all_gather(leaf, over=(a,), axis=place)
        return _merged(leaf, place, len(over) + tiled)

    return _each("all_gather", x, gathered)


def _merged(x: Any, axis: int, count: int) -> Any:
    """Makes one axis of several that follow each other."""
    if count == 1:
        return x
    shape = typeof(x).shape
    n = math.prod(shape[axis : axis + count])
    return reshape(x, shape=(*shape[:axis], n, *shape[axis + count :]))


def _rows(what: str, x: Any, axis: int, over: Over, tiled: bool) -> Any:
    """An axis, as one for each of the named ones; and, if tiled, one for what each
    member has of it."""
    shape, n = typeof(x).shape, _members(over)
    fits = shape[axis] % n == 0 if tiled else shape[axis] == n
    if not fits:
        wanted = f"be divisible by {n}" if tiled else f"be {n}"
        raise ValueError(
            f"{what} of {typeof(x)}: the length of axis {axis} must {wanted}, the "
            f"number of members of {', '.join(repr(a.name) for a in over)}"
            f"{at(user_source())}"
        )
    rest = (shape[axis] // n,) if tiled else ()
    if len(over) + tiled == 1:
        return x
    sizes = [a.size for a in over]
    return reshape(x, shape=(*shape[:axis], *sizes, *rest, *shape[axis + 1 :]))


@boundary
def psum_scatter(
    x: T, axis_name: AxisName, *, scatter_dimension: int = 0, tiled: bool = False
) -> T:
    """The sum over the members of a named axis, of which each gets its own part:
    member k the row k.

    Args:
      x: a pytree of arrays.
      axis_name: a mapped axis; of several, the last one varies fastest.
      scatter_dimension: the axis with a row for each member. It is gone in the result.
      tiled: the axis has several rows for each member, and stays.

    Raises:
      ValueError: if the axis does not have as many rows.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.vmap(lambda x: td.psum_scatter(x, "i"), axis_name="i")
    >>> f(tnp.array([[1, 2], [30, 40]]))
    Array([31, 42], dtype=int32)
    """
    over = _over("psum_scatter", axis_name)

    def scattered(leaf: Any) -> Any:
        rank = typeof(leaf).ndim
        axis = _axis_of("psum_scatter", leaf, scatter_dimension, rank)
        leaf = _rows("psum_scatter", leaf, axis, over, tiled)
        for a in over:
            leaf = ops.psum_scatter(leaf, over=(a,), axis=axis)
        return leaf

    return _each("psum_scatter", x, scattered)


@boundary
def all_to_all(
    x: T,
    axis_name: AxisName,
    split_axis: int,
    concat_axis: int,
    *,
    tiled: bool = False,
) -> T:
    """Each member of a named axis gives a part of its array to each other one, and puts
    together the parts that it gets.

    Args:
      x: a pytree of arrays.
      axis_name: a mapped axis; of several, the last one varies fastest.
      split_axis: the axis with a row for each member. It is gone in the result.
      concat_axis: where in the result the axis of the parts goes.
      tiled: the split axis has several rows for each member, and stays; the parts are
        put together along an axis that is there.

    Raises:
      ValueError: if the split axis does not have as many rows.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.vmap(lambda x: td.all_to_all(x, "i", 0, 0), axis_name="i")
    >>> f(tnp.array([[1, 2], [30, 40]]))
    Array([[ 1, 30],
           [ 2, 40]], dtype=int32)
    """
    over = _over("all_to_all", axis_name)

    def exchanged(leaf: Any) -> Any:
        rank = typeof(leaf).ndim
        split = _axis_of("all_to_all", leaf, split_axis, rank)
        concat = _axis_of("all_to_all", leaf, concat_axis, rank)
        leaf = _rows("all_to_all", leaf, split, over, tiled)
        for k in range(len(over)):
            leaf = move_axis(leaf, split + k, k)
        for k, a in enumerate(over):
            leaf = ops.all_to_all(leaf, over=(a,), axis=k)
        parts = move_axis(_merged(leaf, 0, len(over)), 0, concat)
        return _merged(parts, concat, 1 + tiled)

    return _each("all_to_all", x, exchanged)


@boundary
def pswapaxes(x: T, axis_name: AxisName, axis: int) -> T:
    """Swaps a named axis with one of the array: `td.all_to_all` with both of its axes.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.vmap(lambda x: td.pswapaxes(x, "i", 0), axis_name="i")
    >>> f(tnp.array([[1, 2], [30, 40]]))
    Array([[ 1, 30],
           [ 2, 40]], dtype=int32)
    """
    return all_to_all(x, axis_name, axis, axis)


@boundary
def ppermute(x: T, axis_name: AxisName, perm: Sequence[tuple[int, int]]) -> T:
    """Sends values between the members of a named axis.

    Args:
      x: a pytree of arrays.
      axis_name: a mapped axis; of several, the last one varies fastest.
      perm: pairs (source, destination). Nobody is twice a source, or twice a
        destination. Members that are no destination get zeros.

    Raises:
      ValueError: if a member stands twice on one side, or does not exist.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.vmap(lambda x: td.ppermute(x, "i", [(0, 1), (1, 2)]), axis_name="i")
    >>> f(tnp.array([5, 6, 7]))
    Array([0, 5, 6], dtype=int32)
    """
    over = _over("ppermute", axis_name)
    pairs = _pairs("ppermute", perm, _members(over))
    return _each("ppermute", x, lambda leaf: _permuted(leaf, over, pairs))


def _pairs(what: str, perm: Any, n: int) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple([(index(a), index(b)) for a, b in perm])
    except (TypeError, ValueError):
        raise TypeError(
            f"{what}: perm is a list of pairs (source, destination) of integers, got "
            f"{perm!r}{at(user_source())}"
        ) from None
    for side, members in (
        ("source", [a for a, _ in pairs]),
        ("destination", [b for _, b in pairs]),
    ):
        wrong = [k for k in members if not 0 <= k < n or members.count(k) > 1]
        if wrong:
            raise ValueError(
                f"{what}: perm={perm!r} has member {wrong[0]} as a {side}, but each of "
                f"the {n} members, 0 to {n - 1}, can be one once{at(user_source())}"
            )
    return pairs


def _permuted(x: Any, over: Over, pairs: tuple[tuple[int, int], ...]) -> Any:
    if len(over) == 1:
        return ops.ppermute(x, over=over, perm=pairs)
    # A permutation over several axes is none over each of them.
    giver = {to: source for source, to in pairs}
    n = _members(over)
    me = _number(over)
    rows = np.array([giver.get(k, 0) for k in range(n)], np.int32)
    for a in reversed(over):
        x = ops.all_gather(x, over=(a,), axis=0)
    row = take(_merged(x, 0, len(over)), take(rows, me, 0), 0)
    takes = take(np.array([k in giver for k in range(n)]), me, 0)
    return select(takes, row, zeros_like(typeof(row)))


@boundary
def pshuffle(x: T, axis_name: AxisName, perm: Sequence[int]) -> T:
    """Gives each member k of a named axis what member ``perm[k]`` has.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.vmap(lambda x: td.pshuffle(x, "i", [2, 0, 1]), axis_name="i")
    >>> f(tnp.array([5, 6, 7]))
    Array([7, 5, 6], dtype=int32)
    """
    over, sources = _over("pshuffle", axis_name), list(perm)
    n = _members(over)
    if sorted(sources) != list(range(n)):
        raise ValueError(
            f"pshuffle: perm={perm!r} is no permutation of the {n} members, 0 to "
            f"{n - 1}{at(user_source())}\n"
            "For one that leaves members out, use `td.ppermute`."
        )
    pairs = tuple([(source, to) for to, source in enumerate(sources)])
    return _each("pshuffle", x, lambda leaf: _permuted(leaf, over, pairs))


@boundary
def pbroadcast(x: T, axis_name: AxisName, source: int) -> T:
    """Gives all members of a named axis what member `source` has.

    >>> import treadle as td, treadle.numpy as tnp
    >>> f = td.vmap(lambda x: td.pbroadcast(x, "i", 1), axis_name="i")
    >>> f(tnp.array([5, 6, 7]))
    Array([6, 6, 6], dtype=int32)
    """
    n = _members(_over("pbroadcast", axis_name))
    if not isinstance(source, int) or not 0 <= source < n:
        raise ValueError(
            f"pbroadcast: source={source!r} is none of the {n} members, 0 to {n - 1}"
            f"{at(user_source())}"
        )

    def row(leaf: Any) -> Any:
        cut = slice_axis(leaf, 0, source, source + 1)
        return reshape(cut, shape=typeof(leaf).shape[1:])

    return tree.map(row, all_gather(x, axis_name))


# Who and how many ---------------------------------------------------------------------


def _number(over: Over) -> Any:
    number = ops.axis_index(over=over[:1])
    for a in over[1:]:
        number = add(mul(number, a.size), ops.axis_index(over=(a,)))
    return number


@boundary
def axis_index(axis_name: AxisName) -> Array:
    """Which member of a named axis this is, from 0: an int32. Of several axes, the last
    one varies fastest.

    >>> import treadle as td
    >>> td.vmap(lambda: td.axis_index("i"), axis_name="i", axis_size=3)()
    Array([0, 1, 2], dtype=int32)
    """
    return _number(_over("axis_index", axis_name))


@boundary
def axis_size(axis_name: AxisName) -> int:
    """How many members a named axis has (several: the product), as Python's int.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.vmap(lambda x: x / td.axis_size("i"), axis_name="i")(tnp.ones(4))
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    return _members(_over("axis_size", axis_name))

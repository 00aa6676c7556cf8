"""Loops of known length: scan and map."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import index
from typing import Any, TypeVar, overload

from treadle import tree
from treadle.api.ambient import Surroundings
from treadle.api.args import CLOSE_OVER, check_function, described, name_of
from treadle.api.boundary import boundary
from treadle.api.carry import (
    PythonCarry,
    as_array,
    flatten_checked,
    of_types,
    restarted,
    trace_body,
)
from treadle.api.collection import Additions
from treadle.api.vmap import vmap
from treadle.arraytype import ArrayType
from treadle.control.unroll import unrolled_scan
from treadle.control.ways import explore
from treadle.dims import is_dim
from treadle.errors import at, user_source
from treadle.ops.movement import reshape, spread, zeros_like
from treadle.ops.shape import concatenate, slice_axis
from treadle.trace.interpreter import state
from treadle.trace.value import typeof

X = TypeVar("X")
Y = TypeVar("Y")
Carry = TypeVar("Carry")


@overload
def scan(
    f: Callable[[Carry, X], tuple[Carry, Y]],
    init: Carry,
    xs: X,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Carry, Y]: ...
@overload
def scan(
    f: Callable[[Carry, Any], tuple[Carry, Y]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Carry, Y]: ...
@boundary
def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
) -> tuple[Any, Any]:
    """A loop that carries values and stacks results; traced once, whatever its length.

    Args:
      f: ``(carry, x) -> (carry, y)``, all pytrees. The carry keeps its structure,
        shapes and dtypes. What `f` closes over is the same in every iteration.
      init: the first carry.
      xs: a pytree of arrays with equally long leading axes; iteration k sees their rows
        k. None if there is nothing to scan; then give `length`.
      length: the number of iterations; may be left out if `xs` says it.
      reverse: go from the last row to the first; results stand at the rows they
        belong to.
      unroll: how many iterations the compiled loop does at once (True: all).

    Returns:
      (carry, ys): the last carry; the y's, stacked along a new leading axis.

    Raises:
      TypeError, StructureError: if the carry changes; the message names the leaf.
      ValueError: if the lengths of `xs` disagree, or `unroll` is no such number.

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.scan(lambda total, x: (total + x, total), 0.0, tnp.array([1.0, 2.0, 3.0]))
    (Array(6., dtype=float32), Array([0., 1., 3.], dtype=float32))
    """
    check_function("scan", f)
    return scanned(f, init, xs, length, reverse, unroll)


def scanned(
    f: Any,
    init: Any,
    xs: Any,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    what: str = "scan",
) -> tuple[Any, Any]:
    """A `scan` that is part of the function `what`: its errors are that one's."""
    if added := Additions():
        return added.taken(
            lambda: _adding_scan(added, f, init, xs, length, reverse, unroll, what)
        )
    x_leaves, x_form = flatten_checked(xs, "scan: xs", CLOSE_OVER)
    length = _length_of(x_leaves, x_form, length, name_of(f))
    at_once = _unrolled(unroll, length)
    if state.staging_disabled:
        return _python_scan(f, init, x_leaves, x_form, length, reverse, what)
    leaves, form = flatten_checked(init, f"{what}: init", CLOSE_OVER)
    y_form: Any = None

    def flat(*values: Any) -> Any:
        nonlocal y_form
        carry = form.unflatten(values[: len(leaves)])
        carry, y = _pair(f(carry, x_form.unflatten(values[len(leaves) :])), f)
        y_leaves, y_form = flatten_checked(y, f"the y that {name_of(f)} returns")
        return carry, y_leaves

    rows = [_row_type(typeof(x)) for x in x_leaves]
    types = [typeof(x) for x in leaves]
    body = trace_body(flat, form, types, rows, what, name_of(f), lambda: y_form)
    outs = unrolled_scan(
        body.graph,
        body.captured,
        body.initial(leaves),
        x_leaves,
        length,
        reverse,
        at_once,
    )
    carry, ys = body.leave(outs)
    return form.unflatten(carry), y_form.unflatten(ys)


def _adding_scan(added: Additions, f: Any, init: Any, *rest: Any) -> Any:
    """A scan that stacks what its body adds to collections, too."""
    run = added.returned_by(f)

    def body(carry: Any, x: Any) -> Any:
        out, entries = run(carry, x)
        carry, y = _pair(out, f)
        return carry, (y, entries)

    carry, (ys, entries) = scanned(wraps(f)(body), init, *rest)
    return (carry, ys), entries


def _pair(out: Any, f: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise TypeError(
            f"scan: {name_of(f)} must return a pair (carry, y), got {described(out)}"
            f"{at(user_source())}\n"
            "If there is nothing to stack, return (carry, None)."
        )
    return out


def _row_type(t: ArrayType) -> ArrayType:
    return ArrayType(t.shape[1:], t.dtype)


def _length_of(
    leaves: list[Any], form: tree.Structure, length: int | None, name: str
) -> int:
    lengths = {}
    for path, x in zip(tree.paths(form), leaves, strict=True):
        place = "xs" + (tree.key_name(path) if path else "")
        t = typeof(x)
        if not t.shape:
            raise ValueError(
                f"scan of {name}: {place} is a scalar ({t}); scanned arrays need a "
                f"leading axis{at(user_source())}\n"
                "Close over it, or carry it, if it is the same in every iteration."
            )
        lengths[place] = t.shape[0]
    if length is not None:
        lengths["length"] = _count(length, name)
    if not lengths:
        raise ValueError(
            f"scan of {name}: nothing says how many iterations{at(user_source())}\n"
            "Give `xs` or `length`."
        )
    count = next(iter(lengths.values()))
    if any([n != count for n in lengths.values()]):
        listing = ", ".join(f"{k}: {n}" for k, n in lengths.items())
        raise ValueError(
            f"scan of {name}: the lengths differ: {listing}{at(user_source())}"
        )
    return count


def _unrolled(unroll: Any, length: int) -> int:
    """How many iterations are done at once."""
    if isinstance(unroll, bool):
        return length if unroll else 1
    if not isinstance(unroll, int) or unroll < 1:
        raise ValueError(
            f"scan: unroll={unroll!r} is neither a bool nor a positive number of "
            f"iterations{at(user_source())}"
        )
    return unroll


def _count(length: Any, name: str) -> int:
    try:
        n = length if is_dim(length) else index(length)
    except TypeError:
        n = -1
    if n < 0:
        raise ValueError(
            f"scan of {name}: the length is a count of iterations known now, "
            f"got {length!r}{at(user_source())}"
        )
    return n


def _python_scan(
    f: Any,
    init: Any,
    leaves: Any,
    form: Any,
    length: int,
    reverse: bool,
    what: str = "scan",
) -> tuple[Any, Any]:
    """What scan means, as a Python loop."""
    carry, around = PythonCarry(init, what, f), Surroundings()
    ys: list[Any] = []
    y_form: Any = None
    for i in reversed(range(length)) if reverse else range(length):
        x = form.unflatten([_row(x, i) for x in leaves])
        new, y = _pair(f(carry.value, x), f)
        y_leaves, y_form = flatten_checked(y, f"the y that {name_of(f)} returns")
        if not carry.update(new):
            # As when it is traced: a number that came out as a float was one at first.
            again = restarted(tree.leaves(init), carry.types)
            around.put(around.leaves)
            return _python_scan(
                f, carry.form.unflatten(again), leaves, form, length, reverse, what
            )
        ys.append([as_array(v) for v in y_leaves])
    if y_form is None:
        return carry.value, _empty_ys(f, carry.value, leaves, form)
    rows = [of_types(y, [typeof(v) for v in ys[0]]) for y in ys]
    columns = zip(*(reversed(rows) if reverse else rows), strict=True)
    stacked = [concatenate(*(spread(v, 0, 1) for v in col), axis=0) for col in columns]
    return carry.value, y_form.unflatten(stacked)


def _row(x: Any, i: int) -> Any:
    return reshape(slice_axis(x, 0, i, i + 1), shape=typeof(x).shape[1:])


def _empty_ys(f: Any, init: Any, leaves: Any, form: Any) -> Any:
    """Only tracing says what would be stacked if there were an iteration."""
    carry, carry_form = tree.flatten(init)
    y_form: Any = None
    around = Surroundings()

    def flat(*values: Any) -> list[Any]:
        nonlocal y_form
        x = form.unflatten(values[len(carry) :])
        with around.inside(around.leaves):
            y = f(carry_form.unflatten(values[: len(carry)]), x)[1]
        y_leaves, y_form = tree.flatten(y)
        return y_leaves

    types = [typeof(x) for x in carry] + [_row_type(typeof(x)) for x in leaves]
    graph, _ = explore(flat, types, lambda: y_form)
    empty = [ArrayType((0, *t.shape), t.dtype) for t in graph.out_types]
    return y_form.unflatten([zeros_like(t) for t in empty])


@overload
def map(f: Callable[[X], Y], xs: X, *, batch_size: int | None = None) -> Y: ...
@overload
def map(f: Callable[[Any], Y], xs: Any, *, batch_size: int | None = None) -> Y: ...
@boundary
def map(f: Callable[[Any], Any], xs: Any, *, batch_size: int | None = None) -> Any:
    """Applies `f` to each row of `xs`, one after the other; the results are stacked.

    Like ``vmap(f)(xs)``, in the memory of one call (or of `batch_size` calls at once).

    >>> import treadle as td, treadle.numpy as tnp
    >>> td.map(lambda x: x * x, tnp.arange(3.0))
    Array([0., 1., 4.], dtype=float32)
    """
    check_function("map", f)
    leaves, form = flatten_checked(xs, "map: xs", CLOSE_OVER)
    length = _length_of(leaves, form, None, name_of(f))
    if batch_size is not None and batch_size < 1:
        raise ValueError(
            f"map: batch_size is a positive number of rows, got {batch_size!r}"
            f"{at(user_source())}"
        )
    if batch_size is None:
        return scan(lambda _, x: (None, f(x)), None, xs)[1]
    whole, batch = length // batch_size, min(batch_size, length)
    main = form.unflatten([_blocks(x, whole, batch) for x in leaves])
    out = tree.map(_joined, scan(lambda _, x: (None, vmap(f)(x)), None, main, whole)[1])
    if whole * batch_size == length:
        return out
    rest = form.unflatten([slice_axis(x, 0, whole * batch, length) for x in leaves])
    return tree.map(lambda a, b: concatenate(a, b, axis=0), out, vmap(f)(rest))


def _blocks(x: Any, whole: int, batch: int) -> Any:
    part = slice_axis(x, 0, 0, whole * batch)
    return reshape(part, shape=(whole, batch, *typeof(x).shape[1:]))


def _joined(y: Any) -> Any:
    shape = typeof(y).shape
    return reshape(y, shape=(shape[0] * shape[1], *shape[2:]))

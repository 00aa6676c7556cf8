"""What values are made of, as the user has spelled them: views of others, constants,
choices between two constants, bands of a matrix.

Axes are counted as those of one array, the weights: a `Seen` says where its value has
them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from treadle.dims import is_dim, is_symbolic, one, same_shape
from treadle.ops.arithmetic import add, div, mul, neg, sub
from treadle.ops.cast import convert
from treadle.ops.compare import (
    bitwise_and,
    bitwise_not,
    eq,
    ge,
    gt,
    le,
    lt,
    ne,
    select,
)
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.ops.shape import iota
from treadle.ops.unary import sqrt
from treadle.run.array import Array
from treadle.trace.op import size_op
from treadle.trace.value import Tracer, typeof

_COMPARED: dict[Any, Callable[[Any, Any], Any]] = {
    eq: operator.eq,
    ne: operator.ne,
    lt: operator.lt,
    le: operator.le,
    gt: operator.gt,
    ge: operator.ge,
}
_COMPUTED = (add, sub, mul, div, neg, sqrt, convert)
_VIEWS = (transpose, reshape, broadcast_in_dim)
REMEMBERED = (
    *(*_COMPARED, *_COMPUTED, *_VIEWS, bitwise_and, bitwise_not),
    *(select, iota, size_op),
)

_Origin = tuple[Any, tuple[Any, ...], dict[str, Any]]
_NOTHING: _Origin = (None, (), {})


class Seen(NamedTuple):
    """A value, and for each of its axes which axis of the weights it runs along; None
    if along none."""

    value: Any
    axes: tuple[Any, ...]

    def of(self, value: Any) -> Seen:
        """Another operand of the same shape (or a scalar) in its place."""
        scalar = not typeof(value).shape
        return Seen(value, () if scalar else self.axes)


def origin(x: Any) -> _Origin:
    """The op that a value was made with, its operands and its params."""
    return getattr(x, "origin", _NOTHING) if isinstance(x, Tracer) else _NOTHING


def above(seen: Seen) -> Seen | None:
    """What a view is a view of; None if the value is no view, or no simple one."""
    op, args, params = origin(seen.value)
    if op is transpose:
        order = params["permutation"]
        axes = tuple([seen.axes[order.index(i)] for i in range(len(order))])
        return Seen(args[0], axes)
    if op is broadcast_in_dim:
        own, shape, dims = typeof(args[0]).shape, params["shape"], params["dims"]
        whole = [same_shape((n,), (shape[d],)) for n, d in zip(own, dims, strict=True)]
        lined = zip(whole, dims, strict=True)
        return Seen(args[0], tuple([seen.axes[d] if w else None for w, d in lined]))
    if op is reshape:
        found = _without_ones(typeof(args[0]).shape, params["shape"])
        if found is not None:
            return Seen(
                args[0], tuple([None if i is None else seen.axes[i] for i in found])
            )
    return None


def _without_ones(own: Any, shape: Any) -> list[int | None] | None:
    """For each axis the axis of a reshaped array; None if more has changed than axes
    of length 1."""
    found: list[int | None] = []
    rest = list(enumerate(shape))
    for n in own:
        while rest and one(rest[0][1]) and not one(n):
            rest.pop(0)
        if rest and same_shape((rest[0][1],), (n,)):
            found.append(rest.pop(0)[0])
        elif one(n):
            found.append(None)
        else:
            return None
    return found if all([one(n) for _, n in rest]) else None


def base(seen: Seen) -> Seen:
    """What all views are views of."""
    found: Seen | None = seen
    while found is not None:
        seen, found = found, above(found)
    return seen


def constant(x: Any, steps: int = 5) -> Any:
    """The one number that all elements are, as a scalar; None if that is not known in a
    few steps."""
    if isinstance(x, int | float | np.generic):
        return x
    if is_symbolic(x):
        return None
    if isinstance(x, np.ndarray):
        return x[()] if x.ndim == 0 else None
    if type(x) is Array:
        return None if x.shape else np.asarray(x)[()]
    op, args, params = origin(x)
    if op in _VIEWS:
        return constant(args[0], steps)
    if op not in _COMPUTED or typeof(x).shape or not steps:
        return None
    found = [constant(a, steps - 1) for a in args]
    if any([c is None for c in found]):
        return None
    return _computed(op, found, params, typeof(x).dtype)


def _computed(op: Any, args: list[Any], params: Any, dtype: np.dtype) -> Any:
    """An op of scalars, whose result has a dtype."""
    own = [np.asarray(a) for a in args]
    if op is not convert:
        own = [a.astype(dtype) for a in own]
    with np.errstate(all="ignore"):
        return np.asarray(op.run(*own, **params)).astype(dtype)[()]


class Choice(NamedTuple):
    """One of two constants, by a condition."""

    condition: Seen
    yes: Any
    no: Any


def choice(seen: Seen) -> Choice | None:
    """How a value is chosen between two constants, if it is. A boolean is chosen by
    itself."""
    seen = base(seen)
    op, args, params = origin(seen.value)
    dtype = typeof(seen.value).dtype
    if op is select:
        yes, no = constant(args[1]), constant(args[2])
        if yes is not None and no is not None:
            inner = choice(seen.of(args[0]))
            return inner and Choice(inner.condition, *_either(inner, yes, no))
    elif op in _COMPUTED or op in _COMPARED:
        found = _of_choice(seen, op, args, params)
        if found is not None:
            return found
    elif op is bitwise_not and dtype == np.bool_:
        inner = choice(seen.of(args[0]))
        return inner and Choice(inner.condition, not inner.yes, not inner.no)
    return Choice(seen, True, False) if dtype == np.bool_ else None


def _either(inner: Choice, yes: Any, no: Any) -> tuple[Any, Any]:
    return (yes if inner.yes else no), (yes if inner.no else no)


def _of_choice(seen: Seen, op: Any, args: Any, params: Any) -> Choice | None:
    """What an op makes of one choice, and constants."""
    known = [constant(a) for a in args]
    open_ = [i for i, c in enumerate(known) if c is None]
    if len(open_) != 1:
        return None
    inner = choice(seen.of(args[open_[0]]))
    if inner is None:
        return None
    dtype = typeof(args[open_[0]]).dtype if op in _COMPARED else None
    outs = []
    for value in (inner.yes, inner.no):
        filled = [value if c is None else c for c in known]
        out = dtype or typeof(seen.value).dtype
        if dtype is not None:
            outs.append(bool(_COMPARED[op](*[np.asarray(a, out) for a in filled])))
        else:
            outs.append(_computed(op, filled, params, out))
    return Choice(inner.condition, *outs)


class Condition(NamedTuple):
    """A boolean, or that it is not so."""

    seen: Seen
    negated: bool = False


def conditions(seen: Seen, negated: bool = False) -> list[Condition]:
    """What must all hold for a boolean to be true (or false, if `negated`)."""
    found = choice(seen)
    if found is None or found.yes == found.no:
        return [Condition(base(seen), negated)]
    negated ^= not found.yes
    seen = found.condition
    op, args, _ = origin(seen.value)
    if op is bitwise_and and not negated:
        return [c for a in args for c in conditions(seen.of(a))]
    return [Condition(seen, negated)]


def band(condition: Condition, row: int, column: int) -> tuple[Any, Any] | None:
    """Of a condition on where an element is: how many columns at most before its row,
    and how many at most after, either None if any. They may depend on sizes."""
    op, args, _ = origin(condition.seen.value)
    if op not in (lt, le, gt, ge):
        return None
    sides = [_place(condition.seen.of(a)) for a in args]
    if None in sides:
        return None
    (a, first), (b, second) = sides  # type: ignore[misc]
    steps = {k: a.get(k, 0) - b.get(k, 0) for k in (*a, *b)}
    gap = second - first
    # Now: steps · places (op) gap, of whole numbers.
    if condition.negated:
        op = {lt: ge, le: gt, gt: le, ge: lt}[op]
    if op in (lt, le):
        steps, gap, op = {k: -n for k, n in steps.items()}, -gap, {lt: gt, le: ge}[op]
    gap = gap + 1 if op is gt else gap
    steps = {k: n for k, n in steps.items() if n}
    if steps == {row: 1, column: -1}:
        return None, -gap
    if steps == {row: -1, column: 1}:
        return -gap, None
    return None


def _place(seen: Seen) -> tuple[dict[int, int], Any] | None:
    """Whole numbers that count places along axes: by how much for each, and from which
    number on."""
    seen = base(seen)
    number = constant(seen.value)
    if number is None and is_symbolic(seen.value):
        number = seen.value
    if number is not None:
        whole = is_dim(number) or number == int(number)
        return ({}, number if is_dim(number) else int(number)) if whole else None
    op, args, params = origin(seen.value)
    if op is size_op:
        return ({}, params["dim"]) if is_dim(params["dim"]) else None
    if op is iota:
        axis = seen.axes[params["axis"]]
        return None if axis is None else ({axis: 1}, 0)
    if op is convert:
        return _place(seen.of(args[0]))
    if op not in (add, sub, neg):
        return None
    parts = [_place(seen.of(a)) for a in args]
    if None in parts:
        return None
    signs = {add: (1, 1), sub: (1, -1), neg: (-1,)}[op]
    steps: dict[int, int] = {}
    total: Any = 0
    for sign, (own, first) in zip(signs, parts, strict=True):  # type: ignore[misc]
        total = total + first if sign > 0 else total - first
        for axis, n in own.items():
            steps[axis] = steps.get(axis, 0) + sign * n
    return steps, total

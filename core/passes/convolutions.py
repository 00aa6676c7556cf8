"""Gives convolutions the forms that kernels have: of images, not of lines; and those
whose groups are single channels with one feature for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from treadle.ir.graph import Atom, Equation
from treadle.ops.conv import conv_general
from treadle.ops.movement import broadcast_in_dim, reshape, transpose
from treadle.ops.reduce import reduce_sum
from treadle.passes.rewrite import Rewriter
from treadle.trace.op import Op

_ROW: dict[str, Any] = {
    "strides": 1,
    "padding": (0, 0),
    "lhs_dilation": 1,
    "rhs_dilation": 1,
    "kernel": 1,
}
"""What a convolution does along an axis that its images don't have."""

_MOST_REPEATED = 8
"""How often channels are repeated, rather than giving the matrix kernel few columns."""


def convolution(rewriter: Rewriter, eq: Equation, x: Atom, y: Atom) -> Atom:
    """A convolution, or its gradient by the filter, of other operands."""
    return _Forms(rewriter, eq).given(x, y, dict(eq.params))


class _Forms:
    """The equations that stand instead of one."""

    def __init__(self, rewriter: Rewriter, eq: Equation) -> None:
        self.rewriter, self.eq = rewriter, eq
        self.is_filter_gradient = eq.op is not conv_general

    def emit(self, op: Op, operands: Sequence[Atom], **params: Any) -> Atom:
        return self.rewriter.emit(op, list(operands), params, self.eq.source)[0]

    def reshaped(self, a: Atom, shape: Sequence[int]) -> Atom:
        return self.emit(reshape, [a], shape=tuple(shape))

    def given(self, x: Atom, y: Atom, params: dict[str, Any]) -> Atom:
        for form in (_of_lines, _repeated, _summed):
            found = form(self, x, y, params)
            if found is not None:
                return found
        return self.emit(self.eq.op, [x, y], **params)


def _of_lines(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """A line is an image of one row."""
    if x.type.ndim != 3:
        return None
    params = {
        name: (_ROW[name], *value) if name in _ROW else value
        for name, value in params.items()
    }
    n, *rest = x.type.shape
    x = f.reshaped(x, (n, 1, *rest))
    n, *rest = y.type.shape
    y = f.reshaped(y, (n, 1, *rest) if f.is_filter_gradient else (1, n, *rest))
    result = f.given(x, y, params)
    shape = list(result.type.shape)
    del shape[0 if f.is_filter_gradient else 1]
    return f.reshaped(result, shape)


def _repeated(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """Of a channel with several features each gets a copy."""
    groups, features = params["feature_groups"], y.type.shape[-1]
    if _times(groups, x.type.shape[-1], features) is None:
        return None
    shape, n = x.type.shape, features // groups
    spread = (*shape, n)
    x = f.emit(broadcast_in_dim, [x], shape=spread, dims=tuple(range(len(shape))))
    x = f.reshaped(x, (*shape[:-1], features))
    return f.given(x, y, params | {"feature_groups": features})


def _summed(f: _Forms, x: Atom, y: Atom, params: dict[str, Any]) -> Atom | None:
    """A feature of several channels is the sum of what each gives."""
    groups, channels = params["feature_groups"], x.type.shape[-1]
    if f.is_filter_gradient or _times(groups, y.type.shape[-1], channels) is None:
        return None
    *kernel, each, _ = y.type.shape
    axes = tuple(range(len(kernel)))
    last = len(kernel), len(kernel) + 1
    y = f.emit(transpose, [y], permutation=(*axes, *reversed(last)))
    y = f.reshaped(y, (*kernel, 1, channels))
    result = f.given(x, y, params | {"feature_groups": channels})
    shape = result.type.shape
    result = f.reshaped(result, (*shape[:-1], groups, each))
    return f.emit(reduce_sum, [result], axes=(len(shape),))


def _times(groups: int, one: int, several: int) -> int | None:
    """How many of `several` there are in a group that has one of the others; None if
    that is not so, or they are no few."""
    if groups == 1 or groups != one:
        return None
    times = several // groups
    return times if 1 < times <= _MOST_REPEATED else None

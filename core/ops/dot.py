"""The general contraction of two arrays: matmul, einsum, tensordot are this."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.dims import hint, is_dim
from treadle.ops.arithmetic import add
from treadle.ops.movement import transpose
from treadle.trace.lowering import Contraction
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.value import typeof

Axes = tuple[int, ...]
Pairs = tuple[Axes, Axes]


def free_axes(ndim: int, contract: Axes, batch: Axes) -> Axes:
    """The axes of an operand that are neither contracted nor batched."""
    return tuple(i for i in range(ndim) if i not in contract and i not in batch)


def _dot_type(
    x: ArrayType, y: ArrayType, *, contract: Pairs, batch: Pairs
) -> ArrayType:
    for a, b in zip(contract[0] + batch[0], contract[1] + batch[1], strict=True):
        if x.shape[a] != y.shape[b]:
            raise ValueError(
                f"can't contract {x} with {y}: axis {a} of the first has length "
                f"{x.shape[a]}, axis {b} of the second has length {y.shape[b]}"
            )
    if x.dtype != y.dtype:
        raise TypeError(f"dot of different dtypes: {x}, {y}")
    if x.dtype == dtypes.bool_:
        raise TypeError("dot is not defined for dtype bool")
    shape = [x.shape[a] for a in batch[0]]
    shape += [x.shape[a] for a in free_axes(x.ndim, contract[0], batch[0])]
    shape += [y.shape[a] for a in free_axes(y.ndim, contract[1], batch[1])]
    return ArrayType(tuple(shape), x.dtype)


def _multiplied(x: Any, y: Any, batch: Pairs) -> Any:
    """Each element of one with each of the other, in every batch."""
    (bx, by), n = batch, len(batch[0])
    x = np.transpose(x, (*bx, *free_axes(x.ndim, (), bx)))
    y = np.transpose(y, (*by, *free_axes(y.ndim, (), by)))
    more = (1,) * (x.ndim - n)
    return np.multiply(
        x.reshape((*x.shape, *(1,) * (y.ndim - n))),
        y.reshape((*y.shape[:n], *more, *y.shape[n:])),
    )


def _dot_run(x: Any, y: Any, *, contract: Pairs, batch: Pairs) -> Any:
    if not contract[0]:  # NumPy would add zeros, and -0.0 be 0.0
        return _multiplied(x, y, batch)
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    names_x, names_y = [next(letters) for _ in x.shape], [""] * y.ndim
    for a, b in zip(contract[0] + batch[0], contract[1] + batch[1], strict=True):
        names_y[b] = names_x[a]
    names_y = [n or next(letters) for n in names_y]
    out = [names_x[a] for a in batch[0]]
    out += [names_x[a] for a in free_axes(x.ndim, contract[0], batch[0])]
    out += [names_y[a] for a in free_axes(y.ndim, contract[1], batch[1])]
    formula = f"{''.join(names_x)},{''.join(names_y)}->{''.join(out)}"
    dtype = x.dtype
    if dtype in (dtypes.float16, dtypes.bfloat16):
        x, y = x.astype(np.float32), y.astype(np.float32)
    out = np.einsum(formula, x, y, optimize=True)
    if all([x.shape[a] == 1 for a in contract[0]]):
        out = out + out.dtype.type(0)  # NumPy gives one term as it is, -0.0 too
    return out.astype(dtype, copy=False)


def _dot_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
    (x, y), (dx, dy) = primals, tangents
    out, total = dot_general(x, y, **params), None
    if not isinstance(dx, Zero):
        total = dot_general(dx, y, **params)
    if not isinstance(dy, Zero):
        term = dot_general(x, dy, **params)
        total = term if total is None else add(total, term)
    return out, Zero(typeof(out)) if total is None else total


def _dot_transpose(
    ct: Any, x: Any, y: Any, *, contract: Pairs, batch: Pairs
) -> list[Any]:
    result: list[Any] = [None, None]
    if isinstance(x, Linear):
        result[0] = _transpose_first(ct, x.type, y, contract, batch, ct_first=True)
    elif isinstance(y, Linear):
        flipped = (contract[1], contract[0]), (batch[1], batch[0])
        result[1] = _transpose_first(ct, y.type, x, *flipped, ct_first=False)
    return result


def _transpose_first(
    ct: Any, x: ArrayType, y: Any, contract: Pairs, batch: Pairs, *, ct_first: bool
) -> Any:
    """The cotangent of an operand `x` that was contracted with a known `y`."""
    y_type = typeof(y)
    x_free = free_axes(x.ndim, contract[0], batch[0])
    y_free = free_axes(y_type.ndim, contract[1], batch[1])
    n_batch = len(batch[0])
    ct_batch = tuple(range(n_batch))
    # In ct the free axes of the first operand come first; and the operand that comes
    # first in this product is chosen so that a plain matmul needs no transposition.
    before = len(x_free) if ct_first else 0
    ct_y = tuple(range(n_batch + before, n_batch + before + len(y_free)))
    y_rest = free_axes(y_type.ndim, y_free, batch[1])
    partner = dict(zip(contract[1], contract[0], strict=True))
    rest = tuple(partner[a] for a in y_rest)
    if ct_first:
        product = dot_general(
            ct, y, contract=(ct_y, y_free), batch=(ct_batch, batch[1])
        )
        axes = (*batch[0], *x_free, *rest)
    else:
        product = dot_general(
            y, ct, contract=(y_free, ct_y), batch=(batch[1], ct_batch)
        )
        axes = (*batch[0], *rest, *x_free)
    order = tuple(int(i) for i in np.argsort(axes))
    if order == tuple(range(len(order))):
        return product
    return transpose(product, permutation=order)


def _dot_batch(
    size: int, args: Any, axes: Any, *, contract: Pairs, batch: Pairs
) -> Any:
    (x, y), (ax, ay) = args, axes

    def shift(dims: Axes, axis: int | None) -> Axes:
        return dims if axis is None else tuple(d + (d >= axis) for d in dims)

    contract = shift(contract[0], ax), shift(contract[1], ay)
    batch = shift(batch[0], ax), shift(batch[1], ay)
    if ax is not None and ay is not None:
        out = dot_general(
            x, y, contract=contract, batch=((ax, *batch[0]), (ay, *batch[1]))
        )
        return out, 0
    out = dot_general(x, y, contract=contract, batch=batch)
    x_free = free_axes(typeof(x).ndim, contract[0], batch[0])
    y_free = free_axes(typeof(y).ndim, contract[1], batch[1])
    if ax is not None:
        return out, len(batch[0]) + x_free.index(ax)
    return out, len(batch[0]) + len(x_free) + y_free.index(ay)


dot_general = Op(
    "dot_general",
    _dot_type,
    _dot_run,
    jvp=_dot_jvp,
    transpose=_dot_transpose,
    batch=_dot_batch,
    lowering=Contraction(),
)
"""Sums products over the axes paired in `contract`, for each index of the axes paired
in `batch`. The result's axes: batch, free axes of the first, free axes of the second.
"""


FEW = 8
"""Fewer columns leave most of a vector empty, but not as rows."""

_LANES = 16
"""Columns that fill a vector, of most machines. Kernels have two at once."""

_TURNED = 4
"""Up to so many rows are met by vectors that are turned, ..."""

_TURNED_SUM = 64
"""... if sums are so long."""

_LONG_SUM = 1024
"""From which on it pays to turn a result."""


def fills_as_rows(rows: int, columns: int, terms: int) -> bool:
    """Whether a product, of so many terms to a sum, is better made of its operands
    exchanged, and turned: it has few columns, or they leave more of the last vectors
    empty than its rows would. Of open sizes only that counts, and as in the trace,
    whether they are few."""
    if hint(columns) < FEW:
        return hint(rows) >= FEW
    if is_dim(rows) or is_dim(columns):
        return False
    long = hint(terms) >= _LONG_SUM
    return long and _width(columns) * rows > 1.15 * _width(rows) * columns


def turns_as_rows(rows: int, columns: int, terms: int) -> bool:
    """The same of a product whose rows lie along its sum: exchanged, it has so few rows
    that vectors of the other operand are turned as they are read."""
    few = 1 < hint(columns) <= _TURNED
    return few and hint(rows) >= _LANES and hint(terms) >= _TURNED_SUM


def _width(columns: int) -> float:
    """The time that a row of so many columns takes, in turns of a vector. One alone
    takes longer, for it shares elements of the other operand with none."""
    whole, rest = divmod(columns, 2 * _LANES)
    return 2 * whole + (0 if rest == 0 else 1.25 if rest <= _LANES else 2)

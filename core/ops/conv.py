"""Convolution over any number of spatial axes, and the gradient of its filter.

Layouts: x is (N, *spatial, C), the filter w (*kernel, C / groups, F), the result
(N, *spatial, F). As everywhere in deep learning the filter is not flipped.

    out[n, p, f] = sum over k, c of x'[n, p * stride + k * rhs_dilation, c] w[k, c, f]

where x' is x with `lhs_dilation - 1` zeros between elements, then padded (negative
padding cuts). The gradient of x is again a convolution, with the flipped filter, the
roles of `strides` and `lhs_dilation` swapped; that of w is `conv_filter_grad`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.ops.arithmetic import add
from treadle.ops.movement import move_axis, reshape, reverse
from treadle.ops.shape import pad
from treadle.trace.lowering import Convolution
from treadle.trace.op import Linear, Op, Zero
from treadle.trace.value import typeof

Ints = tuple[int, ...]


class Window(NamedTuple):
    """The params that both ops share: one entry per spatial axis, and the groups.

    exact: whether each product that the sum above has is to be one: a backend may save
    some of them, at the cost of digits, and of results beside infinite ones.
    """

    strides: Ints
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: Ints
    rhs_dilation: Ints
    feature_groups: int
    exact: bool = False

    def out_spatial(self, spatial: Ints, kernel: Ints) -> list[int]:
        """The spatial shape of the result (0 where the kernel is too long)."""
        out = []
        for n, k, s, (low, high), ld, rd in zip(
            spatial, kernel, *self[:4], strict=True
        ):
            inside = dilated(n, ld) + low + high - dilated(k, rd)
            out.append(inside // s + 1 if inside >= 0 else 0)
        return out

    def backward(self, spatial: Ints, kernel: Ints, out: Ints) -> Window:
        """The window of the convolution that gives the gradient of x."""
        padding = []
        for n, k, o, s, (low, _), ld, rd in zip(
            spatial, kernel, out, *self[:4], strict=True
        ):
            before = dilated(k, rd) - 1 - low
            both = dilated(n, ld) + dilated(k, rd) - 1 - dilated(o, s)
            padding.append((before, both - before))
        return Window(
            self.lhs_dilation,
            tuple(padding),
            self.strides,
            self.rhs_dilation,
            self.feature_groups,
            self.exact,
        )


def dilated(n: int, by: int) -> int:
    """The length of n elements with `by - 1` zeros between neighbours."""
    return (n - 1) * by + 1 if n else 0


def _check(name: str, x: ArrayType, w: ArrayType, window: Window) -> ArrayType:
    rank = x.ndim - 2
    if rank < 0 or w.ndim != x.ndim or any(len(p) != rank for p in window[:4]):
        raise ValueError(
            f"{name}: x must be (N, *spatial, C) and w (*kernel, C / groups, F) with "
            f"one stride, padding and dilation per spatial axis; got {x}, {w}, {window}"
        )
    if x.dtype != w.dtype:
        raise TypeError(f"{name} of different dtypes: {x}, {w}")
    if x.dtype == dtypes.bool_:
        raise TypeError(f"{name} is not defined for dtype bool")
    groups, (channels, features) = window.feature_groups, w.shape[-2:]
    if x.shape[-1] != channels * groups or features % groups:
        raise ValueError(
            f"{name}: x has {x.shape[-1]} channels, the filter is for {channels} in "
            f"each of {groups} groups and gives {features}: {x}, {w}"
        )
    out = window.out_spatial(x.shape[1:-1], w.shape[:-2])
    return ArrayType((x.shape[0], *out, features), x.dtype)


def _columns(x: Any, kernel: Ints, window: Window) -> Any:
    """What each result sees of x: (groups, N * out, C / groups * kernel)."""
    rank, groups = len(kernel), window.feature_groups
    borders = zip(window.padding, window.lhs_dilation, strict=True)
    inner = [(low, high, ld - 1) for (low, high), ld in borders]
    x = pad.run(x, 0, padding=((0, 0, 0), *inner, (0, 0, 0)))
    lengths = tuple(map(dilated, kernel, window.rhs_dilation))
    spatial = tuple(range(1, rank + 1))
    seen = np.lib.stride_tricks.sliding_window_view(x, lengths, spatial)
    steps = [slice(None, None, s) for s in window.strides]
    inside = [slice(None, None, rd) for rd in window.rhs_dilation]
    seen = seen[(slice(None), *steps, slice(None), *inside)]
    lead, channels = seen.shape[: rank + 1], x.shape[-1] // groups
    seen = seen.reshape(*lead, groups, channels, *kernel)
    return np.moveaxis(seen, rank + 1, 0).reshape(
        groups, math.prod(lead), channels * math.prod(kernel)
    )


def _wide(x: Any) -> Any:
    """Narrow floats accumulate in float32, like compiled code."""
    narrow = x.dtype in (dtypes.float16, dtypes.bfloat16)
    return x.astype(np.float32) if narrow else x


def _flipped(w: Any, groups: int) -> Any:
    """The filter of the gradient of x: reversed in space, features and channels swapped
    within each group."""
    *kernel, channels, features = typeof(w).shape
    rank = len(kernel)
    w = reverse(w, axes=tuple(range(rank)))
    w = reshape(w, shape=(*kernel, channels, groups, features // groups))
    w = move_axis(w, rank, rank + 2)
    w = move_axis(w, rank, rank + 1)
    return reshape(w, shape=(*kernel, features // groups, groups * channels))


def _input_grad(ct: Any, w: Any, x: ArrayType, window: Window) -> Any:
    kernel = typeof(w).shape[:-2]
    back = window.backward(x.shape[1:-1], kernel, typeof(ct).shape[1:-1])
    return conv_general(ct, _flipped(w, window.feature_groups), **back._asdict())


def _bilinear_jvp(op: Any) -> Any:
    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        out, total = op(x, y, **params), None
        if not isinstance(dx, Zero):
            total = op(dx, y, **params)
        if not isinstance(dy, Zero):
            term = op(x, dy, **params)
            total = term if total is None else add(total, term)
        return out, Zero(typeof(out)) if total is None else total

    return jvp


# Batch axes become channels, features or examples. ------------------------------------


def _into(x: Any, axis: int, to: int, groups: int = 1) -> Any:
    """Merges a batch axis into axis `to` of the unbatched array, inside each group."""
    x = move_axis(x, axis, to)
    shape = typeof(x).shape
    size, n = shape[to], shape[to + 1]
    x = reshape(x, shape=(*shape[:to], size, groups, n // groups, *shape[to + 2 :]))
    x = move_axis(x, to, to + 1)
    return reshape(x, shape=(*shape[:to], size * n, *shape[to + 2 :]))


def _out_of(x: Any, axis: int, size: int, groups: int = 1) -> Any:
    """The inverse: the batch axis comes out in front."""
    shape = typeof(x).shape
    n = shape[axis] // size
    rest = shape[axis + 1 :]
    x = reshape(x, shape=(*shape[:axis], groups, size, n // groups, *rest))
    x = move_axis(x, axis + 1, 0)
    return reshape(x, shape=(size, *shape[:axis], n, *rest))


# conv_general -------------------------------------------------------------------------


def _conv_run(x: Any, w: Any, **params: Any) -> Any:
    window = Window(**params)
    groups, kernel = window.feature_groups, w.shape[:-2]
    out = _check("conv_general", _type(x), _type(w), window)
    if not math.prod(out.shape):
        return np.zeros(out.shape, x.dtype)
    columns = _columns(_wide(x), kernel, window)
    w = _wide(w).reshape(*kernel, w.shape[-2], groups, -1)
    rank = len(kernel)
    filters = np.transpose(w, (rank + 1, rank, *range(rank), rank + 2))
    product = columns @ filters.reshape(groups, columns.shape[-1], -1)
    return np.moveaxis(product, 0, 1).reshape(out.shape).astype(x.dtype)


def _type(x: Any) -> ArrayType:
    return ArrayType(x.shape, x.dtype)


def _conv_transpose(ct: Any, x: Any, w: Any, **params: Any) -> list[Any]:
    window = Window(**params)
    if isinstance(x, Linear):
        return [_input_grad(ct, w, x.type, window), None]
    kernel = w.type.shape[:-2]
    return [None, conv_filter_grad(x, ct, kernel=kernel, **params)]


def _conv_batch(size: int, args: Any, axes: Any, **params: Any) -> Any:
    (x, w), (x_axis, w_axis) = args, axes
    groups = params["feature_groups"]
    if w_axis is None:
        return _out_of(conv_general(_into(x, x_axis, 0), w, **params), 0, size), 0
    last = typeof(w).ndim - 2
    if x_axis is None:
        out = conv_general(x, _into(w, w_axis, last, groups), **params)
        return _out_of(out, typeof(out).ndim - 1, size, groups), 0
    x = _into(x, x_axis, typeof(x).ndim - 2)
    out = conv_general(
        x, _into(w, w_axis, last), **params | {"feature_groups": groups * size}
    )
    return _out_of(out, typeof(out).ndim - 1, size), 0


conv_general = Op(
    "conv_general",
    lambda x, w, **params: _check("conv_general", x, w, Window(**params)),
    _conv_run,
    transpose=_conv_transpose,
    batch=_conv_batch,
    lowering=Convolution(),
)
conv_general.jvp = conv_general.linearize = _bilinear_jvp(conv_general)

# conv_filter_grad ---------------------------------------------------------------------


def _grad_type(x: ArrayType, ct: ArrayType, *, kernel: Ints, **params: Any) -> Any:
    window = Window(**params)
    channels = x.shape[-1] // window.feature_groups
    w = ArrayType((*kernel, channels, ct.shape[-1]), x.dtype)
    out = _check("conv_filter_grad", x, w, window)
    if (ct.shape, ct.dtype) != (out.shape, out.dtype):
        raise ValueError(f"conv_filter_grad: the cotangent is {ct}, it must be {out}")
    return w


def _grad_run(x: Any, ct: Any, *, kernel: Ints, **params: Any) -> Any:
    window = Window(**params)
    groups, rank = window.feature_groups, len(kernel)
    if not x.size or not ct.size:
        shape = (*kernel, x.shape[-1] // groups, ct.shape[-1])
        return np.zeros(shape, x.dtype)
    columns = _columns(_wide(x), kernel, window)
    rows = _wide(ct).reshape(columns.shape[1], groups, -1)
    product = np.swapaxes(columns, 1, 2) @ np.moveaxis(rows, 1, 0)
    parts = product.reshape(groups, x.shape[-1] // groups, *kernel, rows.shape[-1])
    grad = np.transpose(parts, (*range(2, rank + 2), 1, 0, rank + 2))
    return grad.reshape(*kernel, x.shape[-1] // groups, ct.shape[-1]).astype(x.dtype)


def _grad_transpose(
    ct: Any, x: Any, g: Any, *, kernel: Ints, **params: Any
) -> list[Any]:
    if isinstance(x, Linear):
        return [_input_grad(g, ct, x.type, Window(**params)), None]
    return [None, conv_general(x, ct, **params)]


def _grad_batch(size: int, args: Any, axes: Any, **params: Any) -> Any:
    (x, g), (x_axis, g_axis) = args, axes
    groups, rank = params["feature_groups"], len(params["kernel"])
    if g_axis is None:
        out = conv_filter_grad(_into(x, x_axis, rank + 1, groups), g, **params)
        return _out_of(out, rank, size), 0
    if x_axis is None:
        out = conv_filter_grad(x, _into(g, g_axis, rank + 1, groups), **params)
        return _out_of(out, rank + 1, size, groups), 0
    x, g = _into(x, x_axis, rank + 1), _into(g, g_axis, rank + 1)
    out = conv_filter_grad(x, g, **params | {"feature_groups": groups * size})
    return _out_of(out, rank + 1, size), 0


conv_filter_grad = Op(
    "conv_filter_grad",
    _grad_type,
    _grad_run,
    transpose=_grad_transpose,
    batch=_grad_batch,
    lowering=Convolution(filter_gradient=True),
)
conv_filter_grad.jvp = conv_filter_grad.linearize = _bilinear_jvp(conv_filter_grad)
"""The cotangent of the filter of `conv_general` for a cotangent of its result: takes x
and that cotangent, and the params of the convolution with its `kernel` shape."""

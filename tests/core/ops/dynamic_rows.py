"""Programs of the ops that look at sizes, along axes of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import Arg, Function, bools, floats, ints, positive
from treadle.control.softmax import softmax
from treadle.ops import (
    complex,
    conv,
    cumulative,
    dot,
    dynamic,
    eigen,
    fourier,
    gather,
    identity,
    interleave,
    lu,
    movement,
    orthogonal,
    random_bits,
    reduce,
    scatter,
    shape,
    singular,
    slide,
    sort,
    triangular,
    window,
)
from treadle.trace.op import Op


@dataclass(frozen=True)
class Row:
    """A program of an op.

    guards: why there may be a second trace, if there may.
    batched: whether `vmap` of it is tried too.
    slow: whether it is one of many like it, which run with the slow tests.
    """

    op: Op
    label: str
    function: Function
    args: tuple[Arg, ...]
    sizes: Sequence[tuple[int, ...]] | None = None
    guards: str = ""
    batched: bool = True
    slow: bool = False

    @property
    def name(self) -> str:
        return f"{self.op.name}-{self.label}"


X = floats("n m 3")
MATRIX = floats("n m")
MOVEMENT = [
    Row(
        movement.broadcast_in_dim,
        "new",
        lambda x: movement.broadcast_in_dim(x, shape=(4, *x.shape), dims=(1, 2)),
        (MATRIX,),
    ),
    Row(
        movement.broadcast_in_dim,
        "long",
        lambda x, y: movement.broadcast_in_dim(
            x, shape=(x.shape[0], y.shape[0]), dims=(0, 1)
        ),
        (floats("n 1"), floats("m")),
    ),
    Row(
        movement.reshape,
        "joined",
        lambda x: movement.reshape(x, shape=(x.shape[0] * x.shape[1], 3)),
        (X,),
    ),
    Row(
        movement.reshape,
        "split",
        lambda x: movement.reshape(x, shape=(x.shape[0], 2, 3 * x.shape[1])),
        (floats("n m 6"),),
    ),
    Row(
        movement.transpose,
        "",
        lambda x: movement.transpose(x, permutation=(2, 0, 1)),
        (X,),
    ),
    Row(movement.reverse, "", lambda x: movement.reverse(x, axes=(0, 1)), (X,)),
    Row(
        shape.slice_,
        "half",
        lambda x: shape.slice_axis(x, 0, x.shape[0] // 2, x.shape[0]),
        (X,),
    ),
    Row(
        shape.slice_,
        "steps",
        lambda x: shape.slice_axis(x, 1, 0, x.shape[1], 2),
        (X,),
    ),
    Row(
        shape.pad,
        "",
        lambda x: shape.pad(
            x, np.float32(2), padding=((1, 2, 0), (0, x.shape[0], 1), (-1, 0, 0))
        ),
        (X,),
    ),
    Row(
        shape.concatenate,
        "",
        lambda x, y: shape.concatenate(x, y, x, axis=0),
        (floats("n 4"), floats("m 4")),
    ),
    Row(
        interleave.interleave,
        "",
        lambda x, y: interleave.interleave(x, y, y, x, turns=(2, 2)),
        (MATRIX, MATRIX),
    ),
    Row(
        shape.iota,
        "",
        lambda x: shape.iota(shape=x.shape, axis=1, dtype=np.dtype("int32")),
        (MATRIX,),
    ),
    Row(
        identity.optimization_barrier,
        "",
        lambda x, y: tuple(identity.optimization_barrier(x, y)),
        (MATRIX, floats("n")),
    ),
]

REDUCTIONS = (
    [
        Row(op, f"{axes}", lambda x, op=op, axes=axes: op(x, axes=axes), (draw,))
        for op, draw in (
            (reduce.reduce_sum, X),
            (reduce.reduce_prod, positive("n m 3")),
            (reduce.reduce_max, X),
            (reduce.reduce_min, X),
            (reduce.reduce_and, bools("n m 3")),
            (reduce.reduce_or, bools("n m 3")),
        )
        for axes in ((0,), (1, 2), (0, 1, 2))
    ]
    + [
        Row(softmax, "", lambda x: softmax(x, axes=(0, 2)), (X,)),
        Row(
            slide.slide,
            "",
            lambda x, y: slide.slide(tnp.tile(x, (1, 2)), y, batch_dims=1),
            (floats("m n"), floats("m n")),
        ),
    ]
    + [
        Row(op, f"{axis}", lambda x, op=op, axis=axis: op(x, axis=axis), (X,))
        for op in (reduce.argmax, reduce.argmin)
        for axis in (0, 1)
    ]
)


def _dot(label: str, x: Arg, y: Arg, contract: Any, batch: Any) -> Row:
    params = {"contract": contract, "batch": batch}
    return Row(
        dot.dot_general, label, lambda x, y: dot.dot_general(x, y, **params), (x, y)
    )


NONE = ((), ())
CONTRACTIONS = [
    _dot("rows", floats("n 4"), floats("4 5"), ((1,), (0,)), NONE),
    _dot("inner", floats("3 n"), floats("n 5"), ((1,), (0,)), NONE),
    _dot("both", floats("n m"), floats("m n"), ((1,), (0,)), NONE),
    _dot("vectors", floats("n"), floats("n"), ((0,), (0,)), NONE),
    _dot("outer", floats("n"), floats("m"), NONE, NONE),
    _dot("batched", floats("n m 4"), floats("4 n 5"), ((2,), (0,)), ((0,), (1,))),
    _dot("scores", floats("n m 4"), floats("n m 4"), ((2,), (2,)), ((0,), (0,))),
    *(
        Row(dot.dot_general, *row)
        for row in (
            ("flat", lambda x, y: x.reshape(-1) @ y.reshape(-1), (MATRIX, MATRIX)),
            ("turned", lambda x: x.reshape(-1) @ x.T.reshape(-1), (MATRIX,)),
            ("a column", lambda x, y: x[:, 0] @ y, (MATRIX, floats("n"))),
            ("by index", lambda x, y: x[:, y[0]] @ x[:, y[1]], (MATRIX, ints("2"))),
        )
    ),
]

RUNNING = [
    Row(
        op,
        f"{axis}{'r' if back else ''}",
        lambda x, op=op, axis=axis, back=back: op(x, axis=axis, reverse=back),
        (draw,),
    )
    for op, draw in (
        (cumulative.cumsum, X),
        (cumulative.cumprod, positive("n m 3")),
        (cumulative.cummax, X),
        (cumulative.cummin, X),
        (cumulative.cumlogsumexp, X),
    )
    for axis, back in ((0, False), (1, True))
] + [
    Row(
        cumulative.linear_recurrence,
        f"{axis}",
        lambda a, b, axis=axis: cumulative.linear_recurrence(
            a, b, axis=axis, reverse=bool(axis)
        ),
        (positive("n m 3"), X),
    )
    for axis in (0, 1)
]

SORTING = [
    Row(
        sort.sort,
        "",
        lambda x: tuple(sort.sort(x, axis=0, num_keys=1)),
        (MATRIX,),
    ),
    Row(
        sort.sort,
        "keys",
        lambda i, x: tuple(sort.sort(i, x, axis=1, num_keys=2)),
        (ints("n m"), MATRIX),
    ),
    Row(
        sort.order,
        "",
        lambda x: sort.order(x, count=x.shape[1]),
        (ints("n m", dtype="uint32"),),
    ),
    Row(
        sort.top_k,
        "one",
        lambda x: tuple(sort.top_k(x, k=1)),
        (MATRIX,),
    ),
    Row(
        sort.top_k,
        "three",
        lambda x: tuple(sort.top_k(x, k=3)),
        (MATRIX,),
        ((2, 5), (1, 3), (8, 4), (17, 17)),
        guards="k elements of a longer axis, or of as many",
    ),
]

FIRST = {"axes": (0,), "sizes": (None,), "batch_dims": 0}
BATCHED = {"axes": (1,), "sizes": (None,), "batch_dims": 1}
INDEXING = [
    Row(
        gather.gather,
        f"{label}-{mode}",
        lambda x, i, p={**params, "mode": mode}: gather.gather(x, i, **p),
        args,
    )
    for mode in ("clip", "drop")
    for label, params, args in (
        ("rows", FIRST, (floats("n 4"), ints("m", -1, 4))),
        ("batched", BATCHED, (floats("n m 2"), ints("n 3", -1, 4))),
        (
            "windows",
            {"axes": (1,), "sizes": (2,), "batch_dims": 0},
            (floats("n 5"), ints("m", -1, 4)),
        ),
    )
] + [
    Row(
        op,
        label,
        lambda x, u, i, op=op, p={**params, "mode": "drop"}: op(x, u, i, **p),
        args,
    )
    for op in (
        scatter.scatter_add,
        scatter.scatter_set,
        scatter.scatter_mul,
        scatter.scatter_min,
        scatter.scatter_max,
    )
    for label, params, args in (
        ("rows", FIRST, (floats("n 4"), floats("m 4"), ints("m", -1, 4))),
        ("batched", BATCHED, (floats("n 5"), floats("n m"), ints("n m", -1, 4))),
    )
]


def _row_at(x: Any, i: Any) -> Any:
    sizes = (x.shape[0], 1, x.shape[2])
    zero = np.int32(0)
    return dynamic.dynamic_slice(x, zero, i, zero, sizes=sizes)


DYNAMIC = [
    Row(dynamic.dynamic_slice, "", _row_at, (floats("n 5 m"), ints("", 0, 9))),
    Row(
        dynamic.dynamic_slice,
        "along",
        lambda x, i: dynamic.dynamic_slice_axis(x, i, 1, 0),
        (X, ints("", 0, 9)),
    ),
    Row(
        dynamic.dynamic_update_slice,
        "",
        lambda x, u, i: dynamic.dynamic_update_slice(x, u, i, np.int32(0)),
        (floats("n m"), floats("1 m"), ints("", 0, 9)),
    ),
]

SAME = conv.Window((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
STRIDED = conv.Window((2, 2), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
TRANSPOSED = conv.Window((1, 1), ((2, 2), (2, 2)), (2, 2), (1, 1), 1)


def _conv(label: str, params: conv.Window, w: Arg) -> list[Row]:
    def filter_grad(x: Any, ct: Any) -> Any:
        out = conv.conv_general(x, ct, **params._asdict())
        kernel = ct.shape[:2]
        return conv.conv_filter_grad(x, out, **params._asdict(), kernel=kernel)

    return [
        Row(
            conv.conv_general,
            f"batch-{label}",
            lambda x, w: conv.conv_general(x, w, **params._asdict()),
            (floats("n 5 4 2"), w),
        ),
        Row(
            conv.conv_general,
            f"image-{label}",
            lambda x, w: conv.conv_general(x, w, **params._asdict()),
            (floats("2 n m 2"), w),
        ),
        Row(conv.conv_filter_grad, label, filter_grad, (floats("n m 4 2"), w)),
    ]


def _window(op: Op, label: str, **params: Any) -> Row:
    return Row(op, label, lambda x: op(x, **params), (floats("n m 4 2"),))


POOL = {"window": (3, 2), "strides": (2, 1), "padding": ((1, 1), (0, 1))}


def _pick(x: Any) -> Any:
    return window.window_pick(x, window.reduce_window_argmax(x, **POOL), **POOL)


def _put(x: Any) -> Any:
    places = window.reduce_window_argmax(x, **POOL)
    total = window.reduce_window_sum(x, **POOL)
    return window.window_put(total, places, spatial=x.shape[1:-1], **POOL)


WINDOWS = [
    *_conv("same", SAME, floats("3 3 2 3")),
    *_conv("strided", STRIDED, floats("3 3 2 3")),
    *_conv("transposed", TRANSPOSED, floats("3 3 2 3")),
    *(
        _window(op, "", **POOL)
        for op in (
            window.reduce_window_sum,
            window.reduce_window_max,
            window.reduce_window_min,
            window.reduce_window_argmax,
            window.reduce_window_argmin,
        )
    ),
    Row(window.window_pick, "", _pick, (floats("n m 4 2"),)),
    Row(window.window_put, "", _put, (floats("n m 4 2"),)),
]


def _bits(k: Any) -> Any:
    counts = shape.iota(shape=k.shape, axis=0, dtype=np.dtype("uint32"))
    return random_bits.threefry2x32(
        np.uint32(1), np.uint32(2), counts, counts, word="xor"
    )


RANDOM = [Row(random_bits.threefry2x32, "", _bits, (floats("n"),))]


def _definite(a: Any) -> Any:
    return tnp.matmul(a, tnp.matrix_transpose(a)) + 2 * tnp.eye(a.shape[-1])


def _apart(a: Any) -> Any:
    """A matrix whose values are not close to each other, nor to zero."""
    places = shape.iota(shape=(a.shape[-1],), axis=0, dtype=np.dtype("float32"))
    return 0.1 * a + tnp.eye(a.shape[-1]) * (1 + places)


def _lu_solve(a: Any, b: Any) -> Any:
    a = _apart(a)
    factors, _, order = lu.lu(tnp.matrix_transpose(td.stop_gradient(a)))
    return lu.lu_solve(a, factors, order, b, transposed=False)


FACTORS = [
    Row(
        triangular.cholesky,
        "",
        lambda a: triangular.cholesky(_definite(a)),
        (floats("n n"),),
    ),
    Row(
        triangular.triangular_solve,
        "",
        lambda a, b: triangular.triangular_solve(_apart(a), b, **triangular.LOWER),
        (floats("n n"), floats("n m")),
    ),
    Row(lu.lu, "", lambda a: lu.lu(_apart(a)), (floats("n n"),), slow=True),
    Row(lu.lu_solve, "", _lu_solve, (floats("n n"), floats("n m"))),
    Row(
        orthogonal.qr,
        "",
        lambda a: orthogonal.qr(_apart(a), full=False, vectors=True),
        (floats("n n"),),
        slow=True,
    ),
    Row(
        singular.svd,
        "",
        lambda a: singular.svd(_apart(a), full=False, vectors=True),
        (floats("n n"),),
        slow=True,
    ),
    Row(
        eigen.eigh,
        "",
        lambda a: eigen.eigh(_apart(a), lower=True, vectors=True),
        (floats("n n"),),
        slow=True,
    ),
    Row(
        eigen.eig,
        "",
        lambda a: tnp.abs(eigen.eig(_apart(a), vectors=False, left=False)[0]),
        (floats("n n"),),
        slow=True,
    ),
]


def _fft(x: Any, axis: int, inverse: bool) -> Any:
    z = complex.complex_(x, x * x)
    out = fourier.fft(z, axis=axis, norm="backward", inverse=inverse)
    return complex.real(out) + complex.imag(out)


def _rfft(x: Any, axis: int) -> Any:
    spectrum = fourier.rfft(x, axis=axis, norm="ortho")
    return complex.real(spectrum) + 2 * complex.imag(spectrum)


def _irfft(x: Any) -> Any:
    n = 2 * x.shape[0] - 1
    return fourier.irfft(complex.complex_(x, -x), axis=0, norm="forward", n=n)


TRANSFORMS = [
    Row(fourier.fft, "rows", lambda x: _fft(x, 1, False), (MATRIX,)),
    Row(fourier.fft, "columns", lambda x: _fft(x, 1, True), (X,), slow=True),
    Row(fourier.rfft, "rows", lambda x: _rfft(x, 1), (MATRIX,)),
    Row(fourier.rfft, "columns", lambda x: _rfft(x, 0), (X,), slow=True),
    Row(fourier.irfft, "", _irfft, (MATRIX,)),
]

ROWS = [
    *MOVEMENT,
    *REDUCTIONS,
    *CONTRACTIONS,
    *RUNNING,
    *SORTING,
    *INDEXING,
    *DYNAMIC,
    *WINDOWS,
    *RANDOM,
    *FACTORS,
    *TRANSFORMS,
]

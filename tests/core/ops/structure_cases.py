"""Cases of the ops that move, cut, join and reduce."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.core.ops.cases import (
    Case,
    booleans,
    complexes,
    constant,
    distinct,
    integers,
    normal,
)
from treadle.control.softmax import softmax
from treadle.ops import (
    assemble,
    cumulative,
    dot,
    identity,
    interleave,
    movement,
    reduce,
    shape,
    slide,
    sort,
)
from treadle.ops import complex as complexnumbers

X = normal(2, 3, 4)


def _dot(label: str, x: Any, y: Any, contract: Any, batch: Any) -> Case:
    return Case(
        dot.dot_general,
        lambda x, y: lax.dot_general(x, y, (contract, batch)),
        (x, y),
        {"contract": contract, "batch": batch},
        label=label,
    )


def _pad(label: str, *padding: tuple[int, int, int]) -> Case:
    return Case(
        shape.pad,
        lambda x, v: lax.pad(x, v, padding),
        (X, normal()),
        {"padding": padding},
        label=label,
    )


def _slice(label: str, starts: Any, limits: Any, steps: Any) -> Case:
    return Case(
        shape.slice_,
        lambda x: lax.slice(x, starts, limits, steps),
        (X,),
        {"starts": starts, "limits": limits, "steps": steps},
        label=label,
    )


def _reduce(op: Any, oracle: Any, draw: Any, label: str, **options: Any) -> list[Case]:
    return [
        Case(
            op,
            lambda x, axes=axes: oracle(x, axis=axes),
            (draw,),
            {"axes": axes},
            label=f"{label}{axes}",
            **options,
        )
        for axes in ((1,), (0, 2), (0, 1, 2))
    ]


def _running(op: Any, oracle: Any, draw: Any, label: str = "") -> list[Case]:
    return [
        Case(
            op,
            lambda x, axis=axis, reverse=reverse: oracle(x, axis=axis, reverse=reverse),
            (draw,),
            {"axis": axis, "reverse": reverse},
            label=f"{label}{axis}{'r' if reverse else ''}",
        )
        for axis, reverse in ((0, False), (1, True), (2, False))
    ]


def _recurrence(a: Any, b: Any, reverse: bool) -> Any:
    def step(h: Any, ab: Any) -> Any:
        h = ab[0] * h + ab[1]
        return h, h

    a, b = jnp.moveaxis(a, 1, 0), jnp.moveaxis(b, 1, 0)
    out = lax.scan(step, jnp.zeros_like(b[0]), (a, b), reverse=reverse)[1]
    return jnp.moveaxis(out, 0, 1)


def _with_zeros(rng: np.random.Generator) -> np.ndarray:
    x = rng.normal(size=(2, 3, 4))
    x[0, 1, 2] = x[1, 0, 0] = x[1, 2, 0] = 0
    return x


def _sort(label: str, draws: Any, axis: int, num_keys: int) -> Case:
    return Case(
        sort.sort,
        lambda *xs: lax.sort(xs, axis, num_keys=num_keys),
        draws,
        {"axis": axis, "num_keys": num_keys},
        label=label,
        second=False,
    )


MOVEMENT = [
    Case(
        movement.broadcast_in_dim,
        lambda x: lax.broadcast_in_dim(x, (5, 2, 3, 4), (1, 2, 3)),
        (normal(2, 1, 4),),
        {"shape": (5, 2, 3, 4), "dims": (1, 2, 3)},
    ),
    Case(
        movement.broadcast_in_dim,
        lambda x: lax.broadcast_in_dim(x, (2, 3), ()),
        (normal(),),
        {"shape": (2, 3), "dims": ()},
        label="scalar",
    ),
    Case(movement.reshape, lambda x: x.reshape(4, 6), (X,), {"shape": (4, 6)}),
    Case(
        movement.transpose,
        lambda x: x.transpose(2, 0, 1),
        (X,),
        {"permutation": (2, 0, 1)},
    ),
    Case(movement.reverse, lambda x: lax.rev(x, (0, 2)), (X,), {"axes": (0, 2)}),
    _slice("plain", (0, 1, 0), (2, 3, 2), (1, 1, 1)),
    _slice("steps", (1, 0, 1), (2, 3, 4), (1, 2, 2)),
    _slice("empty", (0, 1, 0), (2, 1, 4), (1, 1, 1)),
    _pad("out", (1, 2, 0), (0, 1, 2), (0, 0, 0)),
    _pad("cut", (-1, 2, 0), (1, -1, 1), (0, -2, 0)),
    Case(
        shape.concatenate,
        lambda *xs: jnp.concatenate(xs, 1),
        (normal(2, 3, 4), normal(2, 1, 4), normal(2, 2, 4)),
        {"axis": 1},
    ),
    Case(
        assemble.assemble,
        lambda *xs: jnp.concatenate([xs[0], jnp.concatenate(xs[1:], 1)], 0),
        (normal(1, 5), normal(2, 2), normal(2, 3)),
        {"shape": (3, 5), "starts": ((0, 0), (1, 0), (1, 2))},
    ),
    Case(
        interleave.interleave,
        lambda *xs: (
            jnp.stack(xs).reshape(2, 2, 2, 3).transpose(2, 0, 3, 1).reshape(4, 6)
        ),
        tuple([normal(2, 3) for _ in range(4)]),
        {"turns": (2, 2)},
    ),
    Case(
        shape.iota,
        lambda: lax.broadcasted_iota(jnp.int32, (3, 4), 1),
        (),
        {"shape": (3, 4), "axis": 1, "dtype": np.dtype("int32")},
    ),
    Case(
        identity.optimization_barrier,
        lambda x, i, y: (x, i, y),
        (X, integers(0, 9, 3), normal(2)),
    ),
]

REDUCTIONS = [
    Case(softmax, lambda x: jax.nn.softmax(x, (0, 2)), (X,), {"axes": (0, 2)}),
    *_reduce(reduce.reduce_sum, jnp.sum, X, ""),
    *_reduce(reduce.reduce_sum, jnp.sum, complexes(2, 3, 4), "complex"),
    *_reduce(reduce.reduce_prod, jnp.prod, _with_zeros, ""),
    *_reduce(reduce.reduce_max, jnp.max, distinct(2, 3, 4), "", second=False),
    *_reduce(reduce.reduce_min, jnp.min, distinct(2, 3, 4), "", second=False),
    *_reduce(
        reduce.reduce_sum,
        lambda x, axis: jnp.sum(x, axis=axis, dtype=x.dtype),
        integers(-9, 9, 2, 3, 4),
        "int32",
    ),
    *_reduce(reduce.reduce_max, jnp.max, integers(-9, 9, 2, 3, 4), "int32"),
    *_reduce(reduce.reduce_and, jnp.all, booleans(2, 3, 4), "bool"),
    *_reduce(reduce.reduce_or, jnp.any, booleans(2, 3, 4), "bool"),
    *(
        Case(
            op,
            lambda x, f=f: f(x, 1, jnp.int32),
            (draw,),
            {"axis": 1},
            label=label,
        )
        for op, f in ((reduce.argmax, lax.argmax), (reduce.argmin, lax.argmin))
        for label, draw in (
            ("", distinct(2, 3, 4)),
            ("ties", constant([[1, 3, 3], [2, 2, 2]])),
        )
    ),
    Case(
        reduce.reduce_max,
        lambda x: jnp.max(x, axis=1),
        (constant([[1, 3, 3], [2, 2, 2]]),),
        {"axes": (1,)},
        label="ties",
        second=False,
    ),
]

CONTRACTIONS = [
    _dot("matrix", normal(3, 4), normal(4, 5), ((1,), (0,)), ((), ())),
    _dot("transposed", normal(4, 3), normal(5, 4), ((0,), (1,)), ((), ())),
    _dot("vectors", normal(4), normal(4), ((0,), (0,)), ((), ())),
    _dot("outer", normal(3), normal(4), ((), ()), ((), ())),
    _dot("batched", normal(2, 3, 4), normal(4, 2, 5), ((2,), (0,)), ((0,), (1,))),
    _dot("two", normal(2, 3, 4), normal(4, 5, 3), ((1, 2), (2, 0)), ((), ())),
    _dot("complex", complexes(3, 4), complexes(4, 2), ((1,), (0,)), ((), ())),
]

RUNNING = [
    *_running(cumulative.cumsum, lax.cumsum, X),
    *_running(cumulative.cumsum, lax.cumsum, integers(-9, 9, 2, 3, 4), "int32"),
    *_running(cumulative.cumprod, lax.cumprod, _with_zeros),
    *_running(cumulative.cummax, lax.cummax, distinct(2, 3, 4)),
    *_running(cumulative.cummin, lax.cummin, distinct(2, 3, 4)),
    *_running(cumulative.cumlogsumexp, lax.cumlogsumexp, X),
    *(
        Case(
            cumulative.linear_recurrence,
            lambda a, b, r=reverse: _recurrence(a, b, r),
            (X, X),
            {"axis": 1, "reverse": reverse},
            label="r" if reverse else "",
        )
        for reverse in (False, True)
    ),
]

SORTING = [
    _sort("", (distinct(3, 5),), 1, 1),
    _sort("axis0", (distinct(5, 3), normal(5, 3)), 0, 1),
    _sort("stable", (integers(0, 3, 9), integers(0, 99, 9)), 0, 1),
    _sort("keys", (integers(0, 3, 9), distinct(9), normal(9)), 0, 2),
    _sort("nan", (constant([2, np.nan, -1, np.inf, -np.inf]),), 0, 1),
    Case(
        sort.order,
        lambda x: jnp.argsort(x, stable=True)[:, :15].astype("int32"),
        (integers(0, 9, 3, 20, dtype="uint32"),),
        {"count": 15},
    ),
    Case(sort.top_k, lambda x: lax.top_k(x, 3), (distinct(2, 5),), {"k": 3}),
    Case(
        sort.top_k,
        lambda x: lax.top_k(x, 3),
        (constant([[1, 3, 3, 1, 0], [2, 2, 2, 2, 2]]),),
        {"k": 3},
        label="ties",
        second=False,
    ),
]


def _parts(z: Any) -> Any:
    return jnp.stack([z.real, z.imag], -1)


MEMORY = [
    Case(
        complexnumbers.words,
        lambda z: lax.bitcast_convert_type(_parts(z), jnp.uint64),
        (lambda rng: complexes(3, 4)(rng).astype("complex64"),),
    ),
    Case(
        complexnumbers.whole,
        lambda x: lax.complex(x[..., 0], x[..., 1]),
        (lambda rng: normal(3, 4, 2)(rng).astype("float32"),),
    ),
]
"""Complex numbers as what their memory holds, and back."""


def _slid(x: Any, y: Any) -> Any:
    """By JAX's convolution of images of one channel, each with a filter of its own."""
    layout = ("NHWC", "HWIO", "NHWC")
    return jax.vmap(
        lambda x, y: lax.conv_general_dilated(
            x[None, ..., None],
            y[..., None, None],
            (1, 1),
            "VALID",
            dimension_numbers=layout,
            preferred_element_type=x.dtype,
        )[0, ..., 0]
    )(x, y)


SLIDING = [
    Case(
        slide.slide,
        lambda x, y: jnp.correlate(x, y, precision="highest"),
        (normal(40), normal(5)),
        {"batch_dims": 0},
        label="lines",
    ),
    Case(
        slide.slide,
        _slid,
        (normal(2, 7, 19), normal(2, 3, 4)),
        {"batch_dims": 1},
        label="images",
    ),
    Case(
        slide.slide,
        lambda x, y: jnp.correlate(x, y, preferred_element_type=x.dtype),
        (integers(-9, 9, 40), integers(-9, 9, 5)),
        {"batch_dims": 0},
        label="int32",
    ),
]

CASES = [*MEMORY, *MOVEMENT, *REDUCTIONS, *CONTRACTIONS, *RUNNING, *SLIDING, *SORTING]

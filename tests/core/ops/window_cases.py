"""Cases of convolution and of window reductions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tests.core.ops.cases import Case, Draw, distinct, normal
from treadle.ops import conv, window
from treadle.ops.conv import Window

_RNG = np.random.default_rng(0)
LAYOUTS = {
    1: ("NWC", "WIO", "NWC"),
    2: ("NHWC", "HWIO", "NHWC"),
    3: ("NDHWC", "DHWIO", "NDHWC"),
}


def _conv(label: str, x: Draw, w: Draw, params: Window) -> list[Case]:
    def oracle(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            w,
            params.strides,
            params.padding,
            params.lhs_dilation,
            params.rhs_dilation,
            dimension_numbers=LAYOUTS[x.ndim - 2],
            feature_group_count=params.feature_groups,
        )

    kernel = _shape(w)
    out = jax.eval_shape(oracle, *(_spec(_shape(d)) for d in (x, w)))

    def filter_grad(x: Any, ct: Any) -> Any:
        (grad,) = jax.linear_transpose(lambda w: oracle(x, w), _spec(kernel, ct))(ct)
        return grad

    return [
        Case(conv.conv_general, oracle, (x, w), params._asdict(), label=label),
        Case(
            conv.conv_filter_grad,
            filter_grad,
            (x, normal(*out.shape)),
            {**params._asdict(), "kernel": kernel[:-2]},
            label=label,
        ),
    ]


def _shape(draw: Draw) -> tuple[int, ...]:
    return draw(_RNG).shape


def _spec(shape: tuple[int, ...], like: Any = None) -> Any:
    return jax.ShapeDtypeStruct(shape, jnp.float32 if like is None else like.dtype)


def _windows(
    label: str, size: Any, strides: Any, padding: Any, x: Draw | None = None
) -> list[Case]:
    params = {"window": size, "strides": strides, "padding": padding}

    def by(init: float, operator: Any) -> Any:
        def oracle(x: Any) -> Any:
            # JAX can't differentiate a reduction with negative padding.
            start = np.asarray(init, x.dtype)[()]
            borders = [(low, high, 0) for low, high in padding]
            x = lax.pad(x, start, ((0, 0, 0), *borders, (0, 0, 0)))
            whole, steps = (1, *size, 1), (1, *strides, 1)
            return lax.reduce_window(x, start, operator, whole, steps, "VALID")

        return oracle

    def place(operator: Any, init: float) -> Any:
        def oracle(x: Any) -> Any:
            n = x[0, ..., 0].size
            number = jnp.arange(n, dtype=jnp.int32).reshape(1, *x.shape[1:-1], 1)
            number = jnp.broadcast_to(number, x.shape)

            def better(a: Any, b: Any) -> Any:
                chosen = operator(a[0], b[0])
                return (
                    jnp.where(chosen, a[0], b[0]),
                    jnp.where(chosen, a[1], b[1]),
                )

            return lax.reduce_window(
                (x, number),
                (jnp.asarray(init, x.dtype), jnp.int32(-1)),
                better,
                (1, *size, 1),
                (1, *strides, 1),
                ((0, 0), *padding, (0, 0)),
            )[1]

        return oracle

    draw = x or distinct(2, 5, 6, 2)

    def pick(x: Any, places: Any) -> Any:
        flat = x.reshape(x.shape[0], -1, x.shape[-1])
        wanted = places.reshape(x.shape[0], -1, x.shape[-1])
        found = jnp.take_along_axis(flat, jnp.maximum(wanted, 0), 1)
        return jnp.where(wanted >= 0, found, 0).reshape(places.shape)

    shape = _shape(draw)
    total = by(0, lax.add)
    places = _places(shape, size, strides, padding)
    ct = normal(*jax.eval_shape(total, _spec(shape)).shape)
    back = {**params, "spatial": shape[1:-1]}
    linear = [
        Case(window.window_pick, pick, (draw, places), params, label=label),
        Case(
            window.window_put,
            lambda ct, p: _transposed(lambda x: pick(x, p), shape, ct),
            (ct, places),
            back,
            label=label,
        ),
        Case(
            window.window_put,
            lambda ct: _transposed(total, shape, ct),
            (ct,),
            back,
            label=f"{label}-everywhere",
        ),
    ]
    ops = [
        (window.reduce_window_sum, by(0, lax.add)),
        (window.reduce_window_max, by(-jnp.inf, lax.max)),
        (window.reduce_window_min, by(jnp.inf, lax.min)),
        (window.reduce_window_argmax, place(lax.gt, -jnp.inf)),
        (window.reduce_window_argmin, place(lax.lt, jnp.inf)),
    ]
    cases = [Case(op, oracle, (draw,), params, label=label) for op, oracle in ops]
    return cases + linear


def _transposed(function: Any, shape: tuple[int, ...], ct: Any) -> Any:
    return jax.linear_transpose(function, _spec(shape, ct))(ct)[0]


def _places(shape: tuple[int, ...], size: Any, strides: Any, padding: Any) -> Draw:
    """A random place in each window of an array; -1 in the padding."""

    def draw(rng: np.random.Generator) -> np.ndarray:
        space = shape[1:-1]
        out = [
            (n + sum(p) - w) // s + 1
            for n, w, s, p in zip(space, size, strides, padding, strict=True)
        ]
        place: Any = 0
        inside: Any = True
        for i, (n, w, s, (low, _)) in enumerate(
            zip(space, size, strides, padding, strict=True)
        ):
            start = np.arange(out[i]) * s - low
            start = start.reshape(-1, *(1,) * (len(out) - i))
            at = start + rng.integers(0, w, size=(shape[0], *out, shape[-1]))
            place = place * n + at
            inside = inside & (at >= 0) & (at < n)
        return np.where(inside, place, -1).astype("int32")

    return draw


CASES = [
    *_conv(
        "plain",
        normal(2, 5, 4, 3),
        normal(3, 2, 3, 4),
        Window((1, 1), ((1, 1), (0, 1)), (1, 1), (1, 1), 1),
    ),
    *_conv(
        "strided",
        normal(2, 6, 5, 2),
        normal(3, 2, 2, 3),
        Window((2, 3), ((1, 2), (0, 0)), (1, 1), (1, 2), 1),
    ),
    *_conv(
        "longer",
        normal(2, 3, 5, 2),
        normal(4, 7, 2, 3),
        Window((1, 2), ((0, 0), (0, 1)), (1, 1), (1, 1), 1),
    ),
    *_conv(
        "transposed",
        normal(1, 3, 4, 2),
        normal(2, 3, 2, 2),
        Window((1, 2), ((1, 1), (2, 1)), (2, 3), (1, 1), 1),
    ),
    *_conv(
        "grouped",
        normal(2, 4, 4, 4),
        normal(2, 3, 2, 6),
        Window((1, 1), ((0, 0), (1, -1)), (1, 1), (1, 1), 2),
    ),
    *_conv(
        "depthwise",
        normal(1, 4, 4, 3),
        normal(2, 2, 1, 6),
        Window((1, 1), ((1, 0), (1, 0)), (1, 1), (1, 1), 3),
    ),
    *_conv(
        "depthwise, one feature each",
        normal(2, 5, 4, 3),
        normal(3, 2, 1, 3),
        Window((2, 1), ((1, 1), (2, 0)), (1, 2), (1, 2), 3),
    ),
    *_conv(
        "1d", normal(2, 7, 3), normal(3, 3, 2), Window((2,), ((1, 1),), (1,), (1,), 1)
    ),
    *_conv(
        "3d",
        normal(1, 3, 3, 3, 2),
        normal(2, 2, 2, 2, 2),
        Window((1, 1, 1), ((0, 1),) * 3, (1, 1, 1), (1, 1, 1), 1),
    ),
    *_windows("overlapping", (3, 2), (2, 1), ((1, 1), (0, 1))),
    *_windows("apart", (1, 2), (2, 3), ((0, 0), (1, 0))),
    *_windows("whole", (5, 6), (1, 1), ((0, 0), (0, 0))),
    *_windows("cut", (2, 2), (1, 1), ((-1, 0), (1, -2))),
    *_windows("1d", (3,), (2,), ((1, 1),), distinct(2, 7, 3)),
]

"""Convolutions of all kinds, compiled, against their meaning in NumPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
from tests.core.dynamic import same_bytes
from treadle.ops.conv import Window, conv_filter_grad, conv_general

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "points": ((5, 4), (4, 3), {}),
    "single taps": ((3, 4, 5, 6), (1, 1, 6, 7), {}),
    "lines": ((2, 9, 4), (3, 4, 6), {"strides": (2,), "padding": ((1, 1),)}),
    "volumes": (
        (2, 5, 4, 6, 3),
        (3, 2, 3, 3, 4),
        {"strides": (2, 1, 2), "padding": ((1, 1), (0, 1), (1, 0))},
    ),
    "grouped volumes": (
        (2, 5, 4, 6, 4),
        (2, 2, 3, 2, 6),
        {"rhs_dilation": (2, 1, 1), "feature_groups": 2},
    ),
    "volumes of channels": (
        (2, 5, 4, 6, 5),
        (3, 2, 1, 1, 5),
        {"padding": ((1, 1), (1, 0), (0, 0)), "feature_groups": 5},
    ),
    "four axes": ((1, 3, 4, 3, 4, 2), (2, 2, 2, 2, 2, 3), {}),
    "more steps than channels": (
        (2, 7, 23, 2),
        (3, 6, 2, 5),
        {"strides": (2, 3), "padding": ((1, 0), (2, 1))},
    ),
    "several features": ((2, 6, 5, 3), (3, 2, 1, 9), {"feature_groups": 3}),
    "several channels": ((2, 6, 5, 9), (3, 2, 3, 3), {"feature_groups": 3}),
    "gaps": ((2, 4, 5, 3), (3, 4, 3, 2), {"lhs_dilation": (2, 3)}),
    "gaps of many features": (
        (2, 4, 5, 3),
        (3, 4, 3, 20),
        {"lhs_dilation": (2, 3), "padding": ((2, 1), (0, 3))},
    ),
    "gaps and padding": (
        (2, 4, 5, 3),
        (3, 4, 3, 2),
        {"lhs_dilation": (3, 2), "padding": ((2, 3), (3, 1))},
    ),
    "gaps as long as the filter": (
        (2, 3, 4, 3),
        (2, 3, 3, 5),
        {"lhs_dilation": (2, 3), "padding": ((1, 1), (2, 2))},
    ),
    "gaps and cuts": (
        (2, 5, 6, 3),
        (3, 2, 3, 2),
        {"lhs_dilation": (2, 2), "padding": ((-1, 0), (1, -2))},
    ),
    "more gaps than taps": (
        (2, 4, 5, 4),
        (1, 2, 2, 6),
        {"lhs_dilation": (2, 3), "padding": ((0, 1), (1, 1)), "feature_groups": 2},
    ),
    "gaps and steps": (
        (2, 4, 5, 3),
        (3, 2, 3, 2),
        {"lhs_dilation": (2, 2), "strides": (3, 1), "rhs_dilation": (1, 2)},
    ),
    "volumes with gaps": (
        (1, 3, 2, 3, 2),
        (3, 2, 2, 2, 3),
        {"lhs_dilation": (2, 1, 2)},
    ),
    "images of one pixel": (
        (3, 1, 1, 7),
        (3, 4, 7, 5),
        {"padding": ((2, 2), (3, 3))},
    ),
    "images of one pixel, met by few taps": (
        (3, 1, 1, 7),
        (3, 4, 7, 5),
        {"padding": ((2, 1), (3, 3))},
    ),
    "images as large as the filter": (
        (3, 3, 4, 7),
        (3, 4, 7, 5),
        {"strides": (2, 1)},
    ),
    "images as large as the filter, of one feature": ((3, 4, 4, 20), (4, 4, 20, 1), {}),
    "lines as long as the filter": ((5, 6, 3), (6, 3, 40), {}),
    "one pixel with gaps": (
        (3, 1, 1, 7),
        (3, 4, 7, 5),
        {"padding": ((2, 2), (3, 3)), "lhs_dilation": (2, 3)},
    ),
    "channels with gaps": (
        (2, 4, 5, 6),
        (3, 3, 1, 6),
        {"lhs_dilation": (2, 2), "padding": ((1, 2), (1, 2)), "feature_groups": 6},
    ),
}


def params_of(name: str) -> dict[str, Any]:
    x, _, options = CASES[name]
    n = len(x) - 2
    ones, zeros = (1,) * n, ((0, 0),) * n
    return Window(ones, zeros, ones, ones, 1)._asdict() | options


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    x_shape, w_shape, _ = CASES[name]
    rng, how = np.random.default_rng(0), params_of(name)
    x, w = (rng.normal(size=s).astype("float32") for s in (x_shape, w_shape))

    def run(x: Any, w: Any) -> Any:
        out = conv_general(x, w, **how)
        grad = conv_filter_grad(x, td.numpy.sin(out), kernel=w_shape[:-2], **how)
        return out, grad

    compiled = td.jit(run)
    found = compiled(x, w)
    assert "host" not in str(compiled.explain(x, w))
    for a, b in zip(found, run(x, w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "single taps",
        "volumes",
        "volumes of channels",
        "several channels",
        "gaps of many features",
        "gaps and padding",
        "gaps as long as the filter",
        "images of one pixel",
        "images as large as the filter",
    ],
)
def test_images_of_any_number_and_height(name: str) -> None:
    """Bits are those of a program for one size."""
    x_shape, w_shape, _ = CASES[name]
    rng, how = np.random.default_rng(0), params_of(name)
    w = rng.normal(size=w_shape).astype("float32")

    def run(x: Any, w: Any) -> Any:
        out = conv_general(x, w, **how)
        return out, conv_filter_grad(x, out, kernel=w_shape[:-2], **how)

    compiled = td.jit(run, dynamic={"x": ("n", "h", *[None] * (len(x_shape) - 2))})
    # One pixel, or images as large as the filter, are another program.
    alone = {"images of one pixel": 1, "images as large as the filter": 3}.get(name)
    sizes = [(2, 5), (3, 4), (1, 9), (4, 6)]
    sizes += [(40, alone), (50, alone)] if alone else []
    for n, h in sizes:
        x = rng.normal(size=(n, h, *x_shape[2:])).astype("float32")
        found, wanted = compiled(x, w), td.jit(lambda *a: run(*a))(x, w)
        assert not (why := same_bytes(found, wanted)), f"{n}, {h}: {why}"
    assert compiled.report().traces == (2 if alone else 1)


@pytest.mark.parametrize(("channels", "step"), [(1, 1), (16, 1), (1, 2)])
def test_filters_of_any_length(channels: int, step: int) -> None:
    """Bits are those of a program for one size: where all of an image is met, too, or
    windows lie side by side."""
    rng, how = np.random.default_rng(0), params_of("lines as long as the filter")
    how["strides"] = (step,)

    def run(x: Any, w: Any) -> Any:
        out = conv_general(x, w, **how)
        return out, conv_filter_grad(x, out, kernel=w.shape[:-2], **how)

    compiled = td.jit(run, dynamic={"x": ("n", "h", None), "w": ("k", None, None)})
    for n, h, k in [
        (2, 9, 3),
        (0, 4, 4),
        (9, 6, 2),
        (2, 4, 4),
        (3, 3, 3),
        (2, 5, 1),
        (3, 1, 1),
    ]:
        x = rng.normal(size=(n, h, channels)).astype("float32")
        w = rng.normal(size=(k, channels, 3)).astype("float32")
        found, wanted = compiled(x, w), td.jit(lambda *a: run(*a))(x, w)
        assert not (why := same_bytes(found, wanted)), f"{n}, {h}, {k}: {why}"


@pytest.mark.parametrize(
    "name",
    [
        "channels with gaps",
        "grouped volumes",
        "lines",
        "images of one pixel",
        "images as large as the filter",
    ],
)
def test_second_derivatives(name: str) -> None:
    """Against JAX."""
    x_shape, w_shape, _ = CASES[name]
    rng, how = np.random.default_rng(0), params_of(name)
    x, w = (rng.normal(size=s).astype("float32") for s in (x_shape, w_shape))
    letters = "".join("DHW"[i] for i in range(len(x_shape) - 2))
    numbers = (f"N{letters}C", f"{letters}IO", f"N{letters}C")

    def ours(x: Any, w: Any) -> Any:
        return td.numpy.sum(td.numpy.sin(conv_general(x, w, **how)))

    def theirs(x: Any, w: Any) -> Any:
        out = jax.lax.conv_general_dilated(
            x,
            w,
            how["strides"],
            how["padding"],
            how["lhs_dilation"],
            how["rhs_dilation"],
            numbers,
            how["feature_groups"],
        )
        return jax.numpy.sum(jax.numpy.sin(out))

    def second(module: Any, np_: Any, f: Any) -> Any:
        first = module.grad(f, argnums=(0, 1))
        return module.jit(
            module.grad(
                lambda x, w: sum(np_.sum(np_.cos(g)) for g in first(x, w)),
                argnums=(0, 1),
            )
        )

    found = second(td, td.numpy, ours)(x, w)
    wanted = second(jax, jax.numpy, theirs)(x, w)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("groups", [1, 8])
def test_gradients_of_strides_where_open_sizes_leave_a_phase_empty(groups: int) -> None:
    def gradients(x: Any, w: Any) -> Any:
        layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        layout |= {"feature_group_count": groups}
        both = (td.vjp, td.lax) if isinstance(x, td.Array) else (jax.vjp, jax.lax)
        vjp, lax = both
        conv = lax.conv_general_dilated
        out, pullback = vjp(lambda *a: conv(*a, (2, 1), "SAME", **layout), x, w)
        return pullback(out)

    compiled = td.jit(gradients, dynamic={"x": ("n", "h", "w", None)})
    numbers = np.random.default_rng(0)
    w = numbers.normal(size=(3, 3, 8 // groups, 16)).astype("f")
    for shape in ((2, 7, 7, 8), (1, 2, 1, 8), (3, 2, 13, 8), (2, 4, 3, 8)):
        x = numbers.normal(size=shape).astype("f")
        wanted = gradients(jax.numpy.asarray(x), jax.numpy.asarray(w))
        for found, expected in zip(compiled(x, w), wanted, strict=True):
            np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("size", [(8, 10), (1, 6), (6, 1)])
def test_phases_are_made_where_they_belong(groups: int, size: tuple[int, int]) -> None:
    """Nothing is copied behind them."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, *size, 16)).astype("float32")
    w = rng.normal(size=(3, 4, 16 // groups, 40)).astype("float32")
    ends = tuple((k - 1, k) for k in (2, 3))
    how = Window((1, 1), ends, (2, 2), (1, 1), groups)._asdict()
    compiled = td.jit(lambda x, w: conv_general(x, w, **how))
    np.testing.assert_allclose(
        compiled(x, w), conv_general(x, w, **how), rtol=1e-4, atol=1e-4
    )
    assert "interleave" not in str(compiled.explain(x, w))

"""Programs whose convolutions are of bfloat16, by a model of what multiplies pairs."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends.cpu.bfloat.test_programs import close, normal, run, wide
from treadle.backends.cpu import device
from treadle.backends.cpu.bfloat import kernel
from treadle.backends.cpu.conv import pairs
from treadle.backends.cpu.device import CPUTarget
from treadle.backends.cpu.target import AMX_MODEL, AVX512_BF16_MODEL
from treadle.compile import build
from treadle.dtypes import bfloat16, float32
from treadle.kernels.convolve import ConvSpec
from treadle.ops.conv import conv_general
from treadle.plan.steps import NestStep, ProductStep
from treadle.run.eager import evaluate


@pytest.fixture(autouse=True, params=[AMX_MODEL, AVX512_BF16_MODEL])
def _unit(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    for module in (device, kernel, pairs):
        monkeypatch.setattr(module, "bfloat_unit", lambda: request.param)
    kernel.source.cache_clear()
    yield
    kernel.source.cache_clear()


def convolve(x: Any, w: Any, **options: Any) -> Any:
    plain: dict[str, Any] = {
        "strides": (1, 1),
        "padding": ((1, 1), (1, 1)),
        "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1),
        "feature_groups": 1,
    }
    return conv_general(x, w, **plain | options)


def expected(function: Any, *args: np.ndarray) -> list[np.ndarray]:
    graph = td.jit(function).graph(*args)
    return [np.asarray(a, np.float64) for a in evaluate(graph, list(args))]


def convolutions(plan: Any) -> list[tuple[str, ...]]:
    """The dtypes of operands and result of each."""
    found = [s.product.contraction for s in plan.steps if isinstance(s, ProductStep)]
    return [
        tuple(d.name for d in (c.dtypes[0], c.dtype))
        for c in found
        if isinstance(c, ConvSpec)
    ]


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "same": ((2, 7, 9, 6), (3, 3, 6, 17), {}),
    "odd": ((3, 7, 9, 5), (3, 3, 5, 3), {}),
    "strided": ((2, 9, 9, 6), (3, 3, 6, 8), {"strides": (2, 2)}),
    "dilated": ((2, 9, 9, 6), (3, 3, 6, 8), {"rhs_dilation": (2, 2)}),
    "gaps": ((2, 5, 5, 6), (3, 3, 6, 8), {"lhs_dilation": (2, 2)}),
    "groups": ((2, 7, 9, 8), (3, 3, 4, 12), {"feature_groups": 2}),
}


@pytest.mark.parametrize("case", CASES)
def test_convolutions_and_both_gradients(case: str) -> None:
    x_shape, w_shape, options = CASES[case]
    x, w = normal(*x_shape), normal(*w_shape)

    def all_three(x: Any, w: Any, ct: Any) -> Any:
        out, back = td.vjp(lambda x, w: convolve(x, w, **options), x, w)
        return out, *back(ct)

    shape = expected(lambda x, w: convolve(x, w, **options), x, w)[0].shape
    args = x, w, normal(*shape)
    plan, found = run(all_three, *args)
    assert len(convolutions(plan)) >= 3
    assert set(convolutions(plan)) == {("bfloat16", "bfloat16")}
    for one, other in zip(found, expected(all_three, *args), strict=True):
        close(one, other, scale=float(np.abs(other).max()))


def test_epilogues_and_wide_results() -> None:
    x, w, b = normal(2, 7, 9, 6), normal(3, 3, 6, 17), normal(17)
    plan, (y,) = run(lambda x, w, b: tnp.maximum(convolve(x, w) + b, 0), x, w, b)
    assert not any(isinstance(s, NestStep) for s in plan.steps)
    assert len(convolutions(plan)) == 1
    (wanted,) = expected(lambda x, w: convolve(x, w), *wide(x, w))
    close(y, np.maximum(wanted + wide(b)[0], 0), scale=8)


def test_channels_that_are_not_side_by_side_are_copied() -> None:
    x, w = normal(2, 6, 7, 9), normal(3, 3, 6, 17)

    def first(x: Any, w: Any) -> Any:
        return convolve(tnp.moveaxis(x, 1, -1), w)

    plan, (y,) = run(first, x, w)
    assert convolutions(plan) == [("bfloat16", "bfloat16")]
    close(y, expected(first, *wide(x, w))[0], scale=8)


@pytest.mark.parametrize(
    ("channels", "features", "dtype"),
    [(6, 6, "bfloat16"), (6, 12, "float32"), (12, 6, "float32")],
)
def test_single_channels(channels: int, features: int, dtype: str) -> None:
    """What is added up afterwards isn't rounded before."""
    x, w = normal(2, 7, 9, channels), normal(3, 3, channels // 6, features)

    def all_three(x: Any, w: Any, ct: Any) -> Any:
        apply = functools.partial(convolve, feature_groups=6)
        out, back = td.vjp(apply, x, w)
        return out, *back(ct)

    args = x, w, normal(2, 7, 9, features)
    plan, found = run(all_three, *args)
    assert set(convolutions(plan)) == {(dtype, dtype)}
    for one, other in zip(found, expected(all_three, *args), strict=True):
        close(one, other, scale=float(np.abs(other).max()))


@pytest.mark.parametrize(
    "options",
    [{}, {"strides": (2, 2)}, {"padding": ((0, 0),) * 2}, {"feature_groups": 6}],
)
def test_open_sizes_have_the_bits_of_fixed_ones(options: Any) -> None:
    def both(x: Any, w: Any) -> Any:
        def loss(x: Any, w: Any) -> Any:
            out = convolve(x, w, **options)
            return (out.astype(float32) ** 2).sum(), out

        grads, out = td.grad(loss, argnums=(0, 1), has_aux=True)(x, w)
        return out, *grads

    groups = options.get("feature_groups", 1)
    w = normal(3, 3, 6 // groups, 18)[..., : 17 if groups == 1 else 6]
    axes = ("images", "height", "width", None)
    once = td.jit(both, dynamic={"x": axes})
    for sizes in ((1, 7, 9), (2, 12, 5), (5, 8, 30)):
        x = normal(*sizes, 6)
        wanted = run(both, x, w)[1]
        for one, other in zip(once(x, w), wanted, strict=True):
            np.testing.assert_array_equal(
                np.asarray(one).view(np.int16), other.view(np.int16)
            )


def test_a_training_step_rounds_as_the_reference_does() -> None:
    x, w = normal(2, 8, 8, 4), normal(3, 3, 4, 4, dtype=float32) / 4

    def loss(w: Any, x: Any) -> Any:
        h = x
        for _ in range(2):
            h = tnp.maximum(convolve(h, w.astype(bfloat16)), 0)
        return h.astype(float32).mean()

    graph = td.jit(td.grad(loss)).graph(w, x)
    (found,) = build(graph, CPUTarget())([w, x])
    (wanted,) = evaluate(graph, [w, x])
    assert np.abs(np.asarray(found) - wanted).max() < 0.03 * np.abs(wanted).max()

"""Convolutions of groups of few channels: kernels against a plain loop over taps,
programs against JAX."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import lax

import treadle as td
from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv.test_depthwise import (
    both_are_those_of_a_loop,
)
from tests.core.backends.cpu.conv.test_kernel import (
    GEOMETRIES,
    among_others,
    close,
    filter_gradient,
    forward,
    problem,
)
from tests.core.dynamic import same_bytes
from treadle.backends.cpu.conv import depthwise, depthwise_rows, depthwise_schedule
from treadle.backends.cpu.conv.depthwise_rows import row_of_groups
from treadle.backends.cpu.gemm import kernel as gemm
from treadle.backends.cpu.gemm.kernel import machine_for
from treadle.backends.cpu.target import host
from treadle.ops.conv import conv_filter_grad, conv_general

EACH = (2, 4, 8, 16)


def grouped_problem(each, groups, axes, **options):
    channels = each * groups
    image, weights, output, spec = problem(
        channels, channels, axes, groups=groups, **options
    )
    if row_of_groups(spec) is None:
        machine = machine_for(spec.sums, host())
        assert each > machine.tile.lanes or not machine.assembly
        pytest.skip("a group is no part of this machine's vectors")
    return image, weights, output, spec


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("each", EACH)
@pytest.mark.parametrize("geometry", ["valid", "same", "cropped"])
def test_values(geometry, each, dtype):
    """Two vectors of features, and a part of one, for every lane count."""
    groups = 32 // each + 1
    image, weights, output, spec = grouped_problem(
        each, groups, GEOMETRIES[geometry], dtype=dtype
    )
    both_are_those_of_a_loop(image, weights, output, spec)


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("taps", [1, 2, 3, 5, 7])
def test_rows_of_taps(taps, stride):
    """Of 1 to 15 outputs: all numbers that tiles have, one of them or two."""
    axes = {"padding": 1}, {"padding": 2, "stride": stride}
    for out in range(1, 16, 1 if stride == 1 else 3):
        width = (out - 1) * stride + taps - 4
        if width < 1:
            continue
        image, weights, output, spec = grouped_problem(
            4, 9, axes, size=(4, width), filter_size=(2, taps), images=2
        )
        gradient = output.copy()
        calls.channelwise(spec, output, image, weights).serial()
        close(output, forward(image, weights, spec), spec.k)
        result = np.empty_like(weights)
        calls.channelwise(spec, result, image, gradient, gradient=True).serial()
        close(result, filter_gradient(image, gradient, spec), gradient[..., 0].size)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("each", EACH)
@pytest.mark.parametrize("geometry", ["same", "cropped"])
def test_large_filters(geometry, each, dtype, monkeypatch):
    """They are copied a vector at a time, with the same results to the bit."""
    groups = 32 // each + 1
    image, weights, output, spec = grouped_problem(
        each, groups, GEOMETRIES[geometry], dtype=dtype, images=5
    )
    gradient = output.copy()

    def run(threads):
        results = np.full_like(output, np.nan), np.full_like(weights, np.nan)
        for i, (given, out) in enumerate(
            zip((weights, gradient), results, strict=True)
        ):
            calls.channelwise(
                spec, out, image, given, gradient=i == 1, num_threads=threads
            ).serial()
        return results

    expected = run(1)
    monkeypatch.setattr(depthwise_schedule, "_apart", lambda *_, **__: True)
    for nbytes, threads in ((depthwise_schedule._NEAR_BYTES, 1), (0, 1), (0, 3)):
        monkeypatch.setattr(depthwise_schedule, "_NEAR_BYTES", nbytes)
        for found, like in zip(run(threads), expected, strict=True):
            assert not (why := same_bytes(found, like)), f"{threads} threads: {why}"


def test_results_among_others():
    """Lines that are apart, as the phases of a gradient by images are."""
    image, weights, output, spec = grouped_problem(
        4, 9, GEOMETRIES["same"], size=(9, 20)
    )
    around, output, spec = among_others(output, spec)
    for num_threads in (1, 3):
        calls.channelwise(
            spec, output, image, weights, num_threads=num_threads
        ).serial()
        close(output, forward(image, weights, spec), spec.k)
    output[:] = 5
    assert (around == 5).all()


def test_which_convolutions_these_are():
    _, _, _, spec = grouped_problem(4, 8, GEOMETRIES["same"])
    assert row_of_groups(spec) == depthwise_rows.Row(3, 1, 4)
    assert "3, 1, 4" in depthwise.source(spec).key
    for other in (
        replace(spec, groups=1),
        replace(spec, groups=32),
        replace(spec, features=64),
        replace(spec, x=replace(spec.x, stride=3)),
        replace(spec, x=replace(spec.x, dilation=2)),
        replace(spec, x=replace(spec.x, in_dilation=2)),
        replace(spec, x=replace(spec.x, taps=8)),
        replace(spec, filter=replace(spec.filter, column=2)),
    ):
        assert row_of_groups(other) is None


def test_machines_that_do_not_turn_vectors(monkeypatch):
    """They have these kernels for groups that are a vector."""
    plain = replace(machine_for(np.dtype("float32"), host()), assembly="")
    monkeypatch.setattr(depthwise_rows, "machine_for", lambda *_: plain)
    lanes = plain.tile.lanes
    for each in EACH:
        _, _, _, spec = problem(64, 64, GEOMETRIES["same"], groups=64 // each)
        assert (row_of_groups(spec) is not None) == (each == lanes)
    assert gemm.tile(np.dtype("float32")).lanes == lanes


WINDOWS = {
    "same": ((1, 1), ((1, 1), (1, 1))),
    "by two": ((2, 2), ((1, 1), (1, 1))),
    "uneven": ((2, 1), ((0, 1), (2, 0))),
}


@pytest.mark.parametrize(
    ("window", "each"), [("same", 4), ("by two", 8), ("uneven", 16)]
)
def test_programs(window, each):
    """With both gradients, an epilogue, and sizes that are open: as JAX's."""
    strides, padding = WINDOWS[window]
    rng, groups = np.random.default_rng(2), 32 // each + 1
    channels = groups * each
    w = rng.normal(size=(3, 3, each, channels)).astype("float32")
    how = {"strides": strides, "padding": padding}

    def ours(x, w):
        y = conv_general(
            x,
            w,
            **how,
            lhs_dilation=(1, 1),
            rhs_dilation=(1, 1),
            feature_groups=groups,
        )
        return td.numpy.tanh(y * 0.1)

    def theirs(x, w):
        y = lax.conv_general_dilated(
            x,
            w,
            strides,
            padding,
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )
        return jax.numpy.tanh(y * 0.1)

    def both(x, w):
        y, back = td.vjp(ours, x, w)
        return y, *back(y)

    names = {"x": ("n", "h", "w", None)}
    compiled = td.jit(both, dynamic=names)
    for size in ((2, 9, 11), (3, 6, 17), (1, 3, 3)):
        x = rng.normal(size=(*size, channels)).astype("float32")
        wanted, back = jax.vjp(theirs, x, w)
        fixed = td.jit(lambda *a: both(*a))(x, w)
        for found, other, like in zip(
            compiled(x, w), fixed, (wanted, *back(wanted)), strict=True
        ):
            assert not (why := same_bytes(found, other)), f"{size}: {why}"
            scale = np.abs(like).max()
            np.testing.assert_allclose(found, like, rtol=0, atol=2e-6 * scale)


def test_programs_with_a_large_filter():
    """Its epilogue runs for each vector of features."""
    rng, groups, each = np.random.default_rng(4), 100, 8
    x = rng.normal(size=(3, 5, 4, groups * each)).astype("float32")
    w = rng.normal(size=(3, 3, each, groups * each)).astype("float32")
    bias = rng.normal(size=groups * each).astype("float32")
    assert w.nbytes > depthwise_schedule._FILTER_BYTES
    options = {"padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    options |= {"window_strides": (1, 1), "feature_group_count": groups}

    def ours(x, w, bias):
        y = td.lax.conv_general_dilated(x, w, **options)
        return td.numpy.maximum(y + bias, 0) + x

    def theirs(x, w, bias):
        y = lax.conv_general_dilated(x, w, **options)
        return jax.numpy.maximum(y + bias, 0) + x

    def both(x, w, bias, ct):
        y, back = td.vjp(ours, x, w, bias)
        return y, *back(ct)

    ct = rng.normal(size=x.shape).astype("float32")
    wanted, back = jax.vjp(theirs, x, w, bias)
    open_images = td.jit(
        both, dynamic={name: ("n", None, None, None) for name in ("x", "ct")}
    )
    found = td.jit(lambda *a: both(*a))(x, w, bias, ct)
    for one, other, like in zip(
        found, open_images(x, w, bias, ct), (wanted, *back(ct)), strict=True
    ):
        assert not (why := same_bytes(one, other)), why
        np.testing.assert_allclose(one, like, rtol=0, atol=3e-6 * np.abs(like).max())


def test_open_channels_have_the_bits_of_fixed_ones():
    """Which kernel it is depends on them."""
    rng = np.random.default_rng(3)
    how = {
        "strides": (1, 1),
        "padding": ((1, 1), (1, 1)),
        "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1),
    }

    def run(x, w, ct):
        groups = x.shape[-1] // w.shape[-2]
        options = how | {"feature_groups": groups}
        y = conv_general(x, w, **options)
        return y, conv_filter_grad(x, ct, kernel=(3, 3), **options)

    names = {
        "x": (None, None, None, "c"),
        "w": (None, None, None, "c"),
        "ct": (None, None, None, "c"),
    }
    compiled = td.jit(run, dynamic=names)
    for channels in (32, 40, 16, 24):
        x, ct = (
            rng.normal(size=(2, 6, 7, channels)).astype("float32") for _ in range(2)
        )
        w = rng.normal(size=(3, 3, 8, channels)).astype("float32")
        fixed = td.jit(lambda *a: run(*a))(x, w, ct)
        for found, other in zip(compiled(x, w, ct), fixed, strict=True):
            assert not (why := same_bytes(found, other)), f"{channels}: {why}"

"""Depthwise convolutions and both gradients against a plain loop over taps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv.test_kernel import (
    GEOMETRIES,
    close,
    filter_gradient,
    forward,
    problem,
)
from treadle.backends.cpu.conv import depthwise
from treadle.backends.cpu.conv.depthwise_rows import row_of
from treadle.backends.cpu.gemm.arguments import Word
from treadle.backends.cpu.target import AVX512_BF16_MODEL, bfloat_unit
from treadle.dtypes import bfloat16, float32

# Full pairs of vectors, one vector more, and a part of one, for every lane count.
CHANNELS = (3, 8, 64, 93)


def depthwise_problem(channels, axes, **options):
    return problem(channels, channels, axes, groups=channels, **options)


def outputs_for_threads(run, like):
    """What 1, 2 and 5 threads give, which must be the same bits."""
    results = []
    for num_threads in (1, 2, 5):
        results.append(np.full_like(like, np.nan))
        run(results[-1], num_threads)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)
    return results[0]


def both_are_those_of_a_loop(image, weights, output, spec):
    """The result, and the gradient by the filter of an output."""
    found = outputs_for_threads(
        lambda out, n: calls.channelwise(
            spec, out, image, weights, num_threads=n
        ).serial(),
        output,
    )
    close(found, forward(image, weights, spec), spec.k)
    gradient = output
    found = outputs_for_threads(
        lambda out, n: calls.channelwise(
            spec, out, image, gradient, gradient=True, num_threads=n
        ).serial(),
        weights,
    )
    expected = filter_gradient(image, gradient, spec)
    close(found, expected, gradient[..., 0].size)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS)
def test_values(channels, geometry):
    image, weights, output, spec = depthwise_problem(channels, GEOMETRIES[geometry])
    assert spec.depthwise
    both_are_those_of_a_loop(image, weights, output, spec)


UNITS = [AVX512_BF16_MODEL, *([bfloat_unit()] if bfloat_unit() else [])]


@pytest.mark.parametrize("result", [bfloat16, float32])
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS)
def test_half_floats(monkeypatch, channels, geometry, result):
    """Products are exact, and added in single precision, with one set of bits."""
    image, weights, output, spec = depthwise_problem(
        channels, GEOMETRIES[geometry], dtype=bfloat16
    )
    spec = replace(spec, dtype=result, operands=bfloat16)
    output[:] = np.random.default_rng(3).standard_normal(output.shape)
    wanted = {False: forward(image, weights, spec)}
    wanted[True] = filter_gradient(image, output, spec)
    count = {False: spec.k, True: output[..., 0].size}
    for gradient, other, like in ((False, weights, output), (True, output, weights)):
        several = []
        for unit in UNITS:
            monkeypatch.setattr(depthwise, "bfloat_unit", lambda unit=unit: unit)
            found = np.full(like.shape, np.nan, result)
            calls.channelwise(spec, found, image, other, gradient=gradient).serial()
            several.append(found)
        expected = wanted[gradient]
        size = np.abs(expected).max()
        error = np.abs(found.astype(np.float64) - expected)
        rounding = np.abs(expected) * 2.0**-8 if result == bfloat16 else 0.0
        assert (error <= rounding + 1e-6 * size * count[gradient] ** 0.5).all()
        for other_unit in several[1:]:
            np.testing.assert_array_equal(several[0], other_unit)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_input_gradient_is_the_transpose(geometry):
    image, weights, gradient, spec = depthwise_problem(20, GEOMETRIES[geometry])
    result = np.empty_like(image)
    target = calls.strides(result)
    backward, offset = calls.input_gradient(spec, calls.strides(gradient), target)
    # The filter has one channel: features stay where they are.
    backward = calls.replace(
        backward, filter=calls.replace(backward.filter, row=0, column=1)
    )
    calls.channelwise(
        backward, result, gradient, weights, filter_offset=offset
    ).serial()
    # The adjoint of a linear map: <gradient, forward(v)> = <result, v> for all v.
    rng = np.random.default_rng(1)
    for _ in range(3):
        v = rng.standard_normal(image.shape)
        left = np.vdot(gradient.astype(np.float64), forward(v, weights, spec))
        right = np.vdot(result.astype(np.float64), v)
        assert abs(left - right) < 1e-6 * np.abs(gradient).sum() * spec.k**0.5


SHAPES = {
    "narrow": {"size": (9, 1), "filter_size": (3, 1)},
    "one row": {"size": (1, 150), "filter_size": (1, 5)},
    "long rows": {"size": (3, 200), "filter_size": (3, 3)},
    "many small images": {"images": 40, "size": (3, 3)},
    "large filter": {"size": (7, 7), "filter_size": (7, 6), "images": 2},
    "one tap": {"filter_size": (1, 1)},
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape, dtype):
    options = SHAPES[shape]
    taps_y, taps_x = options.get("filter_size", (3, 3))
    axes = {"padding": taps_y // 2}, {"padding": taps_x // 2}
    image, weights, output, spec = depthwise_problem(21, axes, dtype=dtype, **options)
    gradient = output.copy()
    calls.channelwise(spec, output, image, weights, num_threads=4).parallel()()
    close(output, forward(image, weights, spec), spec.k)
    found = np.empty_like(weights)
    calls.channelwise(
        spec, found, image, gradient, gradient=True, num_threads=4
    ).parallel()()
    close(found, filter_gradient(image, gradient, spec), gradient[..., 0].size)


@pytest.mark.parametrize("dtype", ["float32", bfloat16])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("taps", [2, 3, 4, 5, 6, 7, 8])
def test_rows_of_taps(taps, stride, dilation, dtype):
    """Those of 3 to 7 taps, by 1 or 2, load each pixel once: others do not. Rows have
    1 to 15 outputs: all numbers that tiles have, one of them or two."""
    axes = {"padding": 1}, {"padding": 2, "stride": stride, "dilation": dilation}
    has_row = dilation == 1 and stride < 3 and 3 <= taps <= 7
    # Two vectors, one, and a part of one.
    channels = 37 if dtype == "float32" else 53
    for out in range(1, 16) if dtype == "float32" else (1, 2, 7, 8, 15):
        width = (out - 1) * stride + (taps - 1) * dilation + 1 - 4
        if width < 1:
            continue
        image, weights, output, spec = depthwise_problem(
            channels,
            axes,
            size=(3, width),
            filter_size=(2, taps),
            images=2,
            dtype=dtype,
        )
        spec = replace(spec, dtype=float32, operands=spec.dtype)
        assert spec.x.out == out
        assert (row_of(spec) is not None) == has_row
        gradient = output
        result, found = (np.empty(a.shape, float32) for a in (output, weights))
        calls.channelwise(spec, result, image, weights).serial()
        close(result, forward(image, weights, spec), spec.k)
        calls.channelwise(spec, found, image, gradient, gradient=True).serial()
        close(found, filter_gradient(image, gradient, spec), gradient[..., 0].size)


def test_filter_outside_of_the_image():
    """Every tap meets zeros only."""
    image, weights, _, _ = depthwise_problem(12, GEOMETRIES["valid"])
    output = np.full((3, 2, 2, 12), np.nan, "float32")
    axis = {"padding": 50}
    spec = calls.conv_spec(output, image, weights, axis, axis, groups=12)
    calls.channelwise(spec, output, image, weights).serial()
    assert (output == 0).all()


def test_results_beside_others():
    """Channels of a larger array: what is beside them is left alone."""
    image, weights, output, _ = depthwise_problem(12, GEOMETRIES["same"])
    whole = np.full((*output.shape[:-1], 20), 7, "float32")
    part, axis = whole[..., 4:16], {"padding": 1}
    spec = calls.conv_spec(part, image, weights, axis, axis, groups=12)
    calls.channelwise(spec, part, image, weights).serial()
    close(part, forward(image, weights, spec), spec.k)
    assert (whole[..., :4] == 7).all()
    assert (whole[..., 16:] == 7).all()


def test_epilogue():
    image, weights, output, spec = depthwise_problem(40, GEOMETRIES["same"])
    expected = np.maximum(forward(image, weights, spec), 0)
    seen = np.zeros(output.shape, int)
    pixels = output.reshape(len(output), -1, 40)

    def clip(given, b0, b1, r0, r1, c0, c1):
        assert b1 == 0
        block = (b0, slice(r0, r1), slice(c0, c1))
        seen.reshape(pixels.shape)[block] += 1
        pixels[block] = np.maximum(pixels[block], 0)

    hook = calls.EPILOGUE(clip)
    address = calls.ctypes.cast(hook, calls.ctypes.c_void_p).value
    hooks = {Word.EPILOGUE: address}
    calls.channelwise(spec, output, image, weights, num_threads=4, hooks=hooks).serial()
    assert (seen == 1).all()
    close(output, expected, spec.k)

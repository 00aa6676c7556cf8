"""The convolution kernels and both gradients against a plain loop over taps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.core.backends.cpu import contract_call as calls
from treadle.backends.cpu.conv import schedule as conv_schedule
from treadle.backends.cpu.conv import winograd_schedule
from treadle.backends.cpu.gemm.arguments import Word

CHANNELS = [(1, 32), (3, 5), (20, 33), (32, 64)]
GEOMETRIES = {
    "valid": ({}, {}),
    "same": ({"padding": 1}, {"padding": 1}),
    "strided": ({"padding": 1, "stride": 2}, {"padding": 2, "stride": 3}),
    "dilated": ({"padding": 2, "dilation": 2}, {"padding": 3, "dilation": 2}),
    "in_dilated": ({"padding": 1, "in_dilation": 2}, {"padding": 1, "in_dilation": 3}),
    "cropped": ({"padding": -1}, {"padding": -2}),
    "everything": (
        {"padding": 2, "stride": 2, "in_dilation": 3},
        {"padding": 1, "stride": 3, "in_dilation": 2, "dilation": 2},
    ),
}


def out_size(size, taps, padding=0, stride=1, in_dilation=1, dilation=1):
    extent = (size - 1) * in_dilation + 1 + 2 * padding
    return (extent - (taps - 1) * dilation - 1) // stride + 1


def visited(image, spec):
    """The zero-padded, dilated input, as far as the filter visits it."""
    y, x = spec.y, spec.x
    images, _, _, channels = image.shape
    dilated = np.zeros((images, y.extent, x.extent, channels))
    dilated[:, :: y.in_dilation, :: x.in_dilation] = image
    wide = np.pad(dilated, ((0, 0), (30, 30), (30, 30), (0, 0)))
    first_y, first_x = 30 - y.padding, 30 - x.padding
    return wide[:, first_y : first_y + y.padded, first_x : first_x + x.padded]


def taps(image, spec):
    """For every tap and group: its index, and the input elements that it meets."""
    y, x, channels = spec.y, spec.x, spec.channels // spec.groups
    padded = visited(image, spec)
    for dy in range(y.taps):
        for dx in range(x.taps):
            first_y, first_x = dy * y.dilation, dx * x.dilation
            ends = (y.out - 1) * y.stride, (x.out - 1) * x.stride
            met = padded[
                :,
                first_y : first_y + ends[0] + 1 : y.stride,
                first_x : first_x + ends[1] + 1 : x.stride,
            ]
            for group in range(spec.groups):
                yield dy, dx, group, met[..., group * channels :][..., :channels]


def forward(image, weights, spec):
    out = np.zeros((len(image), spec.y.out, spec.x.out, spec.features))
    features = spec.features // spec.groups
    for dy, dx, group, met in taps(image, spec):
        columns = slice(group * features, (group + 1) * features)
        out[..., columns] += met @ weights[dy, dx, :, columns].astype(np.float64)
    return out


def filter_gradient(image, gradient, spec):
    shape = (spec.y.taps, spec.x.taps, spec.channels // spec.groups, spec.features)
    result = np.zeros(shape)
    features = spec.features // spec.groups
    for dy, dx, group, met in taps(image, spec):
        columns = slice(group * features, (group + 1) * features)
        part = gradient[..., columns].astype(np.float64)
        result[dy, dx, :, columns] = np.einsum("byxc,byxf->cf", met, part)
    return result


def channels_last(rng, shape, dtype):
    return rng.standard_normal(shape).astype(dtype)


def channels_first(rng, shape, dtype):
    images, height, width, channels = shape
    array = rng.standard_normal((images, channels, height, width)).astype(dtype)
    return array.transpose(0, 2, 3, 1)


def sparse(rng, shape, dtype):
    images, height, width, channels = shape
    array = rng.standard_normal((images, height, 2 * width, 3 * channels))
    return array.astype(dtype)[:, :, ::2, ::3]


LAYOUTS = (channels_last, channels_first, sparse)


def problem(
    channels, features, axes, *, layout=channels_last, dtype="float32", groups=1,
    images=3, size=(8, 9), filter_size=(3, 3)
):  # fmt: skip
    """Input, filter, output and what they are for."""
    rng = np.random.default_rng(0)
    y, x = axes
    out = [
        out_size(n, k, **axis)
        for n, k, axis in zip(size, filter_size, axes, strict=True)
    ]
    image = layout(rng, (images, *size, channels), dtype)
    shape = (*filter_size, channels // groups, features)
    weights = rng.standard_normal(shape).astype(dtype)
    output = rng.standard_normal((images, *out, features)).astype(dtype)
    spec = calls.conv_spec(output, image, weights, y, x, groups=groups)
    return image, weights, output, spec


def close(actual, expected, terms):
    """Rounding grows like the sums themselves: both with the root of `terms`."""
    epsilon = np.finfo(actual.dtype).eps
    assert np.abs(actual - expected).max() < epsilon * (2 * terms + 64)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_forward(channels, geometry, layout):
    image, weights, output, spec = problem(
        *channels, GEOMETRIES[geometry], layout=layout
    )
    calls.convolution(spec, output, image, weights, num_threads=3).serial()
    close(output, forward(image, weights, spec), spec.k)


def among_others(output, spec):
    """What lies around a result, the result, and the convolution that makes it there:
    every other pixel of every other line."""
    images, height, width, features = output.shape
    shape = images, 2 * height, 2 * width, features + 3
    around = np.full(shape, 5, output.dtype)
    inside = around[:, 1::2, ::2, :features]
    return around, inside, replace(spec, output=calls.strides(inside))


@pytest.mark.parametrize("size", [(9, 20), (6, 4)], ids=str)
@pytest.mark.parametrize(
    "schedule", [conv_schedule.schedule, winograd_schedule.of_tiles]
)
def test_results_among_others(schedule, size):
    image, weights, output, spec = problem(
        35, 40, GEOMETRIES["same"], size=size, images=10
    )
    around, output, spec = among_others(output, spec)
    calls.convolution(spec, output, image, weights, schedule=schedule).serial()
    close(output, forward(image, weights, spec), 4 * spec.k)
    output[:] = 5
    assert (around == 5).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_filter_gradient(channels, geometry, layout):
    image, weights, gradient, spec = problem(
        *channels, GEOMETRIES[geometry], layout=layout
    )
    expected = filter_gradient(image, gradient, spec)
    results = []
    for num_threads in (1, 2, 5):
        result = np.empty_like(weights)
        calls.filter_gradient(
            spec, result, image, gradient, num_threads=num_threads
        ).serial()
        close(result, expected, gradient[..., 0].size)
        results.append(result)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_input_gradient_is_the_transpose(channels, geometry):
    image, weights, gradient, spec = problem(*channels, GEOMETRIES[geometry])
    result = np.empty_like(image)
    target = calls.strides(result)
    backward, offset = calls.input_gradient(spec, calls.strides(gradient), target)
    calls.convolution(
        backward, result, gradient, weights, filter_offset=offset
    ).serial()
    # The adjoint of a linear map: <gradient, forward(v)> = <result, v> for all v.
    rng = np.random.default_rng(1)
    for _ in range(3):
        v = rng.standard_normal(image.shape)
        left = np.vdot(gradient.astype(np.float64), forward(v, weights, spec))
        right = np.vdot(result.astype(np.float64), v)
        assert abs(left - right) < 1e-6 * np.abs(gradient).sum() * spec.k**0.5


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize(("channels", "step", "taps"), [(512, 2, 1), (1024, 1, 2)])
def test_pixels_that_fall_into_one_set_of_the_cache(channels, step, taps, padding):
    """They are copied further apart, without those that no tap meets."""
    axes = ({"stride": step, "padding": padding},) * 2
    image, weights, output, spec = problem(
        channels, 20, axes, size=(6, 5), filter_size=(taps, taps), images=2
    )
    for num_threads in (1, 3):
        output[:] = np.nan
        calls.convolution(
            spec, output, image, weights, num_threads=num_threads
        ).serial()
        close(output, forward(image, weights, spec), spec.k)


@pytest.mark.parametrize("features", [16, 32])
@pytest.mark.parametrize("groups", [2, 4, 8])
def test_groups(groups, features):
    """Also where those of all groups would fill one panel."""
    axes = GEOMETRIES["same"]
    image, weights, output, spec = problem(8, features, axes, groups=groups)
    calls.convolution(spec, output, image, weights, num_threads=2).serial()
    close(output, forward(image, weights, spec), spec.k)
    result = np.empty_like(weights)
    calls.filter_gradient(spec, result, image, output).serial()
    close(result, filter_gradient(image, output, spec), output[..., 0].size * 9)


SHAPES = {
    "pointwise": {"filter_size": (1, 1), "channels": 40, "features": 33},
    "one large image": {"images": 1, "size": (70, 60), "channels": 64, "features": 40},
    "large filter": {"images": 2, "size": (7, 7), "channels": 300, "features": 70},
    "many small images": {"images": 37, "size": (4, 4), "channels": 3, "features": 8},
    "wide filter": {"filter_size": (5, 7), "channels": 2, "features": 3},
    "column": {"size": (50, 1), "filter_size": (5, 1), "channels": 4, "features": 6},
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(shape, dtype):
    options = dict(SHAPES[shape])
    taps_y, taps_x = options.get("filter_size", (3, 3))
    axes = {"padding": taps_y // 2}, {"padding": taps_x // 2}
    image, weights, output, spec = problem(
        options.pop("channels"), options.pop("features"), axes, dtype=dtype, **options
    )
    before = output.astype(np.float64)
    calls.convolution(spec, output, image, weights, num_threads=4).parallel()()
    close(output, forward(image, weights, spec), spec.k)
    result = np.empty_like(weights)
    gradient = before.astype(dtype)
    calls.filter_gradient(spec, result, image, gradient, num_threads=4).parallel()()
    close(result, filter_gradient(image, gradient, spec), gradient[..., 0].size)


def test_filter_outside_of_the_image():
    """Every tap meets zeros only."""
    image, weights, _, _ = problem(3, 5, GEOMETRIES["valid"])
    output = np.empty((3, 2, 2, 5), "float32")
    axis = {"padding": 50}
    spec = calls.conv_spec(output, image, weights, axis, axis)
    calls.convolution(spec, output, image, weights).serial()
    assert (output == 0).all()
    result = np.empty_like(weights)
    calls.filter_gradient(spec, result, image, np.ones_like(output)).serial()
    assert (result == 0).all()


def test_epilogue():
    image, weights, output, spec = problem(16, 40, GEOMETRIES["same"])
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
    calls.convolution(
        spec, output, image, weights, num_threads=4, hooks={Word.EPILOGUE: address}
    ).serial()
    assert (seen == 1).all()
    close(output, expected, spec.k)


def test_groups_must_divide():
    with pytest.raises(ValueError, match="3 groups need channels and features"):
        problem(8, 16, GEOMETRIES["same"], groups=3)

"""Convolutions of volumes, whose images are those of plain ones, against these."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv import test_kernel as images
from treadle.backends.cpu.gemm.arguments import Word
from treadle.kernels.convolve import Axis
from treadle.ops.conv import Window, conv_general

# Depth, images of a result and taps, then as of an axis.
DEPTHS = {
    "same": Axis(5, 5, 3, padding=1),
    "valid": Axis(5, 3, 3),
    "strided": Axis(6, 3, 3, stride=2, padding=1),
    "dilated": Axis(4, 5, 2, padding=2, dilation=3),
    "cropped": Axis(6, 3, 2, padding=-2),
    "beside": Axis(2, 5, 2, padding=4, dilation=5),
    "single taps": Axis(5, 3, 1, stride=2),
}
SHAPES = {
    "few channels": (3, 5, (8, 9)),
    "many channels": (40, 33, (8, 9)),
    "patches": (5, 270, (6, 2)),
}


def problem(depth, shape, *, volumes=2, groups=1, **options):
    """Input, filter, output, what they are for, and the same of one image each."""
    channels, features, size = SHAPES[shape]
    channels, features = channels * groups, features * groups
    image, weights, output, flat = images.problem(
        *(channels, features, images.GEOMETRIES["same"]),
        **{"size": size, "groups": groups, **options},
    )
    rng = np.random.default_rng(1)
    x, w, out = (
        rng.standard_normal((n, *a.shape[1:]), "float32")
        for n, a in (
            (volumes * depth.size, image),
            (depth.taps * len(weights), weights),
            (volumes * depth.out, output),
        )
    )
    return x, w, out, replace(flat, images=len(out), z=depth), flat


def meetings(depth, volumes):
    """For each tap along z: numbers of images of the input and the output that meet."""
    for dz in range(depth.taps):
        pairs = [
            (n * depth.size + at, n * depth.out + z)
            for n in range(volumes)
            for z in range(depth.out)
            if (at := z * depth.stride + dz * depth.dilation - depth.padding) >= 0
            and at < depth.size
        ]
        yield dz, [list(numbers) for numbers in zip(*pairs, strict=True)] or [[], []]


def forward(x, w, out, depth, flat):
    total, rows = np.zeros(out.shape), flat.y.taps
    for dz, (read, written) in meetings(depth, len(out) // depth.out):
        taps = w[dz * rows : (dz + 1) * rows]
        total[written] += images.forward(x[read], taps, flat)
    return total


def filter_gradient(x, gradient, w, depth, flat):
    total, rows = np.zeros(w.shape), flat.y.taps
    for dz, (read, written) in meetings(depth, len(gradient) // depth.out):
        part = images.filter_gradient(x[read], gradient[written], flat)
        total[dz * rows : (dz + 1) * rows] = part
    return total


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("depth", DEPTHS.values(), ids=DEPTHS)
def test_forward(depth, shape):
    x, w, out, spec, flat = problem(depth, shape)
    results = []
    for num_threads in (1, 2, 5):
        results.append(np.full_like(out, np.nan))
        calls.convolution(spec, results[-1], x, w, num_threads=num_threads).serial()
    images.close(results[0], forward(x, w, out, depth, flat), spec.k)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("depth", DEPTHS.values(), ids=DEPTHS)
def test_filter_gradient(depth, shape):
    x, w, gradient, spec, flat = problem(depth, shape)
    results = []
    for num_threads in (1, 2, 5):
        results.append(np.full_like(w, np.nan))
        calls.filter_gradient(
            spec, results[-1], x, gradient, num_threads=num_threads
        ).serial()
    expected = filter_gradient(x, gradient, w, depth, flat)
    images.close(results[0], expected, gradient[..., 0].size)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_groups_and_filters_that_are_read_backwards():
    depth = DEPTHS["same"]
    x, w, out, spec, flat = problem(depth, "many channels", groups=2)
    spec = replace(spec, filter=replace(spec.filter, b0=-spec.filter.b0))
    last = (len(w) - 1) * w[0].size
    calls.convolution(spec, out, x, w, filter_offset=last).serial()
    images.close(out, forward(x, w[::-1], out, depth, flat), spec.k)


def test_epilogues_see_finished_images():
    depth = DEPTHS["same"]
    x, w, out, spec, flat = problem(depth, "many channels")
    expected = np.maximum(forward(x, w, out, depth, flat), 0)
    pixels = out.reshape(len(out), -1, spec.features)
    seen = np.zeros(pixels.shape, int)

    def clip(given, b0, b1, r0, r1, c0, c1):
        block = (b0, slice(r0, r1), slice(c0, c1))
        seen[block] += 1
        pixels[block] = np.maximum(pixels[block], 0)

    hook = calls.EPILOGUE(clip)
    address = calls.ctypes.cast(hook, calls.ctypes.c_void_p).value
    hooks = {Word.EPILOGUE: address}
    calls.convolution(spec, out, x, w, num_threads=4, hooks=hooks).serial()
    assert (seen == 1).all()
    images.close(out, expected, spec.k)


def test_volumes_are_read_where_they_lie():
    """A convolution and what follows it are one kernel, which copies nothing."""
    ones, how = (1, 1, 1), ((1, 1),) * 3
    params = Window(ones, how, ones, ones, 1)._asdict()

    def run(x, w):
        return td.numpy.maximum(conv_general(x, w, **params), 0)

    x, w = np.ones((2, 5, 6, 7, 8), "float32"), np.ones((3, 3, 3, 8, 16), "float32")
    text = str(td.jit(run).explain(x, w))
    assert "3x3x3x8" in text
    assert "concatenate" not in text
    assert "pad" not in text.replace("padding", "")
    transposed = np.ascontiguousarray(np.moveaxis(x, 3, 0))
    found = td.jit(lambda x, w: run(td.numpy.moveaxis(x, 0, 3), w))(transposed, w)
    np.testing.assert_allclose(found, run(x, w), rtol=1e-5)

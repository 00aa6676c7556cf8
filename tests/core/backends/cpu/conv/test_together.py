"""Convolutions of several images at once, against a plain loop and one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv.test_kernel import (
    GEOMETRIES,
    LAYOUTS,
    channels_last,
    close,
    forward,
    problem,
)
from tests.core.dynamic import same_bytes
from treadle.backends.cpu.conv import schedule as conv_schedule
from treadle.backends.cpu.gemm.arguments import Kind, Word
from treadle.ops.conv import Window, conv_general

SMALL = {"size": (6, 4), "images": 10}


def are_together(call):
    (launch,) = call.launches
    return launch.words[Word.KIND] == Kind.TOGETHER


def results(spec, output, image, weights):
    """By one, two and five threads."""
    found = []
    for num_threads in (1, 2, 5):
        result = np.full_like(output, np.nan)
        call = calls.convolution(spec, result, image, weights, num_threads=num_threads)
        assert are_together(call)
        call.serial()
        found.append(result)
    return found


CASES = {
    "same": ("same", {}),
    "double": ("same", {"dtype": "float64"}),
    "strided": ("strided", {"size": (9, 7)}),
    "dilated": ("dilated", {"size": (7, 6)}),
    "wide": ("same", {"filter_size": (3, 5), "size": (4, 6)}),
    "groups": ("same", {"groups": 2, "channels": 70, "features": 44}),
}


# Columns at steps are copied from channels that lie side by side.
LAID_OUT = [
    (case, layout)
    for case in CASES
    for layout in LAYOUTS
    if case != "strided" or layout is channels_last
]


@pytest.mark.parametrize(("case", "layout"), LAID_OUT)
def test_values(case, layout):
    geometry, options = CASES[case]
    options = {**SMALL, "channels": 35, "features": 40, **options}
    image, weights, output, spec = problem(
        options.pop("channels"),
        options.pop("features"),
        GEOMETRIES[geometry],
        layout=layout,
        **options,
    )
    first, *others = results(spec, output, image, weights)
    close(first, forward(image, weights, spec), spec.k)
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("geometry", ["same", "strided", "dilated"])
def test_an_image_has_the_same_bits_alone(geometry, monkeypatch):
    size = {**SMALL, "size": (9, 7)}
    image, weights, output, spec = problem(48, 33, GEOMETRIES[geometry], **size)
    first, *_ = results(spec, output, image, weights)
    monkeypatch.setattr(conv_schedule, "images_together", lambda spec, tile: 0)
    conv_schedule.of_fixed.cache_clear()
    alone = np.full_like(output, np.nan)
    for i in range(len(image)):
        one = replace(spec, images=1)
        call = calls.convolution(one, alone[i : i + 1], image[i : i + 1], weights)
        assert not are_together(call)
        call.serial()
    conv_schedule.of_fixed.cache_clear()
    np.testing.assert_array_equal(first, alone)


def test_filters_that_are_read_backwards():
    image, weights, gradient, spec = problem(36, 50, GEOMETRIES["same"], **SMALL)
    result = np.full_like(image, np.nan)
    target = calls.strides(result)
    backward, offset = calls.input_gradient(spec, calls.strides(gradient), target)
    call = calls.convolution(backward, result, gradient, weights, filter_offset=offset)
    assert are_together(call)
    call.serial()
    v = np.random.default_rng(1).standard_normal(image.shape)
    left = np.vdot(gradient.astype(np.float64), forward(v, weights, spec))
    right = np.vdot(result.astype(np.float64), v)
    assert abs(left - right) < 1e-6 * np.abs(gradient).sum() * spec.k**0.5


def test_producers_and_epilogues_see_images():
    """A producer that doubles the input, and may write a vector too much."""
    image, weights, output, spec = problem(35, 70, GEOMETRIES["same"], **SMALL)
    spec = replace(spec, fused_input=True)
    lanes = calls.gemm.tile(spec.dtype).lanes
    seen = np.zeros(output.shape, int).reshape(len(output), -1, 70)

    def produce(given, b0, b1, i0, i1, j0, j1, block, stride):
        rows, columns = (-(-n // lanes) * lanes for n in (i1 - i0, j1 - j0))
        count = (rows - 1) * stride + columns
        floats = calls.ctypes.cast(block, calls.ctypes.POINTER(calls.ctypes.c_float))
        target = np.lib.stride_tricks.as_strided(
            np.ctypeslib.as_array(floats, (count,)), (rows, columns), (4 * stride, 4)
        )
        target[:] = 1e9
        target[: i1 - i0, : j1 - j0] = 2 * image[b0, b1, i0:i1, j0:j1]

    def count(given, b0, b1, r0, r1, c0, c1):
        assert b1 == 0
        seen[b0, r0:r1, c0:c1] += 1

    hooks = {Word.PACK_A: calls.PRODUCER(produce), Word.EPILOGUE: calls.EPILOGUE(count)}
    hooks_at = {
        word: calls.ctypes.cast(hook, calls.ctypes.c_void_p).value
        for word, hook in hooks.items()
    }
    call = calls.convolution(
        spec, output, image, weights, num_threads=4, hooks=hooks_at
    )
    assert are_together(call)
    call.serial()
    assert (seen == 1).all()
    close(output, 2 * forward(image, weights, spec), 2 * spec.k)


def test_one_image_and_wide_images_are_padded():
    for changed in ({"images": 1}, {"size": (6, 90)}):
        image, weights, output, spec = problem(
            35, 40, GEOMETRIES["same"], **{**SMALL, **changed}
        )
        assert not are_together(calls.convolution(spec, output, image, weights))


def test_borders_that_most_taps_miss_are_worth_it_for_one_image():
    axes = ({"padding": 12, "dilation": 12},) * 2
    image, weights, output, spec = problem(32, 40, axes, images=1, size=(36, 36))
    first, *_ = results(spec, output, image, weights)
    close(first, forward(image, weights, spec), spec.k)


def test_images_of_any_number_and_size():
    """One trace for images together and alone; an epilogue with a number for each."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 3, 32, 40)).astype("float32")
    how = Window((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)._asdict()

    def run(x, w, b):
        return td.numpy.maximum(conv_general(x, w, **how) + b[:, None, None, None], 0)

    names = {"x": ("n", "h", "w", None), "b": ("n",)}
    compiled = td.jit(run, dynamic=names)
    for n, size in ((8, 5), (3, 2), (1, 4), (2, 40)):
        x = rng.normal(size=(n, 4, size, 32)).astype("float32")
        b = rng.normal(size=n).astype("float32")
        found, wanted = compiled(x, w, b), td.jit(lambda *a: run(*a))(x, w, b)
        assert not (why := same_bytes(found, wanted)), f"{n}, {size}: {why}"
        np.testing.assert_allclose(found, run(x, w, b), rtol=1e-4, atol=1e-4)
    assert compiled.report().traces == 1

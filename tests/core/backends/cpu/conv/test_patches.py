"""Convolutions of small images as products of packed patches, against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv.test_kernel import (
    GEOMETRIES,
    close,
    forward,
    problem,
)
from tests.core.dynamic import same_bytes
from treadle.backends.cpu.gemm.arguments import PATCHES, Word
from treadle.kernels.contract import Strides
from treadle.ops.conv import Window, conv_general

SMALL = {"size": (6, 2), "filter_size": (2, 2), "images": 5}


def packs(call):
    (launch,) = call.launches
    return launch.words[Word.PACK_A] == PATCHES


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", [5, 300])
@pytest.mark.parametrize("geometry", ["same", "strided", "everything"])
def test_values(geometry, channels, dtype):
    """With 300 channels a piece of k ends within a tap."""
    image, weights, output, spec = problem(
        channels, 270, GEOMETRIES[geometry], dtype=dtype, **SMALL
    )
    results = []
    for num_threads in (1, 2, 5):
        results.append(np.full_like(output, np.nan))
        call = calls.convolution(
            spec, results[-1], image, weights, num_threads=num_threads
        )
        assert packs(call)
        call.serial()
    close(results[0], forward(image, weights, spec), spec.k)
    for other in results[1:]:
        np.testing.assert_array_equal(results[0], other)


def test_filters_that_are_read_backwards():
    image, weights, gradient, spec = problem(260, 30, GEOMETRIES["same"], **SMALL)
    result = np.full_like(image, np.nan)
    target = calls.strides(result)
    backward, offset = calls.input_gradient(
        spec, calls.strides(gradient), Strides(target.b0, 0, target.row, 1)
    )
    call = calls.convolution(backward, result, gradient, weights, filter_offset=offset)
    assert packs(call)
    call.serial()
    v = np.random.default_rng(1).standard_normal(image.shape)
    left = np.vdot(gradient.astype(np.float64), forward(v, weights, spec))
    right = np.vdot(result.astype(np.float64), v)
    assert abs(left - right) < 1e-6 * np.abs(gradient).sum() * spec.k**0.5


def test_epilogues_see_images():
    image, weights, output, spec = problem(16, 270, GEOMETRIES["same"], **SMALL)
    seen = np.zeros(output.shape, int).reshape(len(output), -1, 270)

    def count(given, b0, b1, r0, r1, c0, c1):
        assert b1 == 0
        assert r0 < r1 <= seen.shape[1]
        seen[b0, r0:r1, c0:c1] += 1

    hook = calls.EPILOGUE(count)
    address = calls.ctypes.cast(hook, calls.ctypes.c_void_p).value
    call = calls.convolution(
        spec, output, image, weights, num_threads=4, hooks={Word.EPILOGUE: address}
    )
    assert packs(call)
    call.serial()
    assert (seen == 1).all()


def test_larger_images_and_fewer_features_are_read_in_place():
    for size, features in (((6, 60), 270), ((6, 2), 40)):
        image, weights, output, spec = problem(
            4, features, GEOMETRIES["same"], **{**SMALL, "size": size}
        )
        assert not packs(calls.convolution(spec, output, image, weights))


def test_images_of_any_size():
    """One trace for images that are packed and for others; an epilogue with a number
    for each image."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 3, 4, 256)).astype("float32")
    how = Window((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)._asdict()

    def run(x, w, b):
        return td.numpy.maximum(conv_general(x, w, **how) + b[:, None, None, None], 0)

    names = {"x": ("n", "h", "w", None), "b": ("n",)}
    compiled = td.jit(run, dynamic=names)
    for n, size in ((2, 5), (3, 2), (1, 4), (2, 40)):
        x = rng.normal(size=(n, 4, size, 4)).astype("float32")
        b = rng.normal(size=n).astype("float32")
        found, wanted = compiled(x, w, b), td.jit(lambda *a: run(*a))(x, w, b)
        assert not (why := same_bytes(found, wanted)), f"{n}, {size}: {why}"
        np.testing.assert_allclose(found, run(x, w, b), rtol=1e-4, atol=1e-4)
    assert compiled.report().traces == 1

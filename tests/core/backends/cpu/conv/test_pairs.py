"""Convolutions of bfloat16 and their gradients by the filter, as pairs, against a loop
over taps in float64: by the model of what multiplies them, and by this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv import test_kernel as plain
from treadle.backends.cpu.conv import pairs, pairs_schedule
from treadle.backends.cpu.gemm.arguments import Tile, Word
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run import native
from treadle.backends.cpu.target import multiplies_pairs
from treadle.dtypes import bfloat16, float32
from treadle.kernels.convolve import ConvSpec

MODEL = Machine("float", Tile(16, 14), "", pairs=True)
MACHINES = [MODEL, *([pairs.machine()] if multiplies_pairs() else [])]
EACH = pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.assembly or "model")
CHANNELS = [(1, 32), (3, 5), (20, 33), (33, 70)]
RESULTS = (bfloat16, float32)


def address(machine: Machine, gradient: bool) -> int:
    source = native.Source(
        f"test/pairs/{machine}/{gradient}",
        "convolve",
        lambda: pairs.emit_module(machine, gradient),
    )
    return native.load([source])[source.key]


def call(
    spec: ConvSpec,
    machine: Machine,
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray],
    gradient: bool = False,
    num_threads: int = 1,
    filter_offset: int = 0,
) -> calls.Call:
    """A convolution, or its gradient by the filter: of two arrays, into the third."""
    machine = replace(machine, short=arrays[2].dtype == bfloat16)
    launches = pairs_schedule.schedule(spec, gradient, machine.tile, num_threads)
    pointers = dict(zip((Word.A, Word.B, Word.C), arrays, strict=True))
    where = address(machine, gradient)
    offsets = {Word.B: filter_offset}
    return calls.Call(tuple(launches), pointers, None, where, offsets)


def in_part(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Channels at odd places of larger pixels, in larger rows."""
    images, height, width, channels = shape
    array = rng.standard_normal((images, height, 2 * width, channels + 2))
    return array.astype(dtype)[:, :, ::2, 1 : channels + 1]


LAYOUTS = (plain.channels_last, in_part)


def problem(
    channels: tuple[int, int], geometry: str, result: Any, **options: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, ConvSpec]:
    axes = plain.GEOMETRIES[geometry]
    found = plain.problem(*channels, axes, dtype=bfloat16, **options)
    image, weights, output, spec = found
    return image, weights, output, replace(spec, dtype=result, operands=bfloat16)


def close(found: np.ndarray, wanted: np.ndarray, terms: int) -> None:
    """Sums in float32, rounded once."""
    error = np.abs(found.astype(np.float64) - wanted) - 2e-7 * (2 * terms + 64)
    if found.dtype == bfloat16:
        error -= np.abs(wanted) * 2.0**-8
    assert error.max() <= 0


def forward(image: np.ndarray, weights: np.ndarray, spec: ConvSpec) -> np.ndarray:
    return plain.forward(image.astype(np.float64), weights.astype(np.float64), spec)


@EACH
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("geometry", plain.GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_forward(channels, geometry, layout, machine) -> None:
    for result in RESULTS:
        image, weights, output, spec = problem(
            channels, geometry, result, layout=layout
        )
        # What is beside the result is not written.
        images, height, width, features = output.shape
        around = np.full((images, height, width, features + 7), 5, result)
        output = around[..., :features]
        steps = calls.strides(output)
        spec = replace(spec, output=steps)
        call(spec, machine, (image, weights, output), num_threads=3).serial()
        close(output, forward(image, weights, spec), spec.k)
        assert (around[..., features:] == 5).all()


@EACH
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("geometry", plain.GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_filter_gradient(channels, geometry, layout, machine) -> None:
    for result, images in zip(RESULTS, (3, 4), strict=True):
        image, weights, gradient, spec = problem(
            channels, geometry, result, layout=layout, images=images
        )
        wide = image.astype(np.float64), gradient.astype(np.float64)
        expected = plain.filter_gradient(*wide, spec)
        results = []
        for num_threads in (1, 2, 5):
            found = np.empty(weights.shape, result)
            arrays = image, gradient, found
            call(spec, machine, arrays, True, num_threads).serial()
            close(found, expected, gradient[..., 0].size)
            results.append(found)
        for other in results[1:]:
            np.testing.assert_array_equal(results[0], other)


@EACH
@pytest.mark.parametrize("groups", [2, 5])
@pytest.mark.parametrize("each", [1, 3, 4])
def test_groups(each, groups, machine) -> None:
    image, weights, output, spec = problem(
        (each * groups, 7 * groups), "strided", float32, groups=groups
    )
    found = output.astype(float32)
    call(spec, machine, (image, weights, found), num_threads=2).serial()
    close(found, forward(image, weights, spec), spec.k)
    expected = plain.filter_gradient(
        image.astype(np.float64), output.astype(np.float64), spec
    )
    result = np.empty(weights.shape, np.float32)
    call(spec, machine, (image, output, result), True).serial()
    close(result, expected, output[..., 0].size)


@EACH
@pytest.mark.parametrize("channels", [(6, 4), (20, 32), (7, 32), (6, 5), (40, 70)])
def test_filters_that_are_turned(channels, machine) -> None:
    """As gradients by the input read them: backwards, with features beside each other,
    which are the channels then."""
    image, weights, _, spec = problem(channels, "same", float32)
    features = channels[1]
    gradient = plain.channels_last(
        np.random.default_rng(3), (*image.shape[:3], features), bfloat16
    )
    target = np.empty(image.shape, np.float32)
    steps = calls.strides(target)
    backward, offset = calls.input_gradient(spec, calls.strides(gradient), steps)
    call(backward, machine, (gradient, weights, target), False, 1, offset).serial()
    turned = np.flip(weights, (0, 1)).swapaxes(2, 3)
    close(target, forward(gradient, turned, backward), backward.k)


@EACH
def test_images_of_many_slabs_and_panels(machine) -> None:
    image, weights, output, spec = problem(
        (64, 130), "same", bfloat16, size=(80, 60), images=2
    )
    wanted = forward(image, weights, spec)
    results = []
    for num_threads in (1, 7):
        found = np.empty(output.shape, bfloat16)
        call(spec, machine, (image, weights, found), num_threads=num_threads).serial()
        results.append(found)
    close(results[0], wanted, spec.k)
    np.testing.assert_array_equal(*results)


def special(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers, so that products and sums are subnormal, and in the last image an
    infinity and a NaN."""
    found = rng.standard_normal(shape) * 2.0 ** rng.integers(-12, 1, shape)
    found[0] *= 2.0**-120
    found[-1, 0, 0, 0], found[-1, -1, -1, -1] = np.inf, np.nan
    return found.astype(bfloat16)


@pytest.mark.skipif(not multiplies_pairs(), reason="a CPU that multiplies no pairs")
@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("channels", [(5, 40), (8, 3)])
def test_the_model_gives_the_bits_of_the_instructions(channels, result) -> None:
    image, weights, output, spec = problem(channels, "same", result)
    rng = np.random.default_rng(7)
    image, output = (special(rng, a.shape) for a in (image, output))
    weights[...] *= 2.0**-8
    found: list[list[np.ndarray]] = []
    for machine in MACHINES:
        forwards = np.empty(output.shape, result)
        backwards = np.empty(weights.shape, result)
        call(spec, machine, (image, weights, forwards)).serial()
        call(spec, machine, (image, output, backwards), True).serial()
        found.append([forwards, backwards])
    for one, other in zip(*found, strict=True):
        assert np.isfinite(one).sum() > 0
        np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
        bits = one.view(f"u{result.itemsize}"), other.view(f"u{result.itemsize}")
        np.testing.assert_array_equal(*(np.where(np.isnan(one), 0, x) for x in bits))


@EACH
def test_missing_neighbours_are_zeros(machine) -> None:
    """What is infinite meets only what it should, and not a missing channel or image's
    zeros."""
    image, weights, gradient, spec = problem((3, 5), "valid", float32, images=3)
    image[0, 0, 0] = np.inf
    weights[...] = 1
    found = np.empty(gradient.shape, np.float32)
    call(spec, machine, (image, weights, found)).serial()
    assert np.isinf(found[0, 0, 0]).all() and np.isfinite(found[0, 1:]).all()
    gradient[2, 5, 6] = np.inf
    image[...] = 1
    result = np.empty(weights.shape, np.float32)
    call(spec, machine, (image, gradient, result), True).serial()
    assert np.isposinf(result).all()

"""Convolutions by Winograd's tiles, against a plain loop over taps in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv import test_volumes as volumes
from tests.core.backends.cpu.conv.test_kernel import (
    LAYOUTS,
    filter_gradient,
    forward,
    problem,
)
from tests.core.dynamic import same_bytes
from treadle.backends.cpu.conv import winograd_schedule
from treadle.backends.cpu.conv.arguments import WinogradWord
from treadle.backends.cpu.gemm.arguments import Kind, Word
from treadle.ops.conv import Window, conv_filter_grad, conv_general

PADDINGS = {
    "same": ({"padding": 1}, {"padding": 1}),
    "valid": ({}, {}),
    "wide": ({"padding": 4}, {"padding": 2}),
    "cropped": ({"padding": -1}, {"padding": -2}),
}
SIZES = [(8, 9), (4, 4), (7, 6), (5, 3), (16, 33)]
OF_TILES = {"schedule": winograd_schedule.of_tiles}
GRADIENT_OF_TILES = {"schedule": winograd_schedule.gradient_of_tiles}


def near(actual, expected):
    """To a few roundings of a typical number."""
    error = np.abs(actual - expected).max()
    assert error < 3e-5 * expected.std(), error / expected.std()


def forwards(spec, output, image, weights, **options):
    """By one, two, three and eight threads."""
    found = []
    for num_threads in (1, 2, 3, 8):
        result = np.full_like(output, np.nan)
        call = calls.convolution(
            spec, result, image, weights, num_threads=num_threads, **OF_TILES, **options
        )
        assert call.launches[0].words[Word.KIND] == winograd_schedule.form_of(spec).kind
        call.serial()
        found.append(result)
    for other in found:
        np.testing.assert_array_equal(found[0], other)
    return found[0]


def gradients(spec, weights, image, gradient, **options):
    found = []
    for num_threads in (1, 2, 3, 8):
        result = np.full_like(weights, np.nan)
        call = calls.filter_gradient(
            spec, result, image, gradient, num_threads=num_threads,
            **GRADIENT_OF_TILES, **options,
        )  # fmt: skip
        form = winograd_schedule.form_of(spec)
        assert call.launches[0].words[Word.KIND] == form.filter_kind
        call.serial()
        found.append(result)
    for other in found:
        np.testing.assert_array_equal(found[0], other)
    return found[0]


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values(size, padding):
    if padding == "cropped" and min(size) < 7:
        size = (9, 10)
    elif padding == "valid" and min(size) < 4:
        size = (6, 4)
    image, weights, output, spec = problem(20, 33, PADDINGS[padding], size=size)
    near(forwards(spec, output, image, weights), forward(image, weights, spec))
    expected = filter_gradient(image, output, spec)
    near(gradients(spec, weights, image, output), expected)


@pytest.mark.parametrize("apart", [(2, 2), (1, 3), (5, 2)], ids=str)
@pytest.mark.parametrize("size", [(9, 21), (16, 16), (3, 7)], ids=str)
def test_taps_that_are_apart(size, apart):
    geometry = tuple([{"padding": n, "dilation": n} for n in apart])
    image, weights, output, spec = problem(20, 33, geometry, size=size)
    near(forwards(spec, output, image, weights), forward(image, weights, spec))
    expected = filter_gradient(image, output, spec)
    near(gradients(spec, weights, image, output), expected)


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("shape", ["few channels", "many channels"])
@pytest.mark.parametrize("depth", volumes.DEPTHS)
def test_volumes(depth, shape, small, monkeypatch):
    for name, value in SMALL.items() if small else ():
        monkeypatch.setattr(winograd_schedule, name, value)
    axis = volumes.DEPTHS[depth]
    x, w, out, spec, flat = volumes.problem(axis, shape)
    near(forwards(spec, out, x, w), volumes.forward(x, w, out, axis, flat))
    expected = volumes.filter_gradient(x, out, w, axis, flat)
    near(gradients(spec, w, x, out), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [(4, 3), (17, 16), (130, 70)], ids=str)
def test_layouts_and_channels(channels, layout):
    image, weights, output, spec = problem(*channels, PADDINGS["same"], layout=layout)
    near(forwards(spec, output, image, weights), forward(image, weights, spec))
    expected = filter_gradient(image, output, spec)
    near(gradients(spec, weights, image, output), expected)


SMALL = {
    "_STREAM_BYTES": 1 << 14,
    "_INPUT_BYTES": 1 << 15,
    "_FILTER_BYTES": 1 << 16,
    "_ALL_SUMS_BYTES": 1 << 18,
    "_SUMS_BYTES": 1 << 16,
    "_LEAST_TILES": 2,
    "_TILES": 3,
}


@pytest.mark.parametrize("apart", [1, 2])
@pytest.mark.parametrize("size", [(9, 8), (6, 130), (70, 6)], ids=str)
def test_several_units_parts_chunks_and_pieces(size, apart, monkeypatch):
    """As if the caches were small."""
    for name, value in SMALL.items():
        monkeypatch.setattr(winograd_schedule, name, value)
    geometry = ({"padding": apart, "dilation": apart},) * 2
    image, weights, output, spec = problem(60, 100, geometry, size=size)
    call = calls.convolution(spec, output, image, weights, **OF_TILES)
    words = call.launches[0].words
    assert not words[WinogradWord.STREAMS]
    if size[1] == 130:
        assert words[WinogradWord.PART] < words[WinogradWord.TILES_X]
    near(forwards(spec, output, image, weights), forward(image, weights, spec))
    expected = filter_gradient(image, output, spec)
    near(gradients(spec, weights, image, output), expected)


def test_filters_that_are_read_backwards():
    image, weights, gradient, spec = problem(36, 50, PADDINGS["same"])
    target = calls.strides(image)
    backward, at = calls.input_gradient(spec, calls.strides(gradient), target)
    result = forwards(backward, image, gradient, weights, filter_offset=at)
    flipped = weights[::-1, ::-1].swapaxes(2, 3)
    near(result, forward(gradient, flipped, backward))


def hook(kind, function):
    made = kind(function)
    return calls.ctypes.cast(made, calls.ctypes.c_void_p).value, made


def writing(source, lanes):
    """A producer of twice an array, which writes a vector too much."""

    def produce(given, b0, b1, i0, i1, j0, j1, block, stride):
        rows, columns = (-(-n // lanes) * lanes for n in (i1 - i0, j1 - j0))
        columns = min(columns, stride)
        count = (rows - 1) * stride + columns
        floats = calls.ctypes.cast(block, calls.ctypes.POINTER(calls.ctypes.c_float))
        target = np.lib.stride_tricks.as_strided(
            np.ctypeslib.as_array(floats, (count,)), (rows, columns), (4 * stride, 4)
        )
        target[:] = 1e9
        target[: i1 - i0, : j1 - j0] = 2 * source[b0, b1, i0:i1, j0:j1]

    return produce


def near_by_hooks(image, weights, output, spec):
    """What producers give is read, and each element is seen by an epilogue, once by
    each number of threads."""
    spec = replace(spec, fused_input=True)
    lanes = calls.gemm.tile(spec.dtype).lanes
    features = output.shape[-1]
    seen = np.zeros(output.shape, int).reshape(len(output), -1, features)

    def count(given, b0, b1, r0, r1, c0, c1):
        assert b1 == 0
        seen[b0, r0:r1, c0:c1] += 1

    hooks = {
        Word.PACK_A: hook(calls.PRODUCER, writing(image, lanes)),
        Word.PACK_B: hook(calls.PRODUCER, writing(weights, lanes)),
        Word.EPILOGUE: hook(calls.EPILOGUE, count),
    }
    addresses = {word: address for word, (address, _) in hooks.items()}
    result = forwards(spec, output, image, weights, hooks=addresses)
    assert (seen == 4).all()
    near(result, 4 * forward(image, weights, spec))


def gradient_near_by_hooks(image, weights, output, spec):
    """The same of the gradient by the filter."""
    spec = replace(spec, fused_input=True)
    lanes = calls.gemm.tile(spec.dtype).lanes
    pixels = output.reshape(len(output), 1, -1, output.shape[-1])
    hooks = {
        Word.PACK_A: hook(calls.PRODUCER, writing(image, lanes)),
        Word.PACK_B: hook(calls.PRODUCER, writing(pixels, lanes)),
    }
    addresses = {word: address for word, (address, _) in hooks.items()}
    result = gradients(spec, weights, image, output, hooks=addresses)
    near(result, 4 * filter_gradient(image, output, spec))


@pytest.mark.parametrize("small", [False, True])
def test_producers_and_epilogues(small, monkeypatch):
    for name, value in SMALL.items() if small else ():
        monkeypatch.setattr(winograd_schedule, name, value)
    image, weights, output, spec = problem(
        35, 70, PADDINGS["same"], size=(9, 130 if small else 8)
    )
    near_by_hooks(image, weights, output, spec)


def test_producers_of_gradients():
    gradient_near_by_hooks(*problem(35, 70, PADDINGS["same"], size=(6, 7)))


def kinds(spec):
    """Which kernels run a convolution, and its gradient by the filter."""
    tile = calls.gemm.tile(spec.dtype)
    made = [
        winograd_schedule.schedule(spec, tile, 2),
        winograd_schedule.filter_gradient(spec, tile, 2),
    ]
    return [launches[0].words[Word.KIND] for launches in made]


def test_what_is_done_by_tiles():
    wide = {"size": (32, 32), "images": 2}
    *_, spec = problem(64, 64, PADDINGS["same"], **wide)
    assert kinds(spec) == [Kind.WINOGRAD, Kind.WINOGRAD_FILTER]
    *_, spec = problem(64, 64, ({"padding": 2, "dilation": 2},) * 2, **wide)
    assert kinds(spec) == [Kind.WINOGRAD, Kind.WINOGRAD_FILTER]
    others = [
        problem(64, 64, PADDINGS["same"], dtype="float64", **wide),
        problem(64, 64, PADDINGS["same"], groups=2, **wide),
        problem(64, 64, ({"padding": 1, "stride": 2},) * 2, **wide),
        problem(64, 64, ({"padding": 15, "dilation": 15},) * 2, **wide),
        problem(64, 64, ({}, {}), filter_size=(3, 1), **wide),
        problem(3, 8, PADDINGS["same"], **wide),
        problem(512, 512, PADDINGS["same"], size=(4, 4), images=1),
        problem(128, 128, PADDINGS["same"], size=(2, 2), images=16),
    ]
    for *_, spec in others:
        assert not {Kind.WINOGRAD, Kind.WINOGRAD_FILTER}.intersection(kinds(spec))


HOW = Window((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)._asdict()


def test_images_of_any_number_and_size():
    """One trace for sizes that are done by tiles and others: the bits are those of
    programs for one size."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 3, 64, 48)).astype("float32")

    def run(x, w, b, ct):
        out = td.numpy.maximum(conv_general(x, w, **HOW) + b, 0)
        return out, conv_filter_grad(x, ct, kernel=(3, 3), **HOW)

    names = {"x": ("n", "h", "w", None), "ct": ("n", "h", "w", None)}
    compiled = td.jit(run, dynamic=names)
    found = set()
    for n, height, width in ((2, 8, 8), (1, 2, 2), (3, 5, 21), (16, 4, 4), (1, 3, 1)):
        x = rng.normal(size=(n, height, width, 64)).astype("float32")
        b = rng.normal(size=48).astype("float32")
        ct = rng.normal(size=(n, height, width, 48)).astype("float32")
        *_, spec = problem(64, 48, PADDINGS["same"], size=(height, width), images=n)
        found.add(tuple(kinds(spec)))
        made = compiled(x, w, b, ct)
        wanted = td.jit(lambda *a: run(*a))(x, w, b, ct)
        for one, other in zip(made, wanted, strict=True):
            assert not (why := same_bytes(one, other)), f"{n, height, width}: {why}"
        near(np.asarray(made[1]), filter_gradient(x, ct, spec))
    assert len(found) >= 2
    assert compiled.report().traces == 1


TWO, THREE = (((n, n),) * rank for n, rank in ((2, 2), (1, 3)))
OPEN = {
    "taps apart": (Window((1, 1), TWO, (1, 1), (2, 2), 1), [(2, 16, 16), (1, 3, 9)]),
    "volumes": (Window(*[(1,) * 3, THREE], *[(1,) * 3] * 2, 1), [(2, 3, 9, 21)]),
}


@pytest.mark.parametrize("name", OPEN)
def test_open_sizes_have_the_bits_of_fixed_ones(name):
    window, sizes = OPEN[name]
    rng, how = np.random.default_rng(0), window._asdict()
    rank = len(window.strides)
    kernel = (3,) * rank
    w = rng.normal(size=(*kernel, 40, 48)).astype("float32")

    def run(x, w, ct):
        return conv_general(x, w, **how), conv_filter_grad(x, ct, kernel=kernel, **how)

    names = (*"ndhw"[: rank + 1], None)
    compiled = td.jit(run, dynamic={"x": names, "ct": names})
    for size in (*sizes, (1,) * (rank + 1)):
        x, ct = (rng.normal(size=(*size, n)).astype("float32") for n in (40, 48))
        wanted = td.jit(lambda *a: run(*a))(x, w, ct)
        for one, other in zip(compiled(x, w, ct), wanted, strict=True):
            assert not (why := same_bytes(one, other)), f"{size}: {why}"
    assert compiled.report().traces == 1


@pytest.mark.parametrize("channels", [64, 256])
def test_what_is_lost(channels):
    """PyTorch's products lose between 1.3e-7 and 1.1e-6 of a typical number, those of
    pixels here 2.6e-7 to 1.1e-6."""
    sizes = {"size": (32, 32), "images": 2}
    image, weights, output, spec = problem(channels, 48, PADDINGS["same"], **sizes)
    expected = filter_gradient(image, output, spec)
    for found, wanted in (
        (gradients(spec, weights, image, output), expected),
        (forwards(spec, output, image, weights), forward(image, weights, spec)),
    ):
        assert np.sqrt(((found - wanted) ** 2).mean()) < 9e-7 * wanted.std()


def test_what_is_asked_to_be_exact_is_not():
    """Infinities stay where products with them are."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1, 32, 32, 64)).astype("float32")
    w = rng.normal(size=(3, 3, 64, 64)).astype("float32")
    x[0, 9, 9] = np.inf
    touched = np.zeros((1, 32, 32, 64), bool)
    touched[0, 8:11, 8:11] = True
    order = ("NHWC", "HWIO", "NHWC")

    def back(precision, x, w):
        def f(x):
            return td.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=order, precision=precision
            )

        out, vjp = td.vjp(f, x)
        return out, *vjp(x)

    for found in td.jit(lambda x, w: back("highest", x, w))(x, w):
        np.testing.assert_array_equal(~np.isfinite(found), touched)
    for found in td.jit(lambda x, w: back(None, x, w))(x, w):
        apart = ~np.isfinite(found)
        assert apart[touched].all()
        assert apart.sum() > touched.sum()

"""Convolutions of three taps of a row by Winograd's tiles, against a plain loop over
taps in float64."""

from __future__ import annotations

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
from tests.core.backends.cpu.conv.test_winograd import (
    OF_TILES,
    SMALL,
    forwards,
    gradient_near_by_hooks,
    gradients,
    kinds,
    near,
    near_by_hooks,
)
from tests.core.dynamic import same_bytes
from treadle.backends.cpu.conv import winograd_schedule
from treadle.backends.cpu.conv.arguments import WinogradWord
from treadle.backends.cpu.gemm.arguments import Kind
from treadle.ops.conv import Window, conv_filter_grad, conv_general

ROW = {"filter_size": (1, 3)}
SAME = {}, {"padding": 1}
PADDINGS = {
    "same": SAME,
    "valid": ({}, {}),
    "wide": ({"padding": 1}, {"padding": 4}),
    "cropped": ({"padding": -1}, {"padding": -2}),
    "causal, taps apart": ({"dilation": 5}, {"padding": 10, "dilation": 5}),
    "taps apart": ({"dilation": 2}, {"padding": 3, "dilation": 3}),
}
SMALL_LINES = SMALL | {
    "_LINE_PIECE": 48,
    "_LINE_TILES": 3,
    "_INPUT_BYTES": 1 << 13,
    "_FILTER_BYTES": 1 << 14,
    "_ALL_SUMS_BYTES": 1 << 15,
    "_SUMS_BYTES": 1 << 14,
}


@pytest.fixture(params=[False, True], ids=["caches", "small caches"])
def small(request, monkeypatch):
    for name, value in SMALL_LINES.items() if request.param else ():
        monkeypatch.setattr(winograd_schedule, name, value)
    return request.param


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("size", [(1, 41), (3, 9), (70, 6), (4, 130)], ids=str)
def test_values(size, padding, small):
    how = PADDINGS[padding]
    if padding == "cropped":
        size = (size[0] + 2, size[1] + 4)
    image, weights, output, spec = problem(20, 33, how, size=size, **ROW)
    near(forwards(spec, output, image, weights), forward(image, weights, spec))
    expected = filter_gradient(image, output, spec)
    near(gradients(spec, weights, image, output), expected)


@pytest.mark.parametrize("depth", volumes.DEPTHS)
def test_volumes(depth, small):
    axis = volumes.DEPTHS[depth]
    x, w, out, spec, flat = volumes.problem(axis, "many channels", **ROW)
    near(forwards(spec, out, x, w), volumes.forward(x, w, out, axis, flat))
    expected = volumes.filter_gradient(x, out, w, axis, flat)
    near(gradients(spec, w, x, out), expected)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", [(4, 3), (17, 16), (130, 70)], ids=str)
def test_layouts_and_channels(channels, layout, small):
    sizes = {"size": (3, 19), "layout": layout, **ROW}
    image, weights, output, spec = problem(*channels, SAME, **sizes)
    near(forwards(spec, output, image, weights), forward(image, weights, spec))
    expected = filter_gradient(image, output, spec)
    near(gradients(spec, weights, image, output), expected)


def test_parts_of_long_lines(small):
    image, weights, output, spec = problem(60, 100, SAME, size=(1, 1030), **ROW)
    words = calls.convolution(spec, output, image, weights, **OF_TILES)
    words = words.launches[0].words
    assert (words[WinogradWord.PART] < words[WinogradWord.TILES_X]) == small
    assert words[WinogradWord.STREAMS] != small
    near(forwards(spec, output, image, weights), forward(image, weights, spec))
    expected = filter_gradient(image, output, spec)
    near(gradients(spec, weights, image, output), expected)


def test_filters_that_are_read_backwards():
    image, weights, gradient, spec = problem(36, 50, SAME, size=(2, 30), **ROW)
    target = calls.strides(image)
    backward, at = calls.input_gradient(spec, calls.strides(gradient), target)
    result = forwards(backward, image, gradient, weights, filter_offset=at)
    flipped = weights[:, ::-1].swapaxes(2, 3)
    near(result, forward(gradient, flipped, backward))


def test_producers_and_epilogues(small):
    given = problem(35, 70, SAME, size=(3, 130), **ROW)
    near_by_hooks(*given)
    gradient_near_by_hooks(*given)


def test_what_is_done_by_lines():
    long = {"size": (1, 300), **ROW}
    tiles = [Kind.WINOGRAD_LINES, Kind.WINOGRAD_LINES_FILTER]
    *_, spec = problem(64, 64, SAME, **long)
    assert kinds(spec) == tiles
    *_, spec = problem(64, 64, ({}, {"padding": 2, "dilation": 2}), **long)
    assert kinds(spec) == tiles
    others = [
        problem(64, 64, SAME, dtype="float64", **long),
        problem(64, 64, SAME, groups=2, **long),
        problem(64, 64, ({}, {"padding": 1, "stride": 2}), **long),
        problem(64, 64, ({"stride": 2}, {}), size=(9, 300), **ROW),
        problem(64, 64, ({}, {"padding": 1}), size=(1, 300), filter_size=(1, 5)),
        problem(3, 8, SAME, **long),
        problem(256, 256, SAME, size=(1, 6), images=1, **ROW),
        problem(64, 64, SAME, size=(1, 2), images=64, **ROW),
    ]
    for *_, spec in others:
        assert not set(tiles).intersection(kinds(spec))


HOW = Window((1,), ((1, 1),), (1,), (1,), 1)._asdict()


@pytest.mark.parametrize("padding", [(1, 1), (0, 0), (4, 0)], ids=str)
@pytest.mark.parametrize("apart", [1, 2])
def test_lines_of_any_number_and_length(apart, padding):
    """One trace for lengths that are done by tiles and others: the bits are those of
    programs for one length."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 64, 48)).astype("float32")
    how = HOW | {"padding": (padding,), "rhs_dilation": (apart,)}

    def run(x, w, b, ct):
        out = td.numpy.maximum(conv_general(x, w, **how) + b, 0)
        return out, conv_filter_grad(x, ct, kernel=(3,), **how)

    less = sum(padding) - 2 * apart
    compiled = td.jit(run, dynamic={"x": ("n", "t", None), "ct": ("n", "u", None)})
    found = set()
    for n, length in ((2, 300), (1, 5), (3, 41), (16, 7), (1, 6)):
        x = rng.normal(size=(n, length, 64)).astype("float32")
        b = rng.normal(size=48).astype("float32")
        ct = rng.normal(size=(n, length + less, 48)).astype("float32")
        padded = {"padding": padding[0], "dilation": apart}
        *_, spec = problem(64, 48, ({}, padded), size=(1, length), images=n, **ROW)
        found.add(tuple(kinds(spec)))
        made = compiled(x, w, b, ct)
        wanted = td.jit(lambda *a: run(*a))(x, w, b, ct)
        for one, other in zip(made, wanted, strict=True):
            assert not (why := same_bytes(one, other)), f"{n, length}: {why}"
    assert len(found) >= 2


@pytest.mark.parametrize(("channels", "length"), [(64, 2048), (512, 256)])
def test_what_is_lost(channels, length):
    """Less than by squares, and than pixel by pixel of as many channels."""
    sizes = {"size": (1, length), "images": 2, **ROW}
    image, weights, output, spec = problem(channels, 16, SAME, **sizes)
    expected = filter_gradient(image, output, spec)
    for found, wanted in (
        (gradients(spec, weights, image, output), expected),
        (forwards(spec, output, image, weights), forward(image, weights, spec)),
    ):
        assert np.sqrt(((found - wanted) ** 2).mean()) < 6e-7 * wanted.std()

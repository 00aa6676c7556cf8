"""Convolutions of bfloat16 on tile registers, and their gradients by the filter, beside
a loop over taps in float64: by the model of the tiles, and by this machine's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv import test_kernel as plain
from tests.core.backends.cpu.conv import test_volumes as volumes
from tests.core.backends.cpu.conv.test_pairs import (
    LAYOUTS,
    RESULTS,
    close,
    forward,
    problem,
    special,
)
from tests.core.dynamic import same_bytes
from treadle.backends.cpu.bfloat import kernel, tiles
from treadle.backends.cpu.bfloat.tile_block import TileUnit
from treadle.backends.cpu.bfloat.unit import Dtypes, Unit
from treadle.backends.cpu.conv import choice, on_tiles, on_tiles_schedule
from treadle.backends.cpu.gemm.arguments import Kind, Scheduled, Word
from treadle.backends.cpu.run import native
from treadle.backends.cpu.target import AMX, AMX_MODEL, bfloat_unit
from treadle.dtypes import bfloat16, float32
from treadle.kernels.convolve import ConvSpec
from treadle.ops.conv import conv_general

UNITS = [TileUnit(tiles.Model())]
UNITS += [TileUnit(tiles.Instructions())] if bfloat_unit() == AMX else []
EACH = pytest.mark.parametrize("unit", UNITS, ids=[unit.name for unit in UNITS])
GEOMETRIES = [
    name for name, axes in plain.GEOMETRIES.items() if "in_dilation" not in str(axes)
]
CHANNELS = [(1, 32), (3, 5), (20, 33), (33, 70), (64, 40)]


@pytest.fixture
def on_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "bfloat_unit", lambda: AMX_MODEL)


def launches(
    spec: ConvSpec, gradient: bool, unit: Unit, num_threads: int = 1
) -> list[Scheduled]:
    return on_tiles_schedule.schedule(spec, gradient, unit.speed, num_threads)


def run(
    spec: ConvSpec,
    unit: Unit,
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray],
    gradient: bool = False,
    filter_offset: int = 0,
    hooks: dict[Word, int] | None = None,
) -> None:
    """Of two arrays, into the third: the same bits by one, two and seven threads."""
    dtypes = Dtypes(c=arrays[2].dtype)
    source = native.Source(
        f"test/on_tiles/{unit.name}/{gradient}/{dtypes.c}",
        "convolve",
        lambda: on_tiles.emit_module(dtypes, unit, gradient),
        needs=(kernel.packing(dtypes, unit),),
    )
    where, found = native.load([source])[source.key], []
    pointers = dict(zip((Word.A, Word.B, Word.C), arrays, strict=True))
    for num_threads in (1, 2, 7):
        arrays[2][...] = np.nan
        how = tuple(launches(spec, gradient, unit, num_threads))
        offsets = {Word.B: filter_offset}
        calls.Call(how, pointers, hooks, where, offsets).serial()
        found.append(arrays[2].copy())
    for other in found[1:]:
        same_bytes(found[0], other)


@EACH
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_forward(channels, geometry, layout, unit) -> None:
    for result in RESULTS:
        image, weights, output, spec = problem(
            channels, geometry, result, layout=layout
        )
        # What is beside the result is not written; here lines of pixels are rows.
        around = np.full((*output.shape[:2], output.shape[2] + 3, 80), 5, result)
        inner = around[:, :, : output.shape[2], : channels[1]]
        beside = replace(spec, output=calls.strides(inner))
        run(spec, unit, (image, weights, output))
        wanted = forward(image, weights, spec)
        close(output, wanted, spec.k)
        run(beside, unit, (image, weights, inner))
        same_bytes(np.ascontiguousarray(inner), output)
        inner[...] = 5
        assert (around == 5).all()


@EACH
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize("channels", CHANNELS, ids=str)
def test_filter_gradient(channels, geometry, layout, unit) -> None:
    for result, images in zip(RESULTS, (3, 4), strict=True):
        image, weights, gradient, spec = problem(
            channels, geometry, result, layout=layout, images=images
        )
        wide = image.astype(np.float64), gradient.astype(np.float64)
        found = np.empty(weights.shape, result)
        run(spec, unit, (image, gradient, found), True)
        close(found, plain.filter_gradient(*wide, spec), gradient[..., 0].size)


@EACH
@pytest.mark.parametrize("groups", [2, 5])
@pytest.mark.parametrize("each", [1, 3, 34])
def test_groups(each, groups, unit) -> None:
    image, weights, output, spec = problem(
        (each * groups, 7 * groups), "strided", float32, groups=groups
    )
    gradient = output.copy()
    run(spec, unit, (image, weights, found := output.astype(float32)))
    close(found, forward(image, weights, spec), spec.k)
    expected = plain.filter_gradient(
        image.astype(np.float64), gradient.astype(np.float64), spec
    )
    run(spec, unit, (image, gradient, result := np.empty(weights.shape, float32)), True)
    close(result, expected, output[..., 0].size)


@EACH
@pytest.mark.parametrize("channels", [(6, 4), (7, 32), (40, 70)])
def test_filters_that_are_turned(channels, unit) -> None:
    image, weights, _, spec = problem(channels, "same", float32)
    gradient = plain.channels_last(
        np.random.default_rng(3), (*image.shape[:3], channels[1]), bfloat16
    )
    target = np.empty(image.shape, np.float32)
    steps = calls.strides(target)
    backward, offset = calls.input_gradient(spec, calls.strides(gradient), steps)
    run(backward, unit, (gradient, weights, target), filter_offset=offset)
    turned = np.flip(weights, (0, 1)).swapaxes(2, 3)
    close(target, forward(gradient, turned, backward), backward.k)


@EACH
@pytest.mark.parametrize("depth", volumes.DEPTHS.values(), ids=volumes.DEPTHS)
def test_volumes(depth, unit) -> None:
    shape = next(iter(volumes.SHAPES))
    x, w, out, spec, flat = volumes.problem(depth, shape)
    if flat.y.in_dilation != 1 or flat.x.in_dilation != 1:
        pytest.skip("gaps are another kernel's")
    x, w, gradient = (a.astype(bfloat16) for a in (x, w, out))
    spec = replace(spec, dtype=np.dtype(np.float32), operands=bfloat16)
    wide = [a.astype(np.float64) for a in (x, w, gradient)]
    run(spec, unit, (x, w, found := np.empty(out.shape, np.float32)))
    close(found, volumes.forward(wide[0], wide[1], wide[2], depth, flat), spec.k)
    run(spec, unit, (x, gradient, found := np.empty(w.shape, np.float32)), True)
    expected = volumes.filter_gradient(wide[0], wide[2], wide[1], depth, flat)
    close(found, expected, gradient[..., 0].size)


@EACH
@pytest.mark.parametrize("channels", [(64, 130), (3, 40)], ids=str)
def test_images_that_are_packed_in_groups(channels, unit) -> None:
    image, weights, output, spec = problem(
        channels, "same", bfloat16, size=(80, 60), images=2
    )
    run(spec, unit, (image, weights, output))
    close(output, forward(image, weights, spec), spec.k)


@EACH
@pytest.mark.parametrize("gradient", [False, True])
def test_epilogues_see_each_result_once(gradient, unit) -> None:
    image, weights, output, spec = problem((40, 36), "same", float32, groups=2)
    result = np.empty(weights.shape if gradient else output.shape, np.float32)
    by = output if gradient else weights
    seen = np.zeros(result.shape, int)
    if not gradient:
        seen = seen.reshape(len(output), 1, -1, 36)

    def see(_given, b0, b1, r0, r1, c0, c1):
        seen[b0, b1, r0:r1, c0:c1] += 1

    hook = calls.EPILOGUE(see)
    address = np.frombuffer(hook, np.int64)[0]
    run(spec, unit, (image, by, result), gradient, hooks={Word.EPILOGUE: address})
    assert (seen == 3).all()  # once by each number of threads


@EACH
def test_special_numbers_stay_where_they_are(unit) -> None:
    image, weights, output, spec = problem((3, 40), "same", float32)
    image = special(np.random.default_rng(0), image.shape)
    run(spec, unit, (image, weights, found := np.empty(output.shape, np.float32)))
    with np.errstate(invalid="ignore"):
        wanted = forward(image, weights, spec)
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(wanted))


@pytest.mark.usefixtures("on_model")
def test_few_channels_and_gaps_are_not_for_tiles() -> None:
    *_, spec = problem((64, 40), "same", bfloat16)
    for gradient in (False, True):
        assert on_tiles_schedule.takes(spec, gradient)
        (*_, launch) = choice.schedule(spec, gradient, None, 2)  # type: ignore[arg-type]
        kind = Kind.FILTER_GRADIENT if gradient else Kind.CONVOLUTION
        assert launch.words[Word.KIND] == kind
        source = choice.own_source(spec, gradient)
        assert "on_tiles" in source.key
        one = replace(spec, features=1, output=calls.strides(np.empty((3, 8, 9, 1))))
        assert not on_tiles_schedule.takes(one, gradient)
        gaps = replace(spec, y=replace(spec.y, in_dilation=2))
        assert not on_tiles_schedule.takes(gaps, gradient)
        assert not on_tiles_schedule.takes(
            replace(spec, dtype=float32, operands=None), gradient
        )


@pytest.mark.usefixtures("on_model")
@pytest.mark.parametrize("sizes", [(1, 5), (3, 8), (8, 17)])
def test_open_sizes_have_the_bits_of_fixed_ones(sizes: tuple[int, int]) -> None:
    def both(x, w, ct):
        out, back = td.vjp(lambda x, w: conv_general(x, w, **options), x, w)
        return out, *back(ct)

    options = {
        "strides": (1, 1),
        "padding": ((1, 1), (1, 1)),
        "lhs_dilation": (1, 1),
        "rhs_dilation": (1, 1),
        "feature_groups": 1,
    }
    names = ("images", "size", "size", None)
    once = td.jit(both, dynamic={"x": names, "ct": names})
    rng = np.random.default_rng(0)
    for images, size in ((2, 6), sizes):
        x, ct = (
            rng.standard_normal((images, size, size, n)).astype(bfloat16)
            for n in (40, 48)
        )
        w = rng.standard_normal((3, 3, 40, 48)).astype(bfloat16)
        for found, wanted in zip(once(x, w, ct), td.jit(both)(x, w, ct), strict=True):
            same_bytes(np.asarray(found), np.asarray(wanted))
    assert len(once.report().programs) <= 1

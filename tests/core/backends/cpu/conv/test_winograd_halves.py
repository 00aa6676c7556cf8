"""Convolutions of bfloat16 by Winograd's tiles, in float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import treadle as td
from tests.core.backends.cpu import contract_call as calls
from tests.core.backends.cpu.conv import test_kernel as plain
from tests.core.backends.cpu.conv.test_winograd import PADDINGS
from tests.core.dynamic import same_bytes
from treadle.backends.cpu.conv import (
    choice,
    pairs,
    winograd_halves,
    winograd_schedule,
)
from treadle.backends.cpu.gemm.arguments import Kind, Tile, Word
from treadle.backends.cpu.gemm.tile import Machine
from treadle.backends.cpu.run import native
from treadle.backends.cpu.target import multiplies_pairs
from treadle.dtypes import bfloat16, float32
from treadle.kernels.convolve import ConvSpec
from treadle.ops.conv import Window, conv_filter_grad, conv_general

MODEL = Machine("float", Tile(16, 14), "", halves=True)
MACHINES = [MODEL, *([winograd_halves.machine()] if multiplies_pairs() else [])]
EACH = pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.assembly or "model")
needs_pairs = pytest.mark.skipif(
    not multiplies_pairs(), reason="a CPU that multiplies no pairs"
)


def run(
    spec: ConvSpec,
    machine: Machine,
    arrays: tuple[np.ndarray, np.ndarray, np.ndarray],
    gradient: bool = False,
) -> np.ndarray:
    """A convolution, or its gradient by the filter, of two arrays, into one like the
    third: by one, two and eight threads."""
    machine = replace(machine, short=arrays[2].dtype == bfloat16, apart=False)
    source = native.Source(
        f"test/tiles/{machine}/{gradient}",
        "convolve",
        lambda: winograd_halves.emit_module(machine, gradient),
    )
    where = native.load([source])[source.key]
    found = []
    for num_threads in (1, 2, 8):
        launches = winograd_schedule.of_halves(
            spec, gradient, machine.tile, num_threads
        )
        result = np.full_like(arrays[2], np.nan)
        pointers = dict(
            zip((Word.A, Word.B, Word.C), (*arrays[:2], result), strict=True)
        )
        calls.Call(tuple(launches), pointers, None, where, {}).serial()
        found.append(result)
    for other in found[1:]:
        assert not same_bytes(found[0], other)
    return found[0]


def near(found: np.ndarray, wanted: np.ndarray) -> None:
    """What float32 loses, and one rounding of a result of bfloat16."""
    error = np.abs(found.astype(np.float64) - wanted)
    if found.dtype == bfloat16:
        error -= np.abs(wanted) * 2.0**-8
    assert error.max() < 3e-5 * wanted.std()


@EACH
@pytest.mark.parametrize("result", [bfloat16, float32], ids=str)
@pytest.mark.parametrize("layout", plain.LAYOUTS)
@pytest.mark.parametrize("channels", [(20, 33), (5, 3), (64, 48)], ids=str)
def test_values(
    channels: tuple[int, int], layout: Any, result: Any, machine: Machine
) -> None:
    image, weights, output, spec = plain.problem(
        *channels, PADDINGS["same"], size=(8, 9), dtype=bfloat16, layout=layout
    )
    spec = replace(spec, dtype=result, operands=bfloat16)
    found = run(spec, machine, (image, weights, output.astype(result)))
    near(found, plain.forward(image, weights, spec))
    gradient = np.asarray(output, bfloat16)
    arrays = image, gradient, weights.astype(result)
    wanted = plain.filter_gradient(image, gradient, spec)
    near(run(spec, machine, arrays, gradient=True), wanted)


def test_what_is_done_by_tiles() -> None:
    def takes(channels: int, **options: Any) -> tuple[bool, bool]:
        geometry = options.pop("geometry", PADDINGS["same"])
        *_, spec = plain.problem(
            channels, channels, geometry, dtype=bfloat16, **options
        )
        first, second = (winograd_schedule.takes_tiles(spec, g) for g in (False, True))
        return first, second

    assert takes(64, size=(32, 32), images=4) == (True, True)
    # Of one image alone no two have products at once.
    assert takes(256, size=(14, 14), images=1) == (False, True)
    assert takes(512, size=(4, 4), images=1) == (False, False)
    strided = ({"padding": 1, "stride": 2},) * 2
    assert takes(64, size=(32, 32), images=4, geometry=strided) == (False, False)


@needs_pairs
def test_open_sizes_have_the_bits_of_fixed_ones() -> None:
    """Of images that are done by tiles, and others: one trace for each of these."""
    how = Window((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)._asdict()
    rng = np.random.default_rng(0)
    w = rng.normal(size=(3, 3, 64, 48)).astype(bfloat16)

    def three(x: Any, w: Any, b: Any, ct: Any) -> Any:
        out = td.numpy.maximum(conv_general(x, w, **how) + b, 0)
        return out, conv_filter_grad(x, ct, kernel=(3, 3), **how)

    names = {"x": ("n", "h", "w", None), "ct": ("n", "h", "w", None)}
    compiled = td.jit(three, dynamic=names)
    found = set()
    for n, height, width in ((4, 16, 12), (6, 20, 19), (1, 2, 2), (3, 2, 3)):
        x = rng.normal(size=(n, height, width, 64)).astype(bfloat16)
        b = rng.normal(size=48).astype(bfloat16)
        ct = rng.normal(size=(n, height, width, 48)).astype(bfloat16)
        *_, spec = plain.problem(
            64, 48, PADDINGS["same"], size=(height, width), images=n, dtype=bfloat16
        )
        found.add(winograd_schedule.takes_tiles(spec, filter_gradient=False))
        made = compiled(x, w, b, ct)
        wanted = td.jit(lambda *a: three(*a))(x, w, b, ct)
        for one, other in zip(made, wanted, strict=True):
            assert not (why := same_bytes(one, other)), f"{n, height, width}: {why}"
    assert found == {True, False}
    assert compiled.report().traces <= 4


@needs_pairs
def test_which_kernels() -> None:
    *_, spec = plain.problem(
        64, 64, PADDINGS["same"], size=(32, 32), images=2, dtype=bfloat16
    )
    small = replace(spec, images=1, y=replace(spec.y, size=2, out=2))
    for gradient, kind in ((False, Kind.WINOGRAD), (True, Kind.WINOGRAD_FILTER)):
        launches = choice.schedule(spec, gradient, pairs.machine().tile, 1)
        assert launches[0].words[Word.KIND] == kind
        assert "tiles" in choice.own_source(spec, gradient).key
    launches = choice.schedule(small, False, pairs.machine().tile, 1)
    assert launches[0].words[Word.KIND] == Kind.CONVOLUTION
    assert "tiles" not in choice.own_source(small, False).key

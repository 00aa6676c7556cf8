"""Short last axes: what vectors run along, and which axes are reduced first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.evaluate import agrees
from tests.core.fuse.graphs import array, traced
from tests.core.fuse.lowering.alone import normal
from treadle import lax
from treadle.backends.devices import TARGETS
from treadle.compile import stages
from treadle.fuse.lowering.launches import Launch
from treadle.kernels.nest import CONTIGUOUS
from treadle.passes.pipeline import optimise


def optimised(function: Callable[..., Any], *args: Any) -> Any:
    return optimise(traced(function, *args), TARGETS["cpu"])


def launches(function: Callable[..., Any], *args: Any) -> list[Launch]:
    made = stages(traced(function, *args), TARGETS["cpu"])
    return [e.kernel for e in made.kernels.entries if isinstance(e.kernel, Launch)]


def colours(x: Any, mean: Any, scale: Any) -> Any:
    return (x - mean) * scale


def groups(x: Any) -> Any:
    """Group normalisation of eight groups of four channels."""
    y = x.reshape(*x.shape[:-1], 8, 4)
    y = y - y.mean((1, 2, 4), keepdims=True)
    y = y * lax.rsqrt(tnp.square(y).mean((1, 2, 4), keepdims=True) + 1e-5)
    return y.reshape(x.shape)


def test_pixels_are_computed_along_rows_of_an_image() -> None:
    *_, last = launches(colours, array(8, 16, 64, 3), array(3), array(3))
    assert last.inner == 64 * 3
    assert {o.inner for o in last.nest.operands} == {CONTIGUOUS}


def test_groups_are_computed_along_all_channels() -> None:
    found = launches(groups, array(4, 16, 16, 32))
    whole = [
        x
        for x in found
        if any(b.atom.type.size == 32768 for b in x.bindings if b.atom is not None)
    ]
    assert {x.inner for x in whole} == {32}


def test_axes_before_a_kept_one_are_reduced_first() -> None:
    graph = optimised(lambda x: x.sum((0, 2)), array(64, 8, 4))
    sums = [eq for eq in graph.equations if eq.op.name == "reduce_sum"]
    assert [eq.params["axes"] for eq in sums] == [(0,), (1,)]


@pytest.mark.parametrize("shape", [(2, 9, 7, 32), (1, 1, 5, 32), (3, 16, 16, 32)])
def test_groups_agree_with_numpy(shape: tuple[int, ...]) -> None:
    agrees(groups, normal(*shape))


@pytest.mark.parametrize("shape", [(8, 16, 64, 3), (5, 3), (1, 1, 70, 3), (9, 2, 5)])
def test_colours_agree_with_numpy(shape: tuple[int, ...]) -> None:
    agrees(colours, normal(*shape), normal(shape[-1]), normal(shape[-1], seed=1))


@pytest.mark.parametrize("name", ["max", "min", "prod"])
def test_other_reductions_of_groups_agree_with_numpy(name: str) -> None:
    x = normal(6, 5, 4, 3)
    found = td.jit(lambda x: getattr(tnp, name)(x, (0, 1, 3)))(x)
    wanted = getattr(np, name)(x.astype(np.float64), (0, 1, 3))
    np.testing.assert_allclose(found, wanted, 1e-4)


def turned(x: Any, mean: Any) -> Any:
    """A sum over axes that lie as one in memory, but for those of the difference."""
    y = x.transpose(1, 2, 0, 3) - mean
    return y.transpose(2, 0, 1, 3).sum((0, 1))


def test_what_a_sum_adds_up_is_repeated_where_it_is_read() -> None:
    def spread(x: Any, mean: Any) -> Any:
        return tnp.square(x - mean).sum((0, 1))

    assert len(launches(spread, array(64, 64, 3), array(3))) == 1
    (launch,) = launches(turned, array(64, 32, 4, 3), array(3))
    assert launch.mid == (64 * 32,)


@pytest.mark.parametrize("first", [(2, 1, 1, 3), (64, 32, 4, 3), (3, 70, 2, 3)])
def test_a_sum_in_another_order_of_axes_has_the_bits_of_fixed_sizes(
    first: tuple[int, ...],
) -> None:
    compiled = td.jit(turned, dynamic={"x": ("w", "b", "h", None)})
    for shape in [first, (64, 32, 4, 3), (128, 16, 4, 3), (1, 600, 1, 3)]:
        x, mean = normal(*shape), normal(3, seed=1)
        wanted = td.jit(lambda x, mean: turned(x, mean))(x, mean)
        assert np.asarray(compiled(x, mean)).tobytes() == np.asarray(wanted).tobytes()


@pytest.mark.parametrize("first", [(1, 8, 64, 3), (4, 16, 64, 3)])
def test_means_of_images_are_traced_at_any_number_of_images(
    first: tuple[int, ...],
) -> None:
    def centred(x: Any, mean: Any) -> Any:
        return (x - mean[:, None, None]) * 2

    sizes = {"x": ("b", "h", "w", None), "mean": ("b", None)}
    compiled = td.jit(centred, dynamic=sizes)
    for shape in [first, (1, 1, 1, 3), (1, 8, 64, 3), (4, 8, 64, 3), (2, 1, 5, 3)]:
        x, mean = normal(*shape), normal(shape[0], 3, seed=1)
        wanted = (x - mean[:, None, None]) * 2
        np.testing.assert_array_equal(np.asarray(compiled(x, mean)), wanted)
    assert len(compiled.report().programs) == 1


def test_open_sizes_give_the_bits_of_fixed_ones() -> None:
    compiled = td.jit(groups, dynamic={"x": ("b", "h", "w", None)})
    for shape in [(4, 16, 16, 32), (1, 3, 70, 32), (2, 1, 5, 32)]:
        x = normal(*shape)
        wanted = td.jit(lambda x: groups(x))(x)
        assert np.asarray(compiled(x)).tobytes() == np.asarray(wanted).tobytes()

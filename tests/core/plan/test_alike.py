"""One kernel for launches whose nests differ in how many loops they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.fuse.lowering.alone import normal as array
from tests.core.passes.shown import opened
from tests.core.plan.build import TARGET, kernels_of
from tests.core.plan.test_weight import launches
from treadle.backends.cpu.device import CPUTarget
from treadle.check import check
from treadle.compile import stages
from treadle.fuse.grouping.group import group
from treadle.fuse.lowering.launches import ProductKernel
from treadle.fuse.lowering.lower import lower
from treadle.passes.pipeline import optimise
from treadle.plan.alike import joined
from treadle.plan.weight import weighed


def laplace(x: Any, lib: Any = tnp) -> Any:
    moved = [lib.roll(x, s, axis) for axis in range(x.ndim) for s in (1, -1)]
    return sum(moved[1:], moved[0]) - 2 * x.ndim * x


def nests(function: Callable[..., Any], *args: Any) -> tuple[int, int]:
    """How many there are, as they are written and joined."""
    _, kernels = kernels_of(function, *args)
    return tuple(  # type: ignore[return-value]
        len({x.nest for x in launches(found)}) for found in (kernels, joined(kernels))
    )


@pytest.mark.parametrize("shape", [(100, 120), (40, 40, 40)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bfloat16"])
def test_borders_have_two_kernels(shape: tuple[int, ...], dtype: str) -> None:
    """The one of the inside, and one for what lies along the other axes."""
    x = tnp.asarray(np.arange(np.prod(shape)).reshape(shape) % 7).astype(dtype)
    made = stages(td.trace(laplace)(x), CPUTarget())
    check(made)
    assert len({launch.nest for launch in launches(made.kernels)}) == 2
    expected = laplace(np.asarray(x).astype("float64"), np)
    np.testing.assert_array_equal(np.asarray(td.jit(laplace)(x)), expected)


def test_rows_are_those_of_more_rows() -> None:
    def f(x: Any, y: Any) -> Any:
        return x[:, :-1] + x[:, 1:], y[:-1] + y[1:]

    x, y = array(60, 70), array(50)
    assert nests(f, x, y) == (2, 1)
    for found, expected in zip(td.jit(f)(x, y), f(x, y), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_what_is_larger_or_sums_keeps_its_own() -> None:
    """Or threads could not share its work as they do."""
    add = lambda x: x[..., :-1] + x[..., 1:]  # noqa: E731
    both = lambda x, y: (add(x), add(y))  # noqa: E731
    assert nests(both, array(60, 70), array(71)) == (2, 2)
    total = lambda x: add(x).sum(-1)  # noqa: E731
    assert nests(lambda x, y: (total(x), total(y)), array(60, 70), array(50)) == (2, 2)


def test_open_sizes_keep_their_own() -> None:
    def f(x: Any, y: Any) -> Any:
        return x[:, :-1] + x[:, 1:], y[:-1] + y[1:]

    graph, _ = opened(f, ("n", 70), ("n",), n=50)
    kernels = lower(group(optimise(graph, TARGET), TARGET.lowering))
    assert len({x.nest for x in launches(kernels)}) == 2
    assert joined(kernels) is kernels


def test_what_is_as_long_as_it_happens_to_be_keeps_its_loops() -> None:
    """It was not compared, whatever became of others with its nest."""

    def f(x: Any, *ys: Any) -> Any:
        return x[:, :-1] + x[:, 1:], *(y[:-1] + y[1:] for y in ys)

    graph, _ = opened(f, (60, 70), (50,), ("n",), n=50)
    kernels = lower(group(optimise(graph, TARGET), TARGET.lowering))
    before, after = (list(launches(found)) for found in (kernels, joined(kernels)))
    assert before[1].nest == before[2].nest
    assert after[1].nest == before[0].nest and after[2] == before[2]


def test_no_code_for_short_rows_is_made_for_a_border() -> None:
    _, kernels = kernels_of(laplace, array(40, 40, 40))
    short = [x for x in launches(joined(weighed(kernels))) if x.inner == 1]
    assert short and all(x.whole for x in short)


def test_what_ends_a_product_keeps_its_loops() -> None:
    """Rows of the product are one of them, whatever else computes the same."""

    def f(x: Any, w: Any, y: Any, z: Any) -> Any:
        return 2 * (x @ w), 2 * y[1:, 1:, 1:, 1:], 2 * z[1:, 1:, 1:, 1:, 1:]

    args = array(40, 50), array(50, 20), array(3, 4, 5, 33), array(5, 6, 7, 8, 33)
    _, kernels = kernels_of(f, *args)
    product = joined(kernels).entries[0].kernel
    assert isinstance(product, ProductKernel) and product.epilogue is not None
    assert product.epilogue.nest.outer == 3
    for found, expected in zip(td.jit(f)(*args), f(*args), strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-5)

"""Random programs with masks, linear algebra, named axes and branches: eager, compiled
and JAX agree."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
from tests.core.fuse.compare import agrees, tolerance_of, values
from tests.core.fuse.more_rules import by_jax, generate_more

SMOOTH = ("float32", "float32", "float64")


@pytest.mark.parametrize("seed", range(100))
def test_compiled_agrees_with_eager(seed: int) -> None:
    _compiled(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 2000))
def test_many_programs(seed: int) -> None:
    _compiled(seed)


@pytest.mark.parametrize("seed", range(12))
def test_jax_agrees(seed: int) -> None:
    _jax(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12, 200))
def test_jax_agrees_with_many(seed: int) -> None:
    _jax(seed)


@pytest.mark.parametrize("seed", range(20))
def test_gradients(seed: int) -> None:
    _gradients(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 300))
def test_many_gradients(seed: int) -> None:
    _gradients(seed)


@pytest.mark.parametrize("seed", range(20))
def test_batches(seed: int) -> None:
    _batches(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 300))
def test_many_batches(seed: int) -> None:
    _batches(seed)


def _compiled(seed: int) -> None:
    program = generate_more(seed)
    print(program.source())
    agrees(program.function(), program.arguments())


def _jax(seed: int) -> None:
    program = generate_more(seed)
    source = program.source()
    print(source)
    with td.disable_jit():
        found = values(program.function()(*program.arguments()))
    tolerance = tolerance_of([*program.inputs, *found])
    for a, b in zip(found, by_jax(program), strict=True):
        assert a.shape == b.shape
        x, y = (np.asarray(v, np.float64) for v in (a, b))
        np.testing.assert_allclose(x, y, tolerance, tolerance)


def _gradients(seed: int) -> None:
    program = generate_more(seed, SMOOTH, 6)
    if not program.smooth():
        pytest.skip("nothing to differentiate in reverse")
    print(program.source())
    agrees(program.gradient(), program.arguments())


def _batches(seed: int) -> None:
    program = generate_more(seed, SMOOTH, 6)
    if not program.smooth():
        pytest.skip("nothing to batch")
    print(program.source())
    agrees(*program.batched())

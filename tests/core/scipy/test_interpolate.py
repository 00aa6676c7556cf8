"""Values between the points of a grid, and nearest codes, against SciPy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.interpolate
import numpy as np
import pytest
import scipy.cluster.vq
import scipy.interpolate

import treadle as td
from treadle import tree
from treadle.scipy.cluster.vq import vq
from treadle.scipy.interpolate import RegularGridInterpolator

rng = np.random.default_rng(0)
POINTS = np.sort(rng.normal(size=4)), np.sort(rng.normal(size=5))
VALUES = rng.normal(size=(4, 5, 2))
PLACES = rng.normal(size=(40, 2))
PLACES[:3] = [[p[i] for p in POINTS] for i in range(3)]


@pytest.mark.parametrize("method", ["linear", "nearest"])
@pytest.mark.parametrize("fill_value", [np.nan, 0.5, None])
def test_grids_are_scipys(method: str, fill_value: Any) -> None:
    options = {"method": method, "fill_value": fill_value}
    ours = RegularGridInterpolator(POINTS, VALUES, **options)
    theirs = scipy.interpolate.RegularGridInterpolator(
        POINTS, VALUES, bounds_error=False, **options
    )
    np.testing.assert_allclose(ours(PLACES), theirs(PLACES), rtol=1e-12)
    apart = tuple(np.moveaxis(PLACES.reshape(8, 5, 2), -1, 0))
    np.testing.assert_allclose(ours(apart), theirs(apart), rtol=1e-12)
    compiled = td.jit(lambda grid, places: grid(places))
    np.testing.assert_allclose(compiled(ours, PLACES), ours(PLACES), rtol=1e-12)


@pytest.mark.slow
def test_gradients_of_grids_are_jaxs() -> None:
    low = [p.min() + 0.01 for p in POINTS], [p.max() - 0.01 for p in POINTS]
    args = [a.astype("float32") for a in (*POINTS, VALUES, np.clip(PLACES, *low)[3:])]

    def loss(kind: Any) -> Any:
        return lambda p, q, v, x: (kind((p, q), v)(x) ** 2).sum()

    def theirs(points: Any, values: Any) -> Any:
        arrays = [jnp.asarray(p) for p in points]
        return jax.scipy.interpolate.RegularGridInterpolator(arrays, values)

    found = td.jit(td.grad(loss(RegularGridInterpolator), (0, 1, 2, 3)))(*args)
    wanted = jax.jit(jax.grad(loss(theirs), (0, 1, 2, 3)))(*args)
    for f, w in zip(found, wanted, strict=True):
        size = float(np.abs(w).max())
        np.testing.assert_allclose(f, w, rtol=1e-4, atol=1e-5 * size)


def test_a_grid_is_a_pytree() -> None:
    grid = RegularGridInterpolator(POINTS, VALUES)
    slopes = td.grad(lambda grid: grid(PLACES[:3]).sum())(grid)
    assert isinstance(slopes, RegularGridInterpolator)
    assert slopes.values.shape == VALUES.shape
    np.testing.assert_allclose(slopes.values.sum(), 6, rtol=1e-12)
    assert len(tree.leaves(grid)) == 4


@pytest.mark.parametrize("shapes", [((9, 3), (4, 3)), ((9,), (4,)), ((0, 2), (1, 2))])
def test_codes_are_scipys(shapes: Any) -> None:
    points, codes = (rng.normal(size=s) for s in shapes)
    found = td.jit(vq)(points, codes)
    if not points.size:
        assert [x.shape for x in found] == [(0,), (0,)]
        return
    for f, w in zip(found, scipy.cluster.vq.vq(points, codes), strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-12)
    slope = td.grad(lambda p: vq(p, codes)[1].sum())(points)
    assert slope.shape == points.shape
    assert np.isfinite(td.grad(lambda p: vq(p, codes)[1].sum())(codes)).all()


def test_errors_name_the_shapes_and_the_line() -> None:
    wrong = {
        "linear' or 'nearest', got 'cubic'": lambda: RegularGridInterpolator(
            POINTS, VALUES, "cubic"
        ),
        "for values of shape": lambda: RegularGridInterpolator(POINTS[::-1], VALUES),
        "in a grid with 2 axes": lambda: RegularGridInterpolator(POINTS, VALUES)(
            np.ones(3)
        ),
        "vq: points of shape": lambda: vq(np.ones((2, 3)), np.ones((2, 2))),
    }
    for message, call in wrong.items():
        with pytest.raises(ValueError, match=message) as caught:
            call()
        assert f"at {__file__}:" in str(caught.value)


def test_bounds_are_errors_if_wanted() -> None:
    points = (np.arange(3.0),)
    kind = td.scipy.interpolate.RegularGridInterpolator
    found = kind(points, np.arange(3.0), bounds_error=False, fill_value=7.0)
    assert found(np.array([[5.0]]))[0] == 7.0
    strict = kind(points, np.arange(3.0), bounds_error=True)
    theirs = scipy.interpolate.RegularGridInterpolator(points, np.arange(3.0))
    inside, beyond = np.array([[0.5], [2.0]]), np.array([[0.5], [2.5]])
    for call in (strict, td.jit(lambda x: strict(x)), td.jit(strict.__call__)):
        np.testing.assert_allclose(call(inside), theirs(inside))
        with pytest.raises(td.errors.CheckError, match="outside of the grid") as caught:
            call(beyond)
        assert "2.5" in str(caught.value)
    with pytest.raises(ValueError, match="out of bounds"):
        theirs(beyond)
    again = td.jit(lambda f, x: f(x))
    with pytest.raises(td.errors.CheckError, match="outside of the grid"):
        again(strict, beyond)

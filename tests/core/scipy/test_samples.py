"""Integrals of samples, and arrays read between their elements."""

from __future__ import annotations

import itertools
from typing import Any

import jax
import numpy as np
import pytest
import scipy.integrate
from jax.scipy.ndimage import map_coordinates as wanted_coordinates

import treadle as td
from tests.core.np.oracle import same
from treadle.scipy.integrate import cumulative_trapezoid, trapezoid
from treadle.scipy.ndimage import map_coordinates

rng = np.random.default_rng(6)
Y = rng.normal(size=(3, 6, 2))
MODES = ("constant", "nearest", "wrap", "mirror", "reflect")


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("initial", [None, 0])
def test_cumulative_trapezoid(axis: int, initial: Any) -> None:
    places = np.sort(rng.normal(size=Y.shape[axis]))
    for kwargs in ({"dx": 0.3}, {"x": places}):
        found = td.jit(
            lambda y, kw=kwargs: cumulative_trapezoid(
                y, axis=axis, initial=initial, **kw
            )
        )(Y)
        wanted = scipy.integrate.cumulative_trapezoid(
            Y, axis=axis, initial=initial, **kwargs
        )
        np.testing.assert_allclose(found, wanted)
    np.testing.assert_allclose(
        trapezoid(Y, places, axis=axis), scipy.integrate.trapezoid(Y, places, axis=axis)
    )


@pytest.mark.parametrize(("order", "mode"), [*itertools.product((0, 1), MODES)])
def test_map_coordinates(order: int, mode: str) -> None:
    image = rng.normal(size=(4, 5)).astype(np.float32)
    places = rng.uniform(-8, 9, size=(2, 3, 40)).astype(np.float32)
    places[:, 0, :8] = [[-0.5, 0.5, 1.5, 2.5, 3.0, 3.5, 0.0, -1.0]] * 2
    found = td.jit(lambda x, c: map_coordinates(x, c, order, mode, cval=0.5))
    same(found(image, places), wanted_coordinates(image, places, order, mode, 0.5), 20)
    whole = (10 * image).astype(np.int32)
    same(found(whole, places), wanted_coordinates(whole, places, order, mode, 0))


def test_gradients_of_map_coordinates() -> None:
    image = rng.normal(size=(4, 5)).astype(np.float32)
    places = rng.uniform(0.1, 2.9, size=(2, 7)).astype(np.float32)
    found = td.jit(td.grad(lambda x, c: (map_coordinates(x, c, 1) ** 2).sum(), (0, 1)))(
        image, places
    )
    wanted = jax.grad(lambda x, c: (wanted_coordinates(x, c, 1) ** 2).sum(), (0, 1))
    same(found, wanted(image, places), 20)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(
        ValueError, match=r"1 coordinates for f64\[3,6,2\], which has 3"
    ):
        map_coordinates(Y, [Y[0]], 1)
    with pytest.raises(ValueError, match="order 3 is neither 0 nor 1"):
        map_coordinates(Y, [Y[0]] * 3, 3)
    with pytest.raises(ValueError, match="'bounce' is none of"):
        map_coordinates(Y, [Y[0]] * 3, 1, "bounce")

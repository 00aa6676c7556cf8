"""Derivatives of special functions at the ends of their domains."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import treadle as td
from treadle.scipy import special


@pytest.mark.parametrize("x", [0.0, -0.0, 1.0, 0.3, 2.0, np.inf, -np.inf, np.nan])
def test_logit_is_infinitely_steep_at_its_ends(x: float) -> None:
    wanted = jax.grad(jax.scipy.special.logit)(x)
    for gradient in (td.grad(special.logit), td.jit(td.grad(special.logit))):
        np.testing.assert_allclose(gradient(x), wanted, rtol=1e-6)
    batched = td.vmap(td.grad(special.logit))(np.float32([x, 0.5]))
    np.testing.assert_allclose(batched, [wanted, 4.0], rtol=1e-6)

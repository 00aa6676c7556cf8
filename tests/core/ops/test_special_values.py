"""Where functions are special: infinities, not-a-number, signed zeros, the ends."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
from tests.core.ops.elementwise_cases import COMPARISONS, FOUR, KINKED, SMOOTH
from treadle.ops import binary, unary
from treadle.trace.op import Op

POINTS = np.float32([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 88.0])
LEFT, RIGHT = (p.reshape(-1) for p in np.meshgrid(POINTS, POINTS))
ONE = {
    **{op: f for op, (f, _) in SMOOTH.items()},
    **KINKED,
    unary.lgamma: jax.lax.lgamma,
    unary.digamma: jax.lax.digamma,
}
TWO = {
    **FOUR,
    **COMPARISONS,
    binary.maximum: jax.numpy.maximum,
    binary.minimum: jax.numpy.minimum,
    binary.rem: jax.lax.rem,
    binary.pow_: jax.numpy.power,
    binary.atan2: jax.numpy.arctan2,
}


def assert_agrees(op: Op, oracle: Any, *args: np.ndarray) -> None:
    wanted = np.asarray(jax.jit(oracle)(*args))
    for how, found in (("eager", op(*args)), ("compiled", td.jit(op)(*args))):
        found = np.asarray(found)
        np.testing.assert_allclose(
            found, wanted, rtol=2e-6, atol=1e-6, err_msg=f"{how}, at {args}"
        )
        exact = np.isfinite(wanted) & (wanted == 0)
        if wanted.dtype.kind == "f" and op.name in ("neg", "copy", "floor", "ceil"):
            np.testing.assert_array_equal(
                np.signbit(found[exact]), np.signbit(wanted[exact]), err_msg=how
            )


@pytest.mark.parametrize("op", ONE, ids=repr)
def test_one_operand(op: Op) -> None:
    assert_agrees(op, ONE[op], POINTS)


@pytest.mark.parametrize("op", TWO, ids=repr)
def test_two_operands(op: Op) -> None:
    assert_agrees(op, TWO[op], LEFT, RIGHT)

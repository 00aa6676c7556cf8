"""`treadle.lax.linalg` against `jax.lax.linalg`: names, order and shapes of results."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import treadle as td
from tests.core.lax.cases import floats

A = floats(2, 4, 4)
SPD = A @ A.transpose(0, 2, 1) + 4 * np.eye(4, dtype="float32")
B = floats(2, 4, 3)

ROWS: dict[str, Any] = {
    "cholesky": lambda m: m.cholesky(SPD),
    "eigh": lambda m: abs(m.eigh(SPD)[0]) + m.eigh(SPD)[1][:, None],
    "lu": lambda m: m.lu(A),
    "lu-tall": lambda m: m.lu(B),
    "permutation": lambda m: m.lu_pivots_to_permutation(
        np.array([2, 3, 2], "int32"), 4
    ),
    "qr": lambda m: [abs(x) for x in m.qr(B, full_matrices=False)],
    "qr-full": lambda m: [abs(x) for x in m.qr(B, full_matrices=True)][1],
    "svd": lambda m: [abs(x) for x in m.svd(B, full_matrices=False)],
    "svd-values": lambda m: m.svd(B, compute_uv=False),
    **{
        f"triangular-{left}-{lower}-{turned}-{unit}": (
            lambda m, o=(left, lower, turned, unit): m.triangular_solve(
                SPD,
                B if o[0] else B.transpose(0, 2, 1),
                left_side=o[0],
                lower=o[1],
                transpose_a=o[2],
                unit_diagonal=o[3],
            )
        )
        for left in (True, False)
        for lower in (True, False)
        for turned in (True, False)
        for unit in (True, False)
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_it_is_what_jax_gives(name: str) -> None:
    found, wanted = ROWS[name](td.lax.linalg), ROWS[name](jax.lax.linalg)
    for f, w in zip(td.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert f.dtype == w.dtype
        np.testing.assert_allclose(f, w, rtol=2e-4, atol=2e-5)

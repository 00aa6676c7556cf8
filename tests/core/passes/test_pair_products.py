"""Products of complex numbers that are written out, for lengths that are not fixed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import same_bytes


def numbers(*shape: int) -> Any:
    rng = np.random.default_rng(sum(shape))
    parts = rng.normal(size=(2, *shape)).astype(np.float32)
    return tnp.asarray(parts[0] + 1j * parts[1])


FUNCTIONS = {
    "few results": lambda x: tnp.vecdot(x, x, axis=0),
    "few terms": lambda x: x.T @ x,
    "all elements": lambda x: tnp.prod(x),
    "columns": lambda x: tnp.prod(x, axis=0),
    "gradient": td.grad(lambda x: tnp.abs(x @ x.T).sum()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("rows", [4, 20])
def test_open_lengths_give_the_bits_of_fixed_ones(name: str, rows: int) -> None:
    """Planned for few rows and for many: each way is taken for the other's sizes."""
    function = FUNCTIONS[name]
    compiled = td.jit(lambda x: function(x), dynamic={"x": ("n", None)})
    for n in (rows, 1, 2, 9, 17, 4):
        x = numbers(n, 3)
        wanted = td.jit(lambda x: function(x))(x)
        why = same_bytes(compiled(x), wanted)
        assert not why, f"of {n} rows: {why}"
        with td.disable_jit():
            near = function(x)
        scale = np.abs(np.asarray(near)).max()
        np.testing.assert_allclose(wanted, near, rtol=1e-4, atol=1e-5 * scale)

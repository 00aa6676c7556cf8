"""Rows that are known to need no masks have code without any: the same results."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.backends.cpu.row_programs import PROGRAMS, ROWS, kernels_of, values
from treadle.backends.cpu.emit.lanes import host_lanes
from treadle.backends.cpu.emit.row import COPIES

TURN = COPIES * host_lanes()


@pytest.mark.parametrize("turns", [1, 33])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_any_rows(name: str, turns: int) -> None:
    f, expected = PROGRAMS[name]
    x = values(turns * TURN)
    opened = td.jit(lambda x: f(x), dynamic={"x": (None, "columns")})
    given = tnp.asarray(x)
    whole, any_rows = np.asarray(td.jit(f)(given)), np.asarray(opened(given))
    assert whole.tobytes() == any_rows.tobytes()
    rtol = 2e-2 if name == "halves" else 2e-5
    wanted = expected(x.astype(np.float64))
    np.testing.assert_allclose(whole, wanted, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ["elementwise", "norm", "columns and more"])
def test_only_whole_rows_of_known_length_have_such_code(name: str) -> None:
    f = PROGRAMS[name][0]
    assert kernels_of(f, (ROWS, 4 * TURN)) == {"nest", "whole"}
    assert "whole" not in kernels_of(f, (ROWS, "columns"))
    assert "whole" not in kernels_of(f, (ROWS, 4 * TURN + 1))
    assert "whole" not in kernels_of(f, (ROWS, TURN // 2))
    long = kernels_of(f, (ROWS, 1000 * TURN))
    assert ("whole" in long) is (name != "norm")  # whose sums are of several blocks


def test_one_kernel_does_for_rows_of_both_kinds() -> None:
    """Equal nests of one program are compiled once, for any rows."""
    from treadle.backends.cpu.run import native

    def both(x: td.Array, y: td.Array) -> tuple[td.Array, td.Array]:
        return tnp.tanh(x) * 0.71875, tnp.tanh(y) * 0.71875

    x = np.linspace(-1, 1, 5 * TURN).astype(np.float32)
    y = np.linspace(-1, 1, 5 * TURN + 3).astype(np.float32)
    before = native.stats.compiled + native.stats.from_disk
    td.jit(lambda x: x + 1)(y)  # what every program needs
    middle = native.stats.compiled + native.stats.from_disk
    found = td.jit(both)(x, y)
    made = native.stats.compiled + native.stats.from_disk - middle
    assert made <= 2 and middle >= before  # the nest; a path for further calls
    for a, b in zip((x, y), found, strict=True):
        np.testing.assert_allclose(
            np.asarray(b), np.tanh(a.astype(np.float64)) * 0.71875, rtol=1e-6
        )

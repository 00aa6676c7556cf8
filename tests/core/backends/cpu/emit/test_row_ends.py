"""How rows end where masks are dear: single vectors, and a mask for less than one; or
pieces, where a row is no more than that."""

from __future__ import annotations

import numpy as np
import pytest

from tests.core.kernels.nests import Maker
from tests.core.kernels.walls import walled
from treadle.backends.cpu.emit import row, short
from treadle.backends.cpu.emit.nest import emit

F = np.dtype(np.float32)
LANES = 4
"""Few, so that no other test has compiled these nests."""


@pytest.fixture(params=[True, False], ids=["masks", "no masks"])
def masks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    for module in (row, short):
        monkeypatch.setattr(module, "has_mask_registers", lambda: request.param)
    return request.param


def _scaled(x: np.ndarray, end: np.ndarray, by: float) -> Maker:
    m = Maker(x.shape[:-1], x.shape[-1])
    m.store(end, m.op("mul", m.load(x), m.const(by, F)))
    return m


def test_rows_of_any_length(masks: bool) -> None:
    by = 2.5 if masks else 3.5  # nests that are equal are compiled once
    for columns in range(1, 6 * LANES + 1):
        memory, flat = walled(5 * columns, F)
        source, x = walled(5 * columns, F)
        x[:] = np.arange(5 * columns)
        for entry in ("task", "few"):
            flat[:] = 0
            nest = _scaled(x.reshape(5, -1), flat.reshape(5, -1), by)
            nest.run(lanes=LANES, entry=entry)
            np.testing.assert_array_equal(flat, by * x)
        del flat, memory, x, source


def test_single_vectors_are_written_where_masks_are_dear(masks: bool) -> None:
    x = np.zeros((5, 7), F)
    text = emit(_scaled(x, x.copy(), 2.5).nest(), "f", lanes=LANES)
    whole = f"store <{LANES} x float>"
    assert text.count(whole) == row.COPIES + (not masks)
    assert text.count("call void @llvm.masked.store") == 1


def test_rows_that_are_added_to_the_same_one(masks: bool) -> None:
    lanes = 2 * LANES if masks else LANES  # compiled apart
    for columns in range(2, 2 * LANES):
        x, end = np.ones((40, columns), F), np.zeros((3, columns), F)
        which = np.arange(40) % 3
        m = Maker((40,), columns)
        place = m.load(np.broadcast_to(which[:, None], x.shape))
        rows = np.broadcast_to(end.T, (40, columns, 3))
        m.store(rows, m.load(x), place, how="add")
        m.run(lanes=lanes, entry="few")
        np.testing.assert_array_equal(end[:, 0], np.bincount(which))
        assert (end == end[:, :1]).all()

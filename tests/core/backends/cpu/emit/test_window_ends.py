"""What is at the ends of windows along lines: short code, and what windows mean."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import treadle as td
from treadle.backends.cpu import sources
from treadle.backends.cpu.emit.lanes import has_mask_registers
from treadle.backends.cpu.emit.row import unrolling
from treadle.kernels.lower import schedule
from treadle.kernels.nest import Nest

SHAPE = (2, 3, 21, 35)


@pytest.mark.parametrize("name", ["add", "max"])
@pytest.mark.parametrize("sides", [(3, 3), (1, 7)])
def test_ends_have_no_code_without_masks(
    sides: tuple[int, int], name: str, monkeypatch: Any
) -> None:
    found: list[Nest] = []
    plain = sources._entry_for

    def kept(launch: Any) -> str:
        found.append(launch.nest)
        return plain(launch)

    monkeypatch.setattr(sources, "_entry_for", kept)
    x = np.random.default_rng(0).integers(-9, 9, SHAPE).astype(np.float32)
    first = {"add": 0, "max": -np.inf}[name]
    pads = [(n // 2, n // 2) for n in sides]

    def pooled(x: Any) -> Any:
        window, padding = (1, 1, *sides), ((0, 0), (0, 0), *pads)
        how = getattr(td.lax, name)
        return td.lax.reduce_window(x, np.float32(first), how, window, None, padding)

    padded = np.pad(x, ((0, 0), (0, 0), *pads), constant_values=first)
    tiles = np.lib.stride_tricks.sliding_window_view(padded, sides, (2, 3))
    wanted = {"add": np.sum, "max": np.max}[name](tiles, (-1, -2))
    np.testing.assert_array_equal(td.jit(pooled)(x), wanted)
    ends = [n for n in found if sum(o.gathers > 0 for o in n.operands) > 4]
    copies = [unrolling(n, s) for n in ends for s in schedule(n).sweeps]
    assert copies
    assert not has_mask_registers() or 0 in copies

"""What is put around the spatial axes of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import treadle as td
import treadle.numpy as tnp

MODES = {
    "constant": "constant",
    "reflect": "reflect",
    "replicate": "edge",
    "circular": "wrap",
}
"""PyTorch's names of what is put there, and NumPy's."""


def pad_spatial(
    x: td.Array, pads: Sequence[tuple[int, int]], mode: str, value: Any = 0
) -> td.Array:
    """Pads the axes before the last one, as many as there are (before, after) pairs."""
    lead = x.ndim - 1 - len(pads)
    widths = [*[(0, 0)] * lead, *pads, (0, 0)]
    return tnp.pad(x, widths, MODES[mode], constant_values=value)

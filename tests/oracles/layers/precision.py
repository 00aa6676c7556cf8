"""What says in which dtypes models compute."""

from __future__ import annotations

from tests.oracles.layers.rows import Row

NO_ROW = {"LossScale"}
"""No layer: against PyTorch's in `test_torch_loss_scale`."""

ROWS: list[Row] = []

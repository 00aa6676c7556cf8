"""What says in which dtypes models compute."""

from __future__ import annotations

EXPRESSIONS = ["nn.all_finite(s), nn.operands('Scale', None, s, x)"]
NOT_LAYERS = "LossScale Precision"

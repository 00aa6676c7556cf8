"""What is done with modules."""

from __future__ import annotations

NOT_LAYERS = "Buffer Param cast freeze iterate metadata tagged unfreeze"

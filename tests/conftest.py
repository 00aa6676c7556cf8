"""What every test session has: a quiet CPU oracle and repeatable random examples."""

from __future__ import annotations

import os

from hypothesis import settings

# JAX is only the oracle here: it must not look for accelerators, nor take their memory.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

settings.register_profile("treadle", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("treadle")

"""The table of layers, each family in a file of its own: its ROWS, and the names of
layers that need NO_ROW."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def gathered(attribute: str) -> list[Any]:
    """What all files have of it, together."""
    found = [
        importlib.import_module(f"{__name__}.{module.name}")
        for module in pkgutil.iter_modules(__path__)
        if not module.name.startswith("test_")
    ]
    return [x for module in found for x in getattr(module, attribute, ())]

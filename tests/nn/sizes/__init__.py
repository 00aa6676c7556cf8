"""Families of layers and functions to be tried on any size, each in a file of its own.

Of each file: LAYERS, by the name under which EXPRESSIONS call them; the EXPRESSIONS,
of those and of the arguments; where it has any, further ARGS and NAMES, SIZES that an
expression is tried with, why one is GUARDED (traced again for some sizes), and
names of `treadle.nn` that are NOT_LAYERS.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any


def gathered(attribute: str) -> Any:
    """What all files have of it, together."""
    modules = [
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    ]
    parts = [getattr(m, attribute) for m in modules if hasattr(m, attribute)]
    if attribute == "EXPRESSIONS":
        return [e for part in parts for e in part]
    if attribute == "NOT_LAYERS":
        return {name for part in parts for name in part.split()}
    whole = {key: value for part in parts for key, value in part.items()}
    assert len(whole) == sum(map(len, parts)), f"two files share a name in {attribute}"
    return whole

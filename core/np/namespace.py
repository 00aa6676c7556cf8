"""What the array API standard asks of a namespace about itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from treadle import dtypes
from treadle.api.devices import devices
from treadle.np.kinds import isdtype
from treadle.run.device import Device, current

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")
"""Of the array API standard: this namespace follows the last, which has all others."""

_NAMES = {d.name: d for d in dtypes.ALL if d not in (dtypes.float16, dtypes.bfloat16)}


class ArrayNamespaceInfo:
    """What `__array_namespace_info__` returns."""

    def capabilities(self) -> dict[str, Any]:
        """What arrays can do outside of `jit`; inside, results have known sizes."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": None,
        }

    def default_device(self) -> Device:
        """Where arrays are that nobody placed."""
        return current()

    def devices(self) -> list[Device]:
        """The devices that there are."""
        return list(devices())

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        """The dtypes of Python's numbers, and of indices."""
        return {
            "real floating": dtypes.float32,
            "complex floating": dtypes.complex64,
            "integral": dtypes.int32,
            "indexing": dtypes.int32,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, np.dtype]:
        """The dtypes of the standard, or those of a kind (see `isdtype`)."""
        if kind is None:
            return dict(_NAMES)
        return {name: d for name, d in _NAMES.items() if isdtype(d, kind)}


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """What this namespace has, as the array API standard asks."""
    return ArrayNamespaceInfo()

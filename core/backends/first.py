"""What the default device can begin before the compiler is loaded: half of that takes
as long as compiling what every program needs does on another CPU."""

from __future__ import annotations

import os

from treadle.backends.cpu import first


def begin() -> None:
    """Readies it, unless the user asks for a device, which is not known yet."""
    if not os.environ.get("TREADLE_DEVICE"):
        first.begin()

"""Numbers and lines as people read them."""

from __future__ import annotations

import os

from treadle.ir.origin import Origin


def size_text(nbytes: float) -> str:
    """Bytes, with a unit: ``66.6 KB``."""
    for unit in ("B", "KB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1000
    return f"{nbytes:.4g} GB"


def number_text(n: float) -> str:
    """A number, with a prefix: ``66.6 M``."""
    for prefix in ("", " k", " M", " G"):
        if abs(n) < 1000:
            return f"{n:.4g}{prefix}"
        n /= 1000
    return f"{n:.4g} T"


def line_text(origin: Origin) -> str:
    """A line without its folders, with the part of the program that it is in."""
    words = [os.path.basename(origin.source) or "(no line)"]
    words += ["backward"] * origin.backward
    words += [f"in {origin.scope}"] * bool(origin.scope)
    return " ".join(words)


def comment(origin: Origin) -> str:
    """A line as a comment; nothing if it is not known."""
    return f"  # {line_text(origin)}" if origin.source else ""

"""What the library's own source is: files on the disk are of one version of it."""

from __future__ import annotations

import os
from functools import cache
from hashlib import sha256

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_MOST = 1 << 16


def source_digest(*folders: str) -> bytes:
    """A hash of all files in some folders of the core; "" is for those beside them."""
    return b"".join(map(_digest, folders))


@cache
def _digest(folder: str) -> bytes:
    # (No `Path`s nor files: each new process does this before it runs anything. Many
    # CPUs have instructions for this hash.)
    found = sha256()
    for where, inside, names in os.walk(os.path.join(_ROOT, folder)):
        inside[:] = sorted(set(inside) - {"__pycache__"}) if folder else []
        for name in sorted([n for n in names if n.endswith(".py")]):
            path = os.path.join(where, name)
            content = _read(path)
            found.update(f"{path[len(_ROOT) :]}\0{len(content)}\0".encode())
            found.update(content)
    return found.digest()


def _read(path: str) -> bytes:
    file = os.open(path, _FLAGS)
    try:
        content = part = os.read(file, _MOST)
        while len(part) == _MOST:
            part = os.read(file, _MOST)
            content += part
        return content
    finally:
        os.close(file)

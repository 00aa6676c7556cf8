"""What the library's own source is: files on the disk are of one version of it."""

from __future__ import annotations

import os
from functools import cache
from hashlib import blake2b

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def source_digest(*folders: str) -> bytes:
    """A hash of all files in some folders of the core; "" is for those beside them."""
    return b"".join(map(_digest, folders))


@cache
def _digest(folder: str) -> bytes:
    # (No `Path`s: each new process does this before it runs anything.)
    found = blake2b(digest_size=16)
    for where, inside, names in os.walk(os.path.join(_ROOT, folder)):
        inside[:] = sorted(set(inside) - {"__pycache__"}) if folder else []
        for name in sorted([n for n in names if n.endswith(".py")]):
            path = os.path.join(where, name)
            with open(path, "rb", buffering=0) as file:
                content = file.read()
            found.update(f"{path[len(_ROOT) :]}\0{len(content)}\0".encode())
            found.update(content)
    return found.digest()

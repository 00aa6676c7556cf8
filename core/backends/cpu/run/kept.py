"""Objects on the disk: what they are called, and where they may be found."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

from treadle.backends import installed, objects
from treadle.backends.cpu.target import host, llvm
from treadle.backends.sources import source_digest


def get_all(keys: Sequence[str]) -> list[bytes | None]:
    """Objects by key: those installed with the library, else the user's own."""
    found = installed.get_all(environment(), keys)
    missing = [key for key, code in zip(keys, found, strict=True) if code is None]
    own = iter(objects.default_store().get_all(missing) if missing else ())
    return [next(own) if code is None else code for code in found]


def is_installed(*what: str) -> bool:
    """Whether the object of something was installed with the library."""
    here = environment()
    return bool(installed.count(here)) and installed.has(here, digest_of(*what))


def digest_of(*what: str) -> str:
    """The key of the object of something: of that, and all else that decides code."""
    parts = (_digest(), *what)
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=20).hexdigest()


@functools.cache
def environment() -> installed.Environment:
    """What objects are made for in this process."""
    return installed.Environment(_sources().hex(), _digest())


def _sources() -> bytes:
    return source_digest("backends", "kernels")


@functools.cache
def _digest() -> str:
    """Target, LLVM and emitters: an edited emitter must not meet its old objects."""
    import llvmlite

    target = host()
    digest = hashlib.blake2b(digest_size=20)
    versions = (llvmlite.__version__, llvm().llvm_version_info)
    digest.update(repr((target.triple, target.cpu, target.features, versions)).encode())
    digest.update(_sources())
    return digest.hexdigest()

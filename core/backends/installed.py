"""Objects that were compiled when the library was installed: one file beside its code.

A file is of one environment: the CPU, LLVM, and the sources of the backend, whose
digest is its name, as it is part of each object's key. On another machine, or after an
edit, another name is looked for: a stale file is not found, and what it lacks is
compiled. No more is asked of who may write to it than of the code beside it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from treadle.backends.objects import DAY, unwrapped, wrapped

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "installed_objects")
_MAGIC = b"treadle objects 1\n"
_HEAD = struct.Struct(f"<{len(_MAGIC)}sI16s")
"""The magic, how many entries there are, and their digest."""
_ENTRY = struct.Struct("<20sQQ")
"""A key, and where in the file its object begins and how many bytes it has."""
KEY = 40
"""Letters of a key: 20 bytes. Plans have other names."""
# (Opening a pipe must not wait for a writer.)
_READ = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


class Environment(NamedTuple):
    """What objects are made for, as hexadecimal digests.

    sources: of the library's own code. whole: of that and all else.
    """

    sources: str
    whole: str

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"{self.sources[:16]}-{self.whole}.objects"


def count(environment: Environment) -> int:
    """How many objects are installed."""
    return len(_places(os.path.join(FOLDER, environment.name)))


def has(environment: Environment, key: str) -> bool:
    """Whether the object of a key is installed."""
    return key in _places(os.path.join(FOLDER, environment.name))


def get_all(environment: Environment, keys: Sequence[str]) -> list[bytes | None]:
    """The objects of some keys, None for those that were not installed."""
    path = os.path.join(FOLDER, environment.name)
    places = _places(path)
    if not any(key in places for key in keys):
        return [None] * len(keys)
    try:
        file = os.open(path, _READ)
    except OSError:
        return [None] * len(keys)
    try:
        return [_read(file, key, places.get(key)) for key in keys]
    finally:
        os.close(file)


def _read(file: int, key: str, place: tuple[int, int] | None) -> bytes | None:
    """What is elsewhere by now, as in a file that was replaced, is not the key's."""
    if place is None:
        return None
    try:
        os.lseek(file, place[0], os.SEEK_SET)
        return unwrapped(key, os.read(file, place[1]))
    except OSError:
        return None


@functools.cache
def _places(path: str) -> Mapping[str, tuple[int, int]]:
    """Where the objects of a file are; none if there is no such file, or a bad one."""
    try:
        file = os.open(path, _READ)
    except OSError:
        return {}
    try:
        magic, count, digest = _HEAD.unpack(os.read(file, _HEAD.size))
        size = count * _ENTRY.size
        if magic != _MAGIC or size > os.fstat(file).st_size:
            return {}
        entries = os.read(file, size)
        if digest != _digest(entries):
            return {}
        found = _ENTRY.iter_unpack(entries)
        return {key.hex(): (start, size) for key, start, size in found}
    except (OSError, struct.error):
        return {}
    finally:
        os.close(file)


def _digest(entries: bytes) -> bytes:
    return hashlib.blake2b(entries, digest_size=16).digest()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def forget() -> None:
    """From now on this process finds nothing: it compiles what it needs."""
    global FOLDER
    FOLDER = os.devnull


def write(folder: Path, environment: Environment, objects: Mapping[str, bytes]) -> Path:
    """Makes the file of an environment; another process sees the old one or this one.
    Those of other sources, which nothing will find again, go, and so does what a
    process that was killed has left.

    Raises:
      OSError: if the folder can't be written to.
    """
    entries, contents = [], []
    start = _HEAD.size + len(objects) * _ENTRY.size
    for key, code in sorted(objects.items()):
        content = wrapped(key, code)
        entries.append(_ENTRY.pack(bytes.fromhex(key), start, len(content)))
        contents.append(content)
        start += len(content)
    index = b"".join(entries)
    head = _HEAD.pack(_MAGIC, len(objects), _digest(index))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / environment.name
    temporary = folder / f"{environment.name}.{os.getpid()}.tmp"
    try:
        temporary.write_bytes(b"".join([head, index, *contents]))
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    for other in folder.glob("*.objects"):
        if not other.name.startswith(environment.sources[:16]):
            _remove(other)
    for other in folder.glob("*.objects.*.tmp"):
        with contextlib.suppress(OSError):
            if other.stat().st_mtime < time.time() - DAY:
                _remove(other)
    _places.cache_clear()
    return path

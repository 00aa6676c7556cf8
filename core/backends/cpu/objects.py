"""The disk cache of object code: one checked file per kernel, least recent out."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
import time
from pathlib import Path

LIMIT_BYTES = 512 << 20
DAY = 86400.0
_MAGIC = b"treadle object 1\n"
_DIGEST_SIZE = 16


class ObjectStore:
    """A folder of object files that any number of processes may share.

    Every failure (no permission, no space, a damaged file) counts as a miss: the cache
    may cost time, never a crash.
    """

    def __init__(self, folder: Path | None, limit_bytes: int = LIMIT_BYTES) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes

    def get(self, key: str) -> bytes | None:
        """The object stored under `key`, or None."""
        if self.folder is None:
            return None
        path = self.folder / f"{key}.o"
        try:
            content = path.read_bytes()
            code = _unwrap(content)
            if code is not None and path.stat().st_mtime < time.time() - DAY:
                os.utime(path)  # the pruning order; a day's precision is enough
        except OSError:
            return None
        return code

    def put(self, key: str, code: bytes) -> None:
        """Stores `code`; another process sees either nothing or all of it."""
        if self.folder is None:
            return
        unique = f"{os.getpid()}.{threading.get_ident()}"
        temporary = self.folder / f"{key}.{unique}.tmp"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(_MAGIC + _digest(code) + code)
            temporary.replace(self.folder / f"{key}.o")
            self._prune_daily()
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _prune_daily(self) -> None:
        assert self.folder is not None
        stamp = self.folder / "pruned"
        with contextlib.suppress(FileNotFoundError):
            if stamp.stat().st_mtime > time.time() - DAY:
                return
        stamp.touch()
        self.prune()

    def prune(self) -> None:
        """Deletes least recently used objects until 3/4 of the limit remains."""
        assert self.folder is not None
        files = []
        for entry in os.scandir(self.folder):
            with contextlib.suppress(OSError):
                status = entry.stat()
                abandoned = status.st_mtime < time.time() - DAY
                if entry.name.endswith(".o"):
                    files.append((status.st_mtime, status.st_size, entry.path))
                elif entry.name.endswith(".tmp") and abandoned:
                    os.unlink(entry.path)
        total = sum(size for _, size, _ in files)
        if total <= self.limit_bytes:
            return
        for _, size, path in sorted(files):
            if total <= self.limit_bytes * 3 // 4:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
                total -= size


def default_store() -> ObjectStore:
    """The store of TREADLE_CACHE_DIR, else of the user's cache folder.

    An empty TREADLE_CACHE_DIR switches the disk cache off.
    """
    chosen = os.environ.get("TREADLE_CACHE_DIR")
    if chosen is not None:
        return _store(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # Without a home folder "~" stays what it is: not a place to write to.
    return _store(os.path.join(base, "treadle") if os.path.isabs(base) else "")


@functools.cache
def _store(folder: str) -> ObjectStore:
    return ObjectStore(Path(folder) if folder else None)


def _digest(code: bytes) -> bytes:
    return hashlib.blake2b(code, digest_size=_DIGEST_SIZE).digest()


def _unwrap(content: bytes) -> bytes | None:
    start = len(_MAGIC) + _DIGEST_SIZE
    code = content[start:]
    if content[:start] != _MAGIC + _digest(code):
        return None
    return code

"""The disk cache of object code: one checked file per kernel, least recent out."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from treadle.backends import trusted
from treadle.errors import warn

LIMIT_BYTES = 512 << 20
DAY = 86400.0
_MAGIC = b"treadle object 2\n"
_DIGEST_SIZE = 16
_REFUSED = """\
compiled kernels are not kept on disk: {reason}
Who can write to {folder} could make this process run any code. Make the folder yours \
alone (chmod go-w), or choose another by TREADLE_CACHE_DIR; an empty one means no \
cache on disk, and no warning."""


class ObjectStore:
    """A folder of object files that any number of processes of one user may share.

    Every failure (no permission, no space, a damaged file) counts as a miss: the cache
    may cost time, never a crash. So does a file that others could have written; where
    they can write to the folder, it is not used at all, and one warning says so.
    """

    def __init__(self, folder: Path | None, limit_bytes: int = LIMIT_BYTES) -> None:
        # What the path leads to now is checked and used: a link may change.
        self.folder = None if folder is None else Path(os.path.realpath(folder))
        self.limit_bytes = limit_bytes
        self._warned = False

    def get(self, key: str) -> bytes | None:
        """The object stored under `key`, or None."""
        return self.get_all([key])[0]

    def get_all(self, keys: Sequence[str]) -> list[bytes | None]:
        """The objects stored under some keys, None for those that are not there."""
        try:
            if self.folder is not None and self._is_ours(self.folder):
                return [
                    self._read(os.path.join(self.folder, f"{k}.o"), k) for k in keys
                ]
        except OSError:
            pass
        return [None] * len(keys)

    def _read(self, path: str, key: str) -> bytes | None:
        try:
            code = unwrapped(key, trusted.read(path))
            if code is not None and os.stat(path).st_mtime < time.time() - DAY:
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
            trusted.make_folder(self.folder)
            if not self._is_ours(self.folder):
                return
            trusted.write_new(temporary, wrapped(key, code))
            temporary.replace(self.folder / f"{key}.o")
            self._prune_daily()
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def _is_ours(self, folder: Path) -> bool:
        """Whether only this user can write to the folder; warns once if not."""
        reason = trusted.why_not(folder)
        if reason and not self._warned:
            self._warned = True
            warn(_REFUSED.format(reason=reason, folder=folder))
        return not reason

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


def wrapped(key: str, code: bytes) -> bytes:
    """An object as it lies on the disk."""
    return _MAGIC + _digest(key, code) + code


def _digest(key: str, code: bytes) -> bytes:
    """It holds the key: an object under another's name is as bad as a damaged one."""
    check = hashlib.blake2b(code, digest_size=_DIGEST_SIZE, key=key.encode()[:64])
    return check.digest()


def unwrapped(key: str, content: bytes) -> bytes | None:
    """The object under a key, None if that is damaged or another's."""
    code = content[len(_MAGIC) + _DIGEST_SIZE :]
    return code if content == wrapped(key, code) else None

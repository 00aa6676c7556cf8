"""Whether what lies on the disk is the user's own: only that native code may be run.

As ssh does it: a folder counts if nobody else can write to it or put another one in its
place. Root is trusted, for it could do everything anyway.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

_HAS_OWNERS = os.name == "posix"
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
# Opening a pipe must not wait for a writer, and a link may lead anywhere.
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_READ |= getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)


def why_not(folder: Path) -> str:
    """What speaks against a folder (absolute, without links) as a clause, or nothing.

    Raises:
      OSError: if it, or one of those above it, is not there.
    """
    if not _HAS_OWNERS:
        return _outside_home(folder)
    for place in (folder, *folder.parents):
        status = place.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(str(place))
        # In a folder like /tmp only its owner can rename or delete an entry.
        shared = place != folder and status.st_mode & stat.S_ISVTX
        if not _is_trusted(status.st_uid, place != folder):
            return f"{place} belongs to user {status.st_uid}, not to {os.geteuid()}"
        if status.st_mode & _OTHERS and not shared:
            mode = stat.filemode(status.st_mode)
            return f"other users can write to {place} ({mode})"
    return ""


def _is_trusted(owner: int, above: bool) -> bool:
    """Above the folder others may own what they can't use against us: that is root."""
    return owner == os.geteuid() or (above and owner == 0)


def _outside_home(folder: Path) -> str:
    """Where owners and modes say nothing (Windows), a user's folder is his own."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    return "" if folder.is_relative_to(home) else f"{folder} is not in {home}"


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it, for the user alone."""
    for place in (*reversed(folder.parents), folder):
        if not place.exists():
            place.mkdir(0o700, exist_ok=True)


def read(path: Path | str) -> bytes:
    """The content of a file of the user's own.

    Raises:
      OSError: if it is another's, others can write to it, or it is no plain file.
    """
    with open(os.open(path, _READ), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(f"{path} is not a plain file")
        if _HAS_OWNERS and (status.st_mode & _OTHERS or status.st_uid != os.geteuid()):
            raise PermissionError(f"{path} is not this user's alone")
        return file.read()


def write_new(path: Path, content: bytes) -> None:
    """Writes a file that must not exist yet, for the user alone."""
    with open(os.open(path, _WRITE, 0o600), "wb") as file:
        file.write(content)

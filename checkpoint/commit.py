"""Directories that appear, change and vanish at once, whatever kills the process.

A directory is written under a temporary name and renamed when it is complete, replaced
by exchanging two names, and renamed away before it is deleted. The temporary names are
those of Orbax, which ignores them too.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import socket
from typing import Any

_MARK = ".orbax-checkpoint-tmp"
_AT_CWD, _EXCHANGE = -100, 2
_counter = itertools.count()


def _host() -> str:
    return re.sub(r"\W", "_", socket.gethostname())


def temporary(path: str) -> str:
    """A name beside `path` that nobody takes for a checkpoint."""
    return f"{path}{_MARK}-{_host()}-{os.getpid()}-{next(_counter)}"


def is_temporary(name: str) -> bool:
    return _MARK in name


def _is_abandoned(name: str) -> bool:
    """Whether the process that made a temporary directory is gone."""
    made_by = re.fullmatch(r"-(\w+)-(\d+)-\d+", name.partition(_MARK)[2])
    if made_by is None or made_by[1] != _host():
        return True
    process = int(made_by[2])
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def publish(made: str, path: str, *, overwrite: bool) -> None:
    """Gives a complete directory its name; what had the name before is deleted.

    Raises:
      FileExistsError: if there is something, and `overwrite` is false.
    """
    _sync_folders(made)
    if not _give_free_name(made, path):
        if not overwrite:
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
        _exchange(made, path)
        shutil.rmtree(made)
    _sync(os.path.dirname(path))


def _give_free_name(made: str, path: str) -> bool:
    """Renames a directory, and says whether it could: not if the name is taken."""
    if os.path.lexists(path):
        return False
    try:
        os.rename(made, path)
    except OSError:
        # Another process may have taken the name since.
        if os.path.lexists(path):
            return False
        raise
    return True


def discard(path: str) -> None:
    """Deletes a directory; at no moment is half of it there under its name."""
    doomed = temporary(path)
    try:
        os.rename(path, doomed)
    except FileNotFoundError:
        return  # Another process that keeps the same checkpoints was quicker.
    shutil.rmtree(doomed)


def sweep(directory: str) -> None:
    """Deletes what processes that were killed have left in a directory."""
    for name in os.listdir(directory):
        if is_temporary(name) and _is_abandoned(name):
            shutil.rmtree(os.path.join(directory, name), ignore_errors=True)


def _exchange(made: str, path: str) -> None:
    """Swaps two directories, in one step where the system has such a step."""
    if _renameat2 is not None:
        names = os.fsencode(made), os.fsencode(path)
        if _renameat2(_AT_CWD, names[0], _AT_CWD, names[1], _EXCHANGE) == 0:
            return
    # Elsewhere the name is missing for a moment, but no checkpoint is ever incomplete.
    aside = temporary(path)
    os.rename(path, aside)
    os.rename(made, path)
    os.rename(aside, made)


def _find_renameat2() -> Any:
    with contextlib.suppress(AttributeError, OSError):
        return ctypes.CDLL(None, use_errno=True).renameat2
    return None


_renameat2 = _find_renameat2()


def _sync_folders(top: str) -> None:
    for folder, _, _ in os.walk(top):
        _sync(folder)


def _sync(folder: str) -> None:
    """Sees the names in a directory onto the disk."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

"""Directories that appear, change and vanish at once, whatever kills the process.

A directory is written under a temporary name and renamed when it is complete, replaced
by exchanging two names, and renamed away before it is deleted. The temporary names are
those of Orbax, which ignores them too.

Nothing is deleted but what bears the mark of a checkpoint, or such a temporary name
whose maker is dead.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import re
import shutil
import socket
import time
from typing import Any

from treadle.checkpoint import orbax_format

_MARK = ".orbax-checkpoint-tmp"
_ASIDE = "replaced"
_AT_CWD, _EXCHANGE = -100, 2
# What nobody has written to for so long has no writer, whoever that was.
_FORGOTTEN_SECONDS = 3600.0
_counter = itertools.count()


def _place() -> str:
    """Where process numbers mean the same: the machine, and the container on it."""
    name = re.sub(r"\W", "_", socket.gethostname())
    with contextlib.suppress(OSError):
        name += f"_{os.stat('/proc/self/ns/pid').st_ino}"
    return name


_UNKNOWN, _DEAD = "0", "dead"


def _started(process: int) -> str:
    """When a process began, if the system tells: numbers of processes recur."""
    try:
        with open(f"/proc/{process}/stat", encoding="latin1") as file:
            # Behind the program's name, which may hold any characters.
            state, *others = file.read().rpartition(")")[2].split()
    except (OSError, ValueError):
        return _UNKNOWN
    return _DEAD if state in "ZX" else others[18]


def temporary(path: str, label: str = "") -> str:
    """A name beside `path` that nobody takes for a checkpoint.

    It says which process made it.
    """
    me = os.getpid()
    maker = f"{_place()}-{me}-{_started(me)}-{next(_counter)}"
    return f"{path}{_MARK}{label and '-' + label}-{maker}"


_TEMPORARY = re.compile(
    rf"(?P<of>.+?){re.escape(_MARK)}"
    rf"(-(?P<aside>{_ASIDE}))?-(?P<place>\w+)-(?P<process>\d+)-(?P<started>\d+)-\d+"
)
_ORBAX_TEMPORARY = re.compile(rf"(?P<of>.+?){re.escape(_MARK)}(-[\w-]*)?")


def _is_abandoned(path: str, made_by: re.Match[str] | None) -> bool:
    """Whether the process that made a temporary directory is surely gone."""
    if made_by is None or made_by["place"] != _place():
        return time.time() - written(path) > _FORGOTTEN_SECONDS
    process = int(made_by["process"])
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        pass
    started = _started(process)
    return _UNKNOWN not in (started, made_by["started"]) and (
        started != made_by["started"]
    )


def written(top: str) -> float:
    """When a folder, or something in it, was last written to."""
    times = [0.0]
    for folder, _, files in os.walk(top):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            with contextlib.suppress(FileNotFoundError):
                times.append(os.lstat(path).st_mtime)
    return max(times)


def publish(made: str, path: str, *, overwrite: bool) -> None:
    """Gives a complete directory its name; a checkpoint that had the name is deleted.

    Raises:
      FileExistsError: if there is something, and `overwrite` is false or it is not a
        checkpoint.
    """
    _sync_folders(made)
    if not _give_free_name(made, path):
        if not overwrite:
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
        check_replaceable(path)
        _exchange(made, path)
        _delete(made)
    _sync(os.path.dirname(path))


def check_replaceable(path: str) -> None:
    """
    Raises:
      FileExistsError: if what is there is not a checkpoint.
    """
    if os.path.lexists(path) and not orbax_format.is_checkpoint(path):
        raise not_a_checkpoint(path)


def not_a_checkpoint(path: str) -> FileExistsError:
    """The error for a name that something of the user's has."""
    return FileExistsError(
        f"{path} exists and is not a checkpoint: it is not overwritten. Move it away, "
        "or save elsewhere"
    )


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
    """Deletes a checkpoint; at no moment is half of it there under its name.

    Anything else is left alone.
    """
    if not orbax_format.is_checkpoint(path):
        return  # Or another process that keeps the same ones was quicker.
    doomed = temporary(path)
    try:
        os.rename(path, doomed)
    except FileNotFoundError:
        return
    _delete(doomed)


def _delete(doomed: str) -> None:
    if os.path.islink(doomed):
        os.unlink(doomed)
    else:
        shutil.rmtree(doomed)


def sweep(directory: str, of: str | None = None) -> None:
    """Deletes what processes that were killed have left in a directory.

    A checkpoint that was being replaced, and whose successor is missing, gets its name
    back.

    Args:
      of: only what was made for this name.
    """
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        made_by = _TEMPORARY.fullmatch(name)
        found = made_by or _ORBAX_TEMPORARY.fullmatch(name)
        path = os.path.join(directory, name)
        if found is None or of not in (None, found["of"]) or os.path.islink(path):
            continue
        if not os.path.isdir(path) or not _is_abandoned(path, made_by):
            continue
        if made_by is None or not made_by["aside"] or not _restored(path, found["of"]):
            shutil.rmtree(path, ignore_errors=True)


def _restored(aside: str, name: str) -> bool:
    return _give_free_name(aside, os.path.join(os.path.dirname(aside), name))


def _exchange(made: str, path: str) -> None:
    """Swaps two directories, in one step where the system has such a step."""
    if _renameat2 is not None:
        names = os.fsencode(made), os.fsencode(path)
        if _renameat2(_AT_CWD, names[0], _AT_CWD, names[1], _EXCHANGE) == 0:
            return
    # Elsewhere the name is missing for a moment, but no checkpoint is ever incomplete.
    aside = temporary(path, _ASIDE)
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

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
import os
import re
import shutil
import time
from collections.abc import Callable
from typing import Any

from treadle.checkpoint import makers, objects, orbax_format, places
from treadle.checkpoint.makers import Maker

_MARK = ".orbax-checkpoint-tmp"
_ASIDE = "replaced"
_AT_CWD, _EXCHANGE = -100, 2
# What nobody has written to for so long has no writer, whoever that was; unless it was
# made in this process's own time, because a clock that is set forward ages everything.
_FORGOTTEN_SECONDS = 3600.0
_BEGAN = time.time()


def temporary(path: str, label: str = "") -> str:
    """A name beside `path` that nobody takes for a checkpoint.

    It says which process made it.
    """
    return f"{path}{_MARK}{label and '-' + label}-{Maker.me()}"


_TEMPORARY = re.compile(
    rf"(?P<of>.+?){re.escape(_MARK)}"
    rf"(-(?P<aside>{_ASIDE}))?-(?P<maker>{makers.PATTERN})"
)
_ORBAX_TEMPORARY = re.compile(rf"(?P<of>.+?){re.escape(_MARK)}(-[\w-]*)?")


def _is_abandoned(path: str, made_by: re.Match[str] | None) -> bool:
    """Whether the process that made a temporary directory is surely gone."""
    maker = Maker.read(made_by["maker"]) if made_by else None
    if maker is None or not maker.is_here:
        last = written(path)
        return last < min(time.time() - _FORGOTTEN_SECONDS, _BEGAN)
    return maker.is_dead


def written(top: str) -> float:
    """When a folder, or something in it, was last written to; now if it is gone."""
    if places.is_remote(top):
        found = objects.committed(top)
        return found.saved if found else 0.0
    times: list[float] = []
    for folder, _, files in os.walk(top):
        for path in (folder, *(os.path.join(folder, name) for name in files)):
            with contextlib.suppress(FileNotFoundError):
                times.append(os.lstat(path).st_mtime)
    return max(times, default=time.time())


def into(path: str, fill: Callable[[str], None], *, overwrite: bool) -> None:
    """Calls `fill` with an empty folder, and then makes that the checkpoint `path`.

    Raises:
      FileExistsError: if there is something, and `overwrite` is false or it is not a
        checkpoint.
      OSError: if there is no room, or no way there.
    """
    folder, name = os.path.split(path)
    if places.is_remote(path):
        if not places.is_remote(f"{folder}/"):
            raise ValueError(f"a checkpoint lies below {path}: {path}/NAME")
        objects.sweep(folder, name)
        made = objects.begin(path)
        try:
            fill(made)
            objects.publish(made, path, overwrite=overwrite)
        except BaseException:
            with contextlib.suppress(OSError):
                objects.delete(made)
            raise
        return
    os.makedirs(folder, exist_ok=True)
    # First, because what a killed save has left may take the room that this one needs.
    sweep(folder, name)
    made = temporary(path)
    os.mkdir(made)
    try:
        fill(made)
        publish(made, path, overwrite=overwrite)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


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


def exists(path: str) -> bool:
    """Whether something has the name; in an object store, a complete checkpoint."""
    if places.is_remote(path):
        return objects.committed(path) is not None
    return os.path.lexists(path)


def check_replaceable(path: str) -> None:
    """
    Raises:
      FileExistsError: if what is there is not a checkpoint.
    """
    if exists(path) and not orbax_format.is_checkpoint(path):
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
    if places.is_remote(path):
        objects.discard(path)
        return
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
    if places.is_remote(directory):
        objects.sweep(directory, of)
        return
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

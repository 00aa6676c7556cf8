"""Saving a pytree: now, or in the background."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from treadle import Array
from treadle.checkpoint import commit, naming, orbax_format, store
from treadle.checkpoint import manifest as manifests
from treadle.checkpoint.manifest import Leaf
from treadle.checkpoint.naming import Skeleton

_log = logging.getLogger("treadle.checkpoint")
_SCALARS = (bool, int, float, complex)


class Snapshot(NamedTuple):
    """A pytree in the form that goes to disk; an array is None if it is not stored."""

    skeleton: Skeleton
    leaves: list[Leaf]
    arrays: list[np.ndarray | None]


def snapshot(tree: Any, *, copy: bool) -> Snapshot:
    """Takes a pytree apart; with `copy`, later changes to its buffers don't matter.

    Raises:
      TypeError: if a leaf is not something that can be saved; it names the leaf.
      RuntimeError: in a forked process.
    """
    store.check_process("save a checkpoint")
    skeleton, values = naming.encode(tree)
    leaves, arrays = [], []
    for value, path in zip(values, naming.leaf_paths(skeleton), strict=True):
        leaf, array = _take(value, path)
        if copy and array is not None:
            array = np.array(array, order="C")
        leaves.append(leaf)
        arrays.append(array)
    return Snapshot(skeleton, leaves, arrays)


def _take(value: Any, path: naming.Path) -> tuple[Leaf, np.ndarray | None]:
    python = type(value).__name__ if type(value) in _SCALARS else ""
    if isinstance(value, str):
        return Leaf(python="str", inline=str(value)), None
    if python == "int" and not -(2**63) <= value < 2**63:
        return Leaf(python="int", inline=value), None
    if not python and not hasattr(value, "__array__"):
        raise TypeError(
            f"cannot save the leaf {naming.shown(path)}: it is a "
            f"{type(value).__name__}. Leaves are arrays, Python numbers and strings; "
            "make other values static fields of a module, or register their class "
            "with treadle.tree.register"
        )
    array = np.asarray(value)
    if not store.can_hold(array.dtype):
        raise TypeError(
            f"cannot save the leaf {naming.shown(path)}: arrays of dtype "
            f"{array.dtype} are not supported"
        )
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    weak = isinstance(value, Array) and value.type.weak
    leaf = Leaf(array.shape, array.dtype.name, weak=weak, python=python)
    return leaf, array if leaf.is_stored else None


def write(directory: str, taken: Snapshot, compression: int | None = None) -> None:
    """Writes a snapshot into an empty directory."""
    leaves = [
        leaf if array is None else replace(leaf, crc32=store.checksum(array))
        for leaf, array in zip(taken.leaves, taken.arrays, strict=True)
    ]
    manifest = manifests.describe(taken.skeleton, leaves)
    pairs = zip(manifest.names, taken.arrays, strict=True)
    arrays = ((name, array) for name, array in pairs if array is not None)
    store.write(directory, arrays, compression)
    manifests.write(directory, manifest)
    orbax_format.write(directory, manifest)


def into(path: str, fill: Callable[[str], None], *, overwrite: bool) -> None:
    """Calls `fill` with an empty directory, and then gives that its name."""
    folder, name = os.path.split(path)
    os.makedirs(folder, exist_ok=True)
    # First, because what a killed save has left may take the room that this one needs.
    commit.sweep(folder, name)
    made = commit.temporary(path)
    os.mkdir(made)
    try:
        fill(made)
        commit.publish(made, path, overwrite=overwrite)
    except BaseException:
        shutil.rmtree(made, ignore_errors=True)
        raise


class Pending:
    """A save that is under way in the background.

    The interpreter does not exit before it is complete, unless it is killed: then
    there is no checkpoint under the name, and a previous one is untouched.
    """

    def __init__(self, work: Callable[[], None], what: str) -> None:
        self._work, self._what = work, what
        self._error: BaseException | None = None
        # Not `Thread.join`: after a Ctrl-C in it, Python (3.11) takes the thread for
        # ended, and would exit in the middle of the save.
        self._ended = threading.Event()
        # Not a daemon, even if the caller's thread is one, and not an executor's:
        # Python joins such a thread when the program ends, however it ends. Once it has
        # (in `atexit`), it joins no more.
        self._thread = threading.Thread(
            target=self._run, name=f"saving {what}", daemon=False
        )
        if threading.main_thread().is_alive():
            self._thread.start()
        else:
            self._run()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error
            _log.error("saving %s failed: %s", self._what, error)
        del self._work
        self._ended.set()

    def done(self) -> bool:
        """Whether it is complete, or has failed."""
        return self._ended.is_set()

    def wait(self) -> None:
        """Returns when the checkpoint is on the disk.

        Raises:
          OSError: or whatever else made the save fail.
          RuntimeError: in a forked process, which has not the thread that saves.
        """
        store.check_process("wait for a save")
        self._ended.wait()
        error, self._error = self._error, None
        if error is not None:
            raise error


def _check_free(path: str | os.PathLike[str], overwrite: bool) -> str:
    # Where a link leads, so that replacing a checkpoint leaves the link in place.
    path = os.path.realpath(os.fspath(path))
    if os.path.lexists(path):
        if not overwrite:
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
        if not orbax_format.is_item(path):
            raise commit.not_a_checkpoint(path)
    return path


def check_compression(level: int | None) -> int | None:
    """
    Raises:
      ValueError: if it is no level of zstd.
    """
    if level is not None and not (type(level) is int and 1 <= level <= 22):
        raise ValueError(
            f"compression is a level of zstd, from 1 to 22, or None, not {level!r}"
        )
    return level


def save(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    overwrite: bool = False,
    compression: int | None = None,
) -> None:
    """Saves a pytree as the directory `path`, and returns when it is on the disk.

    Leaves are arrays of any dtype, Python numbers and strings. Plain Orbax restores
    what is saved here: ``StandardCheckpointer().restore(path)``.

    Args:
      overwrite: whether a checkpoint that is there may be replaced.
      compression: a level of zstd, from 1 (fast) to 22 (small); None for none.

    Raises:
      FileExistsError: if `path` exists and `overwrite` is false.
      TypeError: if a leaf or a key cannot be saved; it names the place.
      OSError: if the disk is full or fails. Then an earlier checkpoint is untouched.
      RuntimeError: in a forked process, where TensorStore does not work.

    >>> import numpy as np
    >>> save("start", {"weight": np.ones((2, 3)), "epoch": 0})
    """
    path, level = _check_free(path, overwrite), check_compression(compression)
    taken = snapshot(tree, copy=False)
    into(path, lambda made: write(made, taken, level), overwrite=overwrite)


def save_async(
    path: str | os.PathLike[str],
    tree: Any,
    *,
    overwrite: bool = False,
    compression: int | None = None,
) -> Pending:
    """Like `save`, but returns as soon as the leaves are copied.

    A failure is logged, and raised by ``wait()``.

    >>> saving = save_async("middle", {"epoch": 1})
    >>> saving.wait()
    """
    path, level = _check_free(path, overwrite), check_compression(compression)
    taken = snapshot(tree, copy=True)

    def work() -> None:
        into(path, lambda made: write(made, taken, level), overwrite=overwrite)

    return Pending(work, path)

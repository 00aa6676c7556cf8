"""Saving a pytree: now, or in the background."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Unpack

import numpy as np

from treadle import Array
from treadle.checkpoint import (
    commit,
    naming,
    orbax_format,
    places,
    provenance,
    store,
)
from treadle.checkpoint import manifest as manifests
from treadle.checkpoint.items import Items, Json, as_json, keeper
from treadle.checkpoint.manifest import Leaf
from treadle.checkpoint.naming import Skeleton
from treadle.checkpoint.places import Place
from treadle.checkpoint.store import Storage

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


def write(
    directory: str, taken: Snapshot, storage: Storage, **about: Mapping[str, Any]
) -> None:
    """Writes a snapshot into an empty directory; about: metadata, what wrote it."""
    leaves = [
        leaf if array is None else replace(leaf, crc32=store.checksum(array))
        for leaf, array in zip(taken.leaves, taken.arrays, strict=True)
    ]
    manifest = manifests.describe(taken.skeleton, leaves, **about)
    pairs = zip(manifest.names, taken.arrays, strict=True)
    arrays = ((name, array) for name, array in pairs if array is not None)
    store.write(directory, arrays, storage)
    manifests.write(directory, manifest)
    orbax_format.write(directory, manifest)


def take(items: Items, *, copy: bool) -> dict[str, Snapshot | Json]:
    """What is to be saved of each item.

    Raises:
      TypeError: as `snapshot`; and if what is to be JSON can't be.
    """
    return {name: _take_item(name, value, copy) for name, value in items.items()}


def _take_item(name: str, value: Any, copy: bool) -> Snapshot | Json:
    keeps = keeper(value)
    state = keeps.get() if keeps else value
    if isinstance(value, Json):
        return Json(as_json(f"the item {name!r}", value.value))
    if keeps:
        with contextlib.suppress(TypeError):
            return Json(as_json(name, state))
    return snapshot(state, copy=copy)


def write_items(
    directory: str,
    taken: Mapping[str, Snapshot | Json],
    storage: Storage,
    metadata: Mapping[str, Any],
    written_by: Mapping[str, str],
    metrics: dict[str, float] | None = None,
) -> None:
    """Writes several items into an empty directory, as a step."""
    for name, item in taken.items():
        folder = os.path.join(directory, name)
        places.make_folder(folder)
        if isinstance(item, Json):
            orbax_format.write_json_item(folder, item.value)
        else:
            write(folder, item, storage)
    kinds = {name: isinstance(item, Json) for name, item in taken.items()}
    about = {"metadata": metadata, "written_by": written_by}
    orbax_format.write_step(directory, kinds, metrics, about)


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


def _check_free(path: Place, overwrite: bool) -> str:
    path = places.absolute(path)
    if not places.is_remote(path):
        # Where a link leads, so that replacing a checkpoint leaves the link in place.
        path = os.path.realpath(path)
    if commit.exists(path):
        if not overwrite:
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
        commit.check_replaceable(path)
    return path


def _prepare(
    path: Place,
    tree: Any,
    overwrite: bool,
    metadata: Mapping[str, Any] | None,
    storage: Storage,
    *,
    copy: bool,
) -> tuple[str, Callable[[], None]]:
    """Where a checkpoint goes, and what brings it there."""
    path, how = _check_free(path, overwrite), store.check_storage(storage)
    about: dict[str, Any] = {
        "storage": how,
        "metadata": as_json("metadata", dict(metadata or {})),
        "written_by": provenance.of_this_process(),
    }
    fill: Callable[[str], None]
    if isinstance(tree, Items):
        fill = partial(write_items, taken=take(tree, copy=copy), **about)
    else:
        fill = partial(write, taken=snapshot(tree, copy=copy), **about)
    return path, partial(commit.into, path, fill, overwrite=overwrite)


def save(
    path: Place,
    tree: Any,
    *,
    overwrite: bool = False,
    metadata: Mapping[str, Any] | None = None,
    **storage: Unpack[Storage],
) -> None:
    """Saves a pytree, or `Items`, as the folder `path`, and returns when it is on the
    disk.

    Leaves are arrays of any dtype, Python numbers and strings. Plain Orbax restores
    what is saved here: ``StandardCheckpointer().restore(path)``.

    Args:
      path: a folder, or a URL as ``s3://bucket/model`` or ``gs://bucket/model``.
      overwrite: whether a checkpoint that is there may be replaced.
      metadata: anything that JSON holds; `metadata` reads it.
      storage: ``compression`` is a level of zstd, from 1 (fast) to 22 (small), or None
        for none. ``chunk_bytes`` (16 MB) are compressed, checked and read at a time;
        ``file_bytes`` is about the largest size of files; ``max_bytes_in_flight`` (256
        MB) are being written at a time.

    Raises:
      FileExistsError: if `path` exists and `overwrite` is false, or it is not a
        checkpoint.
      TypeError: if a leaf or a key cannot be saved; it names the place.
      OSError: if the disk is full or fails, or an object store cannot be reached. Then
        an earlier checkpoint is untouched.
      RuntimeError: in a forked process, where TensorStore does not work.

    >>> import numpy as np
    >>> save("start", {"weight": np.ones((2, 3)), "epoch": 0}, compression=3)
    """
    _prepare(path, tree, overwrite, metadata, storage, copy=False)[1]()


def save_async(
    path: Place,
    tree: Any,
    *,
    overwrite: bool = False,
    metadata: Mapping[str, Any] | None = None,
    **storage: Unpack[Storage],
) -> Pending:
    """Like `save`, but returns as soon as the leaves are copied.

    A failure is logged, and raised by ``wait()``.

    >>> saving = save_async("middle", {"epoch": 1})
    >>> saving.wait()
    """
    path, work = _prepare(path, tree, overwrite, metadata, storage, copy=True)
    return Pending(work, path)

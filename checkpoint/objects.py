"""Checkpoints in object stores, where nothing can be renamed: complete once a last,
small object says where the data lie.

The data of each save lie in a folder of its own. The marker ``commit_success.txt``
names that folder; it is written when all else is there, and only as a successor of the
marker that was read before. So two writers never mix, and a checkpoint is replaced at
once. The marker's name is that of Orbax, whose data lie beside it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection
from typing import Any, NamedTuple

import tensorstore as ts

from treadle.checkpoint import places
from treadle.checkpoint.makers import Maker

MARKER = "commit_success.txt"
_DATA = "data-"
# Times of other machines are never asked for: a save may take long.
_FORGOTTEN_SECONDS = 86400.0


class Committed(NamedTuple):
    """What a marker says. folder: where the data lie, from the checkpoint on; `saved`:
    when, in seconds."""

    folder: str
    saved: float


def _marker(path: str) -> ts.KvStore.ReadResult:
    try:
        return places.opened(path).read(MARKER).result()
    except ValueError as error:
        raise places.unreachable(path, error) from error


def committed(path: str) -> Committed | None:
    """What the marker of a checkpoint says; None if there is no complete one.

    Raises:
      OSError: if the store cannot be reached.
    """
    return _says(_marker(path))


def _says(found: ts.KvStore.ReadResult) -> Committed | None:
    if found.state != "value":
        return None
    saved: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        saved = json.loads(found.value)
    return Committed(saved.get("folder", ""), saved.get("saved", 0.0))


def data_of(path: str) -> str:
    """Where the data of a checkpoint lie: in a file system in its folder, but for one
    that was copied from an object store.

    Raises:
      FileNotFoundError: if there is no complete checkpoint in an object store.
      OSError: if the store cannot be reached.
    """
    if not places.is_remote(path) and not os.path.isfile(os.path.join(path, MARKER)):
        return path
    found = committed(path)
    if found is None:
        raise FileNotFoundError(f"no checkpoint at {path}: it has no {MARKER}")
    return f"{path}/{found.folder}".rstrip("/")


def begin(path: str) -> str:
    """Where the data of a new save go."""
    return f"{path}/{_DATA}{int(time.time())}-{Maker.me()}"


def publish(made: str, path: str, *, overwrite: bool) -> None:
    """Makes what was written the checkpoint at `path`.

    Raises:
      FileExistsError: if there is one, and `overwrite` is false.
      OSError: if the store cannot be reached.
    """
    content = {"folder": made.rpartition("/")[2], "saved": time.time()}
    said, store = json.dumps(content).encode(), places.opened(path)
    while True:
        # One reading for both: whether there is a marker, and which one is replaced.
        found = _marker(path)
        before = _says(found)
        if before is not None and not overwrite:
            raise FileExistsError(f"{path} exists; pass overwrite=True to replace it")
        try:
            expected = found.stamp.generation
            stamp = store.write(MARKER, said, if_equal=expected).result()
        except ValueError as error:
            raise places.unreachable(path, error) from error
        if stamp.generation:
            break
    if before is not None:
        _delete_data(path, before)


def holds_data(names: Collection[str]) -> bool:
    """Whether a folder with these names in it is a checkpoint from an object store."""
    return MARKER in names and any(name.startswith(_DATA) for name in names)


def discard(path: str) -> None:
    """Deletes a checkpoint: first its marker, so that half of it is none."""
    found = committed(path)
    if found is not None:
        places.opened(path).write(MARKER, None).result()
        _delete_data(path, found)


def _delete_data(path: str, found: Committed) -> None:
    if found.folder:
        delete(f"{path}/{found.folder}")
        return
    # What another program has put beside its marker.
    store = places.opened(path)
    for name in places.below(path):
        if name != MARKER and not name.startswith(_DATA):
            store.write(name, None).result()


def delete(folder: str) -> None:
    """Deletes everything below a folder."""
    everything = ts.KvStore.KeyRange("", "")
    try:
        places.opened(folder).delete_range(everything).result()
    except ValueError as error:
        raise places.unreachable(folder, error) from error


def sweep(directory: str, of: str | None = None) -> None:
    """Deletes what saves that were killed have left below a folder.

    Args:
      of: only what was made for this name.
    """
    for name, attempt in _attempts(directory, of):
        path = f"{directory}/{name}"
        if _is_abandoned(attempt):
            found = committed(path)
            if found is None or found.folder != attempt:
                delete(f"{path}/{attempt}")


def _attempts(directory: str, of: str | None) -> set[tuple[str, str]]:
    """The names of checkpoints below a folder, each with a folder of data for it."""
    if of is not None:
        found = places.below(f"{directory}/{of}")
        return {(of, n.partition("/")[0]) for n in found if n.startswith(_DATA)}
    split = (name.split("/") for name in places.below(directory))
    return {(n[0], n[1]) for n in split if len(n) > 2 and n[1].startswith(_DATA)}


def _is_abandoned(attempt: str) -> bool:
    began, _, maker = attempt.removeprefix(_DATA).partition("-")
    made_by = Maker.read(maker)
    if made_by is not None and made_by.is_here:
        return made_by.is_dead
    return began.isdigit() and time.time() - int(began) > _FORGOTTEN_SECONDS

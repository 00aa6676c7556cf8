"""What a checkpoint holds, without restoring it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from treadle import ArrayType
from treadle.checkpoint import naming, objects, orbax_format, places, store
from treadle.checkpoint.manifest import DamagedError, Leaf
from treadle.checkpoint.places import Place
from treadle.checkpoint.restore import load_manifest


def found_in(path: Place, item: str | None) -> str:
    """The folder of the checkpoint itself, where `path` may be a step's."""
    return orbax_format.find_item(places.absolute(path), item)


def _parts(path: Place, item: str | None) -> Iterator[tuple[str, str]]:
    """The items that are meant, each with its folder; the name of the only one is
    empty.

    Raises:
      DamagedError: if one is lost.
    """
    folder = objects.data_of(places.absolute(path))
    names = []
    if item is None and places.is_folder(folder) and not orbax_format.is_item(folder):
        names = orbax_format.all_items_in(folder)
    if not names:
        yield "", found_in(path, item)
        return
    for name in names:
        if not places.is_folder(os.path.join(folder, name)):
            raise DamagedError(f"{os.path.join(folder, name)} is missing")
        yield name if len(names) > 1 else "", os.path.join(folder, name)


def describe(path: Place, *, item: str | None = None) -> dict[str, str]:
    """The name of each leaf of a checkpoint, with its dtype and shape; of several
    items, each after the item's name.

    >>> import numpy as np
    >>> from treadle.checkpoint import save
    >>> save("model", {"weight": np.ones((2, 3), np.float32), "epoch": 7})
    >>> describe("model")
    {'epoch': 'Python int', 'weight': 'float32[2,3]'}
    """
    found: dict[str, str] = {}
    for name, folder in _parts(path, item):
        if orbax_format.is_json_item(folder):
            found[name] = "JSON"
            continue
        manifest = load_manifest(folder)
        for place, leaf in zip(manifest.paths, manifest.leaves, strict=True):
            found[f"{name}.{naming.shown(place)}".removeprefix(".")] = str(leaf)
    return found


def types(path: Place, *, item: str | None = None) -> Any:
    """The tree of a checkpoint with the shape and dtype of each array in its place,
    without reading arrays: a template for `restore`. Strings are themselves.

    Raises:
      FileNotFoundError, ValueError, DamagedError: as `restore`.

    >>> import numpy as np
    >>> from treadle.checkpoint import save
    >>> save("typed", {"weight": np.ones((2, 3), np.float32), "epoch": 7})
    >>> types("typed")
    {'epoch': i64[], 'weight': f32[2,3]}
    """
    manifest = load_manifest(found_in(path, item))
    return naming.decode(manifest.tree, [_type(leaf) for leaf in manifest.leaves])


def _type(leaf: Leaf) -> Any:
    if leaf.inline is not None:
        return leaf.inline
    return ArrayType(leaf.shape, np.dtype(leaf.dtype), leaf.weak)


def metadata(path: Place) -> dict[str, Any]:
    """What was given as ``metadata=`` when a checkpoint or a step was saved.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      DamagedError: if it is damaged.

    >>> from treadle.checkpoint import save
    >>> save("tagged", {"w": 1.0}, metadata={"data": "second half"})
    >>> metadata("tagged")
    {'data': 'second half'}
    """
    return dict(_about(path).get("metadata", {}))


def written_by(path: Place) -> dict[str, str]:
    """What wrote a checkpoint of Treadle's: the versions of "treadle" and "python",
    and, where there were such, the "program" and the "commit" of its repository.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      DamagedError: if it is damaged.

    >>> from treadle.checkpoint import save
    >>> save("made", {"w": 1.0})
    >>> sorted(written_by("made"))[-2:]
    ['python', 'treadle']
    """
    return dict(_about(path).get("written_by", {}))


def _about(path: Place) -> dict[str, Any]:
    return orbax_format.about(objects.data_of(places.absolute(path)))


def verify(path: Place, *, item: str | None = None) -> None:
    """Reads a checkpoint, with all its items, and compares all checksums.

    Raises:
      DamagedError: names the first part that is missing or altered.
      FileNotFoundError: if there is no checkpoint.
      ValueError: if there is no such item.
    """
    for _, folder in _parts(path, item):
        if orbax_format.is_json_item(folder):
            orbax_format.verify_json_item(folder)
            continue
        manifest = load_manifest(folder)
        everything = dict.fromkeys(range(len(manifest.leaves)))
        for _ in store.read(folder, manifest, everything):
            pass
    if item is None:
        with contextlib.suppress(FileNotFoundError):
            _about(path)

"""Restoring a pytree, after making sure that it is the one that is expected."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar, overload

import numpy as np

from treadle import Array, ArrayType, dtypes, tree
from treadle.checkpoint import manifest as manifests
from treadle.checkpoint import naming, orbax_format, store
from treadle.checkpoint.manifest import DamagedError, Leaf, Manifest
from treadle.errors import StructureError

_KINDS = {"b": "bool", "i": "int", "u": "int", "f": "float", "c": "complex"}
_PYTHON = {"bool": bool, "int": int, "float": float, "complex": complex, "str": str}
_SHOWN = 40
_REMEDY = (
    "Build the template with the settings that the saved one was built with. Without a "
    "template, restore gives all that was saved as dicts and lists."
)
_A_PART = "To restore only what the template has, pass partial=True."

T = TypeVar("T")


@overload
def restore(
    path: str | os.PathLike[str],
    template: None = None,
    *,
    partial: bool = False,
    item: str | None = None,
) -> Any: ...
@overload
def restore(
    path: str | os.PathLike[str],
    template: T,
    *,
    partial: bool = False,
    item: str | None = None,
) -> T: ...
def restore(
    path: str | os.PathLike[str],
    template: Any = None,
    *,
    partial: bool = False,
    item: str | None = None,
) -> Any:
    """The pytree that was saved at `path`, by Treadle or by Orbax.

    Args:
      template: a pytree like the one that was saved: a new model, or the shapes of one
        (leaves need only ``shape`` and ``dtype``). The result has its containers.
        Without it the result is made of dicts and lists (of an OrderedDict where names
        had another order than a dict's, such as that of a module's fields).
      partial: the template is a part of what was saved; what it lacks is not read. A
        dict with the names of some fields stands for the module that was saved.
      item: which of the items, if `path` is a step of Orbax's with several.

    Returns:
      Arrays where arrays were saved (NumPy's where the template has NumPy's), Python
      numbers and strings where such were saved.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      ValueError: if there is no such item, or there are several and none is named.
      StructureError: if the template has other leaves, shapes or dtypes. It lists all
        differences, before anything is read.
      DamagedError: if a part is missing or altered; it names the part.

    >>> import numpy as np
    >>> from treadle.checkpoint import save
    >>> save("two", {"epoch": 7, "weights": (np.ones(2), np.zeros(3))})
    >>> restore("two", {"epoch": 0, "weights": (np.empty(2), np.empty(3))})
    {'epoch': 7, 'weights': (array([1., 1.]), array([0., 0., 0.]))}
    >>> restore("two", {"epoch": 0}, partial=True)
    {'epoch': 7}
    """
    if partial and template is None:
        raise ValueError(
            "partial=True needs a template, which says what part: "
            'restore(path, {"model": model}, partial=True)'
        )
    path = os.path.abspath(os.fspath(path))
    while True:
        before = _identity(path)
        try:
            found = orbax_format.find_item(path, item)
            return _restore(found, template, partial)
        except (DamagedError, FileNotFoundError):
            # Unless another process has replaced it while it was being read.
            if _identity(path) == before:
                raise


def _identity(path: str) -> tuple[int, ...] | None:
    """Tells a directory from another one that later has its name."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _restore(path: str, template: Any, partial: bool) -> Any:
    manifest = load_manifest(path)
    if template is None:
        everything = dict.fromkeys(range(len(manifest.leaves)))
        return naming.decode(manifest.tree, _values(path, manifest, everything))
    skeleton, wanted = naming.encode(template)
    names = [tuple(step.text for step in p) for p in naming.leaf_paths(skeleton)]
    saved = {tuple(s.text for s in p): i for i, p in enumerate(manifest.paths)}
    likes = dict(zip(names, wanted, strict=True))
    _compare(path, manifest, likes, saved, partial)
    numbers = {saved[name]: like for name, like in likes.items()}
    values = _values(path, manifest, numbers)
    return tree.structure(template).unflatten(values[saved[name]] for name in names)


def load_manifest(path: str) -> Manifest:
    """What the checkpoint at `path` holds, without reading arrays.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      DamagedError: if its description is missing or altered.
    """
    store.check_process("read a checkpoint")
    if not os.path.isdir(path):
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        return manifests.read(path)
    except FileNotFoundError:
        manifest, kinds = orbax_format.read(path)
    leaves = []
    for (shape, dtype), kind in zip(store.describe(path, manifest), kinds, strict=True):
        python = _KINDS[np.dtype(dtype).kind] if kind == "scalar" else ""
        leaves.append(Leaf(shape, dtype, python=python))
    return replace(manifest, leaves=tuple(leaves))


def describe(
    path: str | os.PathLike[str], *, item: str | None = None
) -> dict[str, str]:
    """The name of each leaf of a checkpoint, with its dtype and shape.

    >>> import numpy as np
    >>> from treadle.checkpoint import save
    >>> save("model", {"weight": np.ones((2, 3), np.float32), "epoch": 7})
    >>> describe("model")
    {'epoch': 'Python int', 'weight': 'float32[2,3]'}
    """
    manifest = load_manifest(_found(path, item))
    return {
        naming.shown(p): str(leaf)
        for p, leaf in zip(manifest.paths, manifest.leaves, strict=True)
    }


def verify(path: str | os.PathLike[str], *, item: str | None = None) -> None:
    """Reads a checkpoint and compares all checksums.

    Raises:
      DamagedError: names the first part that is missing or altered.
      FileNotFoundError: if there is no checkpoint.
      ValueError: if there is no such item, or there are several and none is named.
    """
    found = _found(path, item)
    manifest = load_manifest(found)
    for _ in store.read(found, manifest, range(len(manifest.leaves))):
        pass


def _found(path: str | os.PathLike[str], item: str | None) -> str:
    return orbax_format.find_item(os.path.abspath(os.fspath(path)), item)


def _values(path: str, manifest: Manifest, likes: dict[int, Any]) -> dict[int, Any]:
    """The leaves with some numbers; each like what it is to be."""
    arrays = store.read(path, manifest, likes)
    return {
        number: _value(manifest.leaves[number], arrays, like)
        for number, like in likes.items()
    }


def _value(leaf: Leaf, arrays: Iterator[np.ndarray], like: Any) -> Any:
    if leaf.inline is not None:
        return leaf.inline
    dtype = np.dtype(leaf.dtype)
    array = next(arrays) if leaf.is_stored else np.empty(leaf.shape, dtype)
    if leaf.python:
        return _PYTHON[leaf.python](array[()])
    if isinstance(like, np.generic):
        return array[()]
    if isinstance(like, np.ndarray) or not dtypes.is_supported(dtype):
        return array
    return Array(array, ArrayType(leaf.shape, dtype, leaf.weak))


def _compare(
    path: str,
    manifest: Manifest,
    wanted: dict[tuple[str, ...], Any],
    saved: dict[tuple[str, ...], int],
    partial: bool,
) -> None:
    """Raises if what is wanted and what was saved differ, with all differences."""
    problems = []
    for name, like in wanted.items():
        if name not in saved:
            problems.append((name, f"{_expected(like)} expected, not saved"))
            continue
        leaf = manifest.leaves[saved[name]]
        if not _fits(leaf, like):
            problems.append((name, f"{_expected(like)} expected, {leaf} saved"))
    more = [] if partial else [name for name in saved if name not in wanted]
    whole = not problems
    for name in more:
        problems.append((name, f"not expected, {manifest.leaves[saved[name]]} saved"))
    if not problems:
        return
    lines = [f"  {'.'.join(name) or '<root>'}: {text}" for name, text in problems]
    if len(lines) > _SHOWN:
        lines[_SHOWN:] = [f"  … and {len(lines) - _SHOWN} more"]
    raise StructureError(
        f"the checkpoint at {path} does not fit the template:\n"
        + "\n".join(lines)
        + "\n"
        + (_A_PART if whole and wanted else _REMEDY)
    )


def _expected(like: Any) -> str:
    if hasattr(like, "shape") and hasattr(like, "dtype"):
        return str(Leaf(tuple(like.shape), np.dtype(like.dtype).name))
    return f"Python {type(like).__name__}"


def _fits(leaf: Leaf, like: Any) -> bool:
    """Whether a leaf can stand where the template has `like`.

    A Python number and an array with one element stand for each other: a step counter
    that starts as 0 is an array once a compiled function has returned it.
    """
    if hasattr(like, "shape") and hasattr(like, "dtype"):
        shape, dtype = tuple(like.shape), np.dtype(like.dtype).newbyteorder("=")
        if leaf.python:
            return shape == () and _KINDS.get(dtype.kind) == leaf.python
        return shape == leaf.shape and dtype == np.dtype(leaf.dtype)
    if leaf.python or leaf.shape:
        return type(like).__name__ == leaf.python
    return _KINDS.get(np.dtype(leaf.dtype).kind) == type(like).__name__

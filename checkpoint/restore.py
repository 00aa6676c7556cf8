"""Restoring a pytree, after making sure that it is the one that is expected."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, TypedDict, TypeVar, Unpack, overload

import numpy as np

from treadle import Array, ArrayType, device_put, dtypes, tree
from treadle.checkpoint import fit, naming, objects, orbax_format, places, store
from treadle.checkpoint import manifest as manifests
from treadle.checkpoint.items import Items, Json, keeper
from treadle.checkpoint.manifest import DamagedError, Leaf, Manifest
from treadle.checkpoint.places import Place

_PYTHON = {"bool": bool, "int": int, "float": float, "complex": complex, "str": str}

T = TypeVar("T")


class How(TypedDict, total=False):
    """How a template and a checkpoint are brought together: options of `restore`."""

    partial: bool
    strict: bool
    cast: bool
    names: fit.Names
    only: Any
    item: str | None
    max_bytes_in_flight: int


@overload
def restore(path: Place, template: None = None, **how: Unpack[How]) -> Any: ...
@overload
def restore(path: Place, template: T, **how: Unpack[How]) -> T: ...
def restore(path: Place, template: Any = None, **how: Unpack[How]) -> Any:
    """The pytree that was saved at `path`, by Treadle or by Orbax.

    Args:
      path: a folder, or a URL as ``s3://bucket/model`` or ``gs://bucket/model``.
      template: a pytree like the one that was saved: a new model, or the shapes of one
        (leaves need only ``shape`` and ``dtype``). The result has its containers.
        Without it the result is made of dicts and lists (of an OrderedDict where names
        had another order than a dict's, such as that of a module's fields). For
        several items: `Items`, with a template for each that is wanted. An object that
        knows its place goes to the one that was saved.
      partial: the template is a part of what was saved; what it lacks is not read. A
        dict with the names of some fields stands for the module that was saved.
      strict: whether what does not fit is an error. With ``strict=False`` it is left
        out, and stays as the template has it; a warning lists it.
      cast: arrays are converted to the dtypes of the template: integers to other
        integers and to floats, floats to other floats.
      names: what parts of the checkpoint are called in the template, as
        ``{"encoder": "model.backbone"}``; or a function from the path of a saved leaf
        to its path in the template, or to None if it is not to be restored.
      only: what of the template is restored, in the terms of `treadle.tree.select`
        (``"model.**.bias"``, a class); the rest stays as it is. Without a template: the
        paths of what is restored.
      item: which of the items, if several were saved.
      max_bytes_in_flight: how much is being read at a time (256 MB), but at least one
        chunk: so much memory is taken beyond that of the result.

    Returns:
      Arrays where arrays were saved (NumPy's where the template has NumPy's; on the
      device on which `treadle.device_put` has placed the template's), Python numbers
      and strings where such were saved.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      OSError: if an object store cannot be reached.
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
    >>> restore("two", only="weights.0")
    {'weights': {'0': Array([1., 1.], dtype=float64)}}
    """
    unknown = set(how) - set(How.__annotations__)
    if unknown:
        raise TypeError(f"restore has no option {sorted(unknown)[0]!r}")
    without = {"partial", "strict", "cast", "names"} & set(how)
    if without and template is None:
        raise ValueError(
            f"{min(without)}={how[min(without)]!r} needs a template, which says what "  # type: ignore[literal-required]
            'it is about: restore(path, {"model": model}, partial=True)'
        )
    path = places.absolute(path)
    while True:
        before = _identity(path)
        try:
            if isinstance(template, Items):
                return _restore_items(path, template, how)
            return _restored(path, template, how)()
        except (DamagedError, FileNotFoundError):
            # Unless another process has replaced it while it was being read.
            if _identity(path) == before:
                raise


def _restore_items(path: str, templates: Items, how: How) -> Items:
    if alone := {"names", "only", "item"} & set(how):
        raise ValueError(
            f"{min(alone)}={how[min(alone)]!r} is about one item: "  # type: ignore[literal-required]
            "restore it alone, with item="
        )
    found = {
        name: _restored(path, template, {**how, "item": name})
        for name, template in templates.items()
    }
    # Nothing goes to its place unless all was found.
    return Items({name: finish() for name, finish in found.items()})


def _restored(path: str, template: Any, how: How) -> Callable[[], Any]:
    """What gives an item, once the others are read, too."""
    found = orbax_format.find_item(path, how.get("item"))
    keeps = keeper(template)
    is_json = orbax_format.is_json_item(found)
    if is_json and not (keeps or template is None or isinstance(template, Json)):
        raise ValueError(
            f"{found} is JSON, which needs no template: pass None in its place"
        )
    value = (
        orbax_format.read_json_item(found)
        if is_json
        else _restore(found, None if keeps else template, how)
    )
    if keeps is None:
        return lambda: value

    def go() -> Any:
        keeps.set(value)
        return template

    return go


def _identity(path: str) -> Any:
    """Tells a directory from another one that later has its name."""
    if places.is_remote(path):
        return objects.committed(path)
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns


def _restore(path: str, template: Any, how: How) -> Any:
    manifest = load_manifest(path)
    only = how.get("only")
    if template is None:
        return _without_template(path, manifest, how)
    skeleton, likes = naming.encode(template)
    names = [tuple(step.text for step in p) for p in naming.leaf_paths(skeleton)]
    wanted = dict(zip(names, likes, strict=True))
    if only is not None:
        meant = tree.leaves(tree.select(only)(template))
        for name, like, yes in zip(names, likes, meant, strict=True):
            if not yes and not fit.is_type(like):
                del wanted[name]
    saved = fit.match(
        path,
        manifest,
        wanted,
        fit.saved_names(manifest, how.get("names")),
        partial=how.get("partial", False) or only is not None,
        strict=how.get("strict", True),
        cast=how.get("cast", False),
    )
    numbers = {number: wanted[name] for name, number in saved.items()}
    values = values_of(path, manifest, numbers, **_in_flight(how))
    return tree.structure(template).unflatten(
        values[saved[name]] if name in saved else like
        for name, like in zip(names, likes, strict=True)
    )


def _in_flight(how: How) -> dict[str, int]:
    most = how.get("max_bytes_in_flight")
    return {} if most is None else {"most": most}


def _without_template(path: str, manifest: Manifest, how: How) -> Any:
    only = how.get("only")
    numbers = list(range(len(manifest.leaves)))
    skeleton = manifest.tree
    if only is not None:
        patterns = [only] if isinstance(only, str) else list(only)
        numbers, kept = [], manifest.paths
        for pattern in patterns:
            found = [
                number
                for number, place in enumerate(kept)
                if _is_meant(pattern, tuple(step.text for step in place))
            ]
            if not found:
                raise ValueError(
                    f"only={pattern!r} means nothing in the checkpoint at {path}; "
                    "treadle.checkpoint.describe lists what is there"
                )
            numbers += found
        skeleton = naming.part(skeleton, set(numbers))
    likes = dict.fromkeys(numbers)
    values = values_of(path, manifest, likes, **_in_flight(how))
    return naming.decode(skeleton, values)


def _is_meant(pattern: str, path: tuple[str, ...]) -> bool:
    """Whether a pattern means a leaf, or something that it is in."""
    return any(tree.matches(pattern, path[:n]) for n in range(1, len(path) + 1))


def load_manifest(path: str) -> Manifest:
    """What the checkpoint at `path` holds, without reading arrays.

    Raises:
      FileNotFoundError: if there is no checkpoint.
      DamagedError: if its description is missing or altered.
    """
    store.check_process("read a checkpoint")
    if not places.is_folder(path):
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        return manifests.read(path)
    except FileNotFoundError:
        manifest, kinds = orbax_format.read(path)
    leaves = []
    for (shape, dtype), kind in zip(store.describe(path, manifest), kinds, strict=True):
        python = fit.KINDS[np.dtype(dtype).kind] if kind == "scalar" else ""
        leaves.append(Leaf(shape, dtype, python=python))
    return replace(manifest, leaves=tuple(leaves))


def values_of(
    path: str,
    manifest: Manifest,
    likes: dict[int, Any],
    most: int = store.BYTES_IN_FLIGHT,
) -> dict[int, Any]:
    """The leaves with some numbers; each like what it is to be."""
    dtypes = {n: _dtype(manifest.leaves[n], like) for n, like in likes.items()}
    arrays = store.read(path, manifest, dtypes, most)
    return {
        number: _value(manifest.leaves[number], arrays, like)
        for number, like in likes.items()
    }


def _dtype(leaf: Leaf, like: Any) -> np.dtype | None:
    """What an array has to be converted to; None for what stays as it was saved."""
    wanted = getattr(like, "dtype", None)
    return None if leaf.python or wanted is None else np.dtype(wanted).newbyteorder("=")


def _value(leaf: Leaf, arrays: Iterator[np.ndarray], like: Any) -> Any:
    if leaf.inline is not None:
        return leaf.inline
    wanted = _dtype(leaf, like)
    dtype = np.dtype(leaf.dtype) if wanted is None else wanted
    array = next(arrays) if leaf.is_stored else np.empty(leaf.shape, dtype)
    if leaf.python:
        return _PYTHON[leaf.python](array[()])
    if isinstance(like, np.generic):
        return array[()]
    if isinstance(like, np.ndarray) or not dtypes.is_supported(dtype):
        return array
    restored = Array(array, ArrayType(leaf.shape, dtype, leaf.weak))
    if getattr(like, "placed", False):
        return device_put(restored, like.device)
    return restored

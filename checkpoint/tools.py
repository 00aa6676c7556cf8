"""What one does with checkpoints besides training: lists, differences, conversions."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from treadle import tree, weights
from treadle.checkpoint import naming, orbax_format
from treadle.checkpoint.look import found_in
from treadle.checkpoint.restore import load_manifest, restore, values_of
from treadle.checkpoint.save import save

PathLike = str | os.PathLike[str]

_OF_WEIGHTS = (".safetensors", ".npz", ".pt", ".pth", ".bin")
_WRITTEN = (".safetensors", ".npz")


@dataclass(frozen=True)
class Entry:
    """A checkpoint in a folder; `step` is None for one that is no step."""

    path: Path
    step: int | None
    items: tuple[str, ...]
    metrics: dict[str, float]
    size: int
    saved: float


def find(path: PathLike) -> list[Entry]:
    """The checkpoints at a path, by step: of a run, of a folder of steps, or one.

    Raises:
      FileNotFoundError: if there is none.

    >>> from treadle.checkpoint import Manager
    >>> with Manager("run") as manager:
    ...     _ = manager.save(3, {"w": 1.0}, {"loss": 0.5})
    >>> [(entry.step, entry.metrics) for entry in find("run")]
    [(3, {'loss': 0.5})]
    """
    folder = Path(path)
    if orbax_format.is_checkpoint(str(folder)):
        return [_entry(folder)]
    inside = folder / "checkpoints"
    folder = inside if inside.is_dir() else folder
    names = sorted(os.listdir(folder)) if folder.is_dir() else []
    found = [
        _entry(folder / name)
        for name in names
        if re.fullmatch(r"(.+_)?[0-9]+", name)
        and orbax_format.is_checkpoint(str(folder / name))
    ]
    if not found:
        raise FileNotFoundError(
            f"no checkpoint at {path}: a step, a folder of steps, or a run is expected"
        )
    return sorted(found, key=lambda entry: (entry.step or 0, entry.path.name))


def _entry(path: Path) -> Entry:
    number = re.search(r"[0-9]+$", path.name)
    is_item = orbax_format.is_item(str(path))
    files = [file for file in path.rglob("*") if file.is_file()]
    return Entry(
        path,
        None if is_item or number is None else int(number[0]),
        () if is_item else tuple(orbax_format.items_in(str(path))),
        {} if is_item else orbax_format.read_metrics(str(path)),
        sum(file.stat().st_size for file in files),
        max(file.stat().st_mtime for file in files),
    )


def latest(path: PathLike) -> Path:
    """The checkpoint at a path; of several steps, the last one."""
    return find(path)[-1].path


def compare(
    first: PathLike, second: PathLike, *, item: str | None = None
) -> dict[str, str]:
    """How two checkpoints differ: what is said of each leaf that is not the same.

    Bits are compared, so that a NaN is equal to itself; arrays with the same checksum
    are not read.

    Raises:
      FileNotFoundError, DamagedError, ValueError: as `treadle.checkpoint.restore`.

    >>> save("one", {"w": np.ones(2), "step": 1})
    >>> save("two", {"w": np.array([1.0, 4.0]), "step": 1, "new": 0})
    >>> compare("one", "two")
    {'w': '1 of 2 elements differ, by up to 3', 'new': 'only in the second: Python int'}
    """
    paths = [found_in(path, item) for path in (first, second)]
    manifests = [load_manifest(path) for path in paths]
    places = [
        {naming.shown(path): number for number, path in enumerate(m.paths)}
        for m in manifests
    ]
    leaves = [
        dict(zip(numbers, m.leaves, strict=True))
        for numbers, m in zip(places, manifests, strict=True)
    ]
    found: dict[str, str] = {}
    for name, leaf in leaves[0].items():
        other = leaves[1].get(name)
        if other is None:
            found[name] = f"only in the first: {leaf}"
        elif str(leaf) != str(other):
            found[name] = f"{leaf} in the first, {other} in the second"
        elif leaf.crc32 is None or leaf.crc32 != other.crc32 or leaf.inline is not None:
            pair = [
                values_of(path, m, {numbers[name]: None})[numbers[name]]
                for path, m, numbers in zip(paths, manifests, places, strict=True)
            ]
            if text := _difference(*pair):
                found[name] = text
    for name, leaf in leaves[1].items():
        if name not in leaves[0]:
            found[name] = f"only in the second: {leaf}"
    return found


def _difference(first: Any, second: Any) -> str:
    if isinstance(first, bool | int | str):
        return "" if first == second else f"{first!r} against {second!r}"
    a, b = np.asarray(first), np.asarray(second)
    if a.tobytes() == b.tobytes():
        return ""
    unlike = (a != b) & ((a == a) | (b == b))
    count = int(np.count_nonzero(unlike))
    if not count:
        return "other bits of the same numbers"
    wide = np.complex128 if a.dtype.kind == "c" else np.float64
    by = np.nanmax(np.abs(a[unlike].astype(wide) - b[unlike].astype(wide)))
    return f"{count} of {a.size} elements differ, by up to {by:.3g}"


def convert(
    source: PathLike,
    target: PathLike,
    *,
    only: str | Sequence[str] | None = None,
    item: str | None = None,
    overwrite: bool = False,
) -> list[str]:
    """Writes a checkpoint as a file of weights, a file of weights as a checkpoint, or a
    checkpoint of Orbax's as one with checksums, which Orbax reads, too.

    Args:
      source: a checkpoint (of several steps, the last), or what `treadle.weights.load`
        reads: safetensors, PyTorch's files, .npz.
      target: ``*.safetensors`` or ``*.npz``; otherwise a checkpoint. Names with dots
        become nested dicts.
      only: the paths of what is taken, as ``"model.**.weight"``.
      item: which of the items of a step.
      overwrite: whether what is at `target` may be replaced.

    Returns:
      The paths of what a file of weights can't hold: Python numbers and strings.

    Raises:
      FileExistsError: if `target` exists and `overwrite` is false.
      ValueError: if a name is that of an array and of the beginning of another's.

    >>> save("model", {"layers": [{"w": np.ones(2)}], "step": 3})
    >>> convert("model", "model.safetensors")
    ['step']
    >>> convert("model.safetensors", "again")
    []
    >>> restore("again")
    {'layers': {'0': {'w': Array([1., 1.], dtype=float64)}}}
    """
    source, target = Path(source), Path(target)
    if source.suffix in _OF_WEIGHTS:
        values = _nested(weights.load(source))
        if only is not None:
            patterns = [only] if isinstance(only, str) else only
            mask = tree.leaves(tree.select(*patterns)(values))
            names = [tree.dotted(p) for p, _ in tree.leaves_with_path(values)]
            kept = zip(names, tree.leaves(values), mask, strict=True)
            values = _nested({name: x for name, x, yes in kept if yes})
    else:
        values = restore(latest(source), only=only, item=item)
    if target.suffix not in _WRITTEN:
        save(target, values, overwrite=overwrite)
        return []
    if target.exists() and not overwrite:
        raise FileExistsError(f"{target} exists; with overwrite it is replaced")
    leaves = tree.leaves_with_path(values)
    arrays = {tree.dotted(p): np.asarray(x) for p, x in leaves if _is_array(x)}
    weights.save(target, arrays)
    return [tree.dotted(p) for p, x in leaves if not _is_array(x)]


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "__array__")


def _nested(arrays: dict[str, Any]) -> dict[str, Any]:
    root: dict[str, Any] = {}
    for name, array in arrays.items():
        *above, last = name.split(".")
        node = root
        for part in above:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ValueError(f"{name!r} is inside of what is an array itself")
        if last in node:
            raise ValueError(f"{name!r} is an array, and others are inside of it")
        node[last] = array
    return root

"""Reading and writing files of weights, whatever their format."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from treadle import tree
from treadle.errors import at, user_source
from treadle.weights import safetensors, torch_format
from treadle.weights.modules import of

PathLike = str | os.PathLike[str]

_WHOLE = ("model.safetensors", "pytorch_model.bin")
_INDEX = ".index.json"
_ENDINGS = (".safetensors", ".npz")
_NOTHING = """\
{path} has no weights: {found}{at}
A folder of weights holds model.safetensors or pytorch_model.bin, or one of these with \
{index}, which names several files."""
_UNKNOWN = """\
{path} is of no known format: it begins with {first!r}{at}
Known are safetensors, PyTorch's files (.pt, .pth, .bin) and NumPy's .npz."""


def load(path: PathLike) -> dict[str, np.ndarray]:
    """The arrays of a file or folder of weights, by name.

    They are read-only views of the file where its format allows: what is not used is
    not read. Of nested dicts (a checkpoint with ``"model"`` and ``"epoch"``), names are
    joined by dots, and what is no array is left out.

    Args:
      path: a safetensors file; a file of PyTorch (.pt, .pth, .bin), which is read
        without unpickling: nothing in it is run; NumPy's .npz; or a folder of Hugging
        Face's layout, be it in one file or in several.

    Raises:
      FileNotFoundError: if there are no weights.
      ValueError: if a file is damaged, or refers to more than arrays and containers.

    >>> import treadle.numpy as tnp
    >>> from treadle import weights
    >>> weights.save("model.safetensors", {"scale": tnp.ones(2)})
    >>> weights.load("model.safetensors")
    {'scale': array([1., 1.], dtype=float32)}
    """
    path = Path(path)
    if path.is_dir():
        return _load_folder(path)
    with open(path, "rb") as file:
        first = file.read(16)
    # First: its header begins with a length, which may be any bytes.
    if safetensors.looks_like(first) or path.suffix == ".safetensors":
        return safetensors.read(path)[0]
    if first[:2] == b"PK":
        if torch_format.is_archive(path):
            return _flat(torch_format.read_archive(path), path)
        return _load_npz(path)
    if first[:1] == b"\x80":
        return _flat(torch_format.read_legacy(path), path)
    raise ValueError(_UNKNOWN.format(path=path, first=first, at=at(user_source())))


def metadata(path: PathLike) -> dict[str, str]:
    """The metadata of a safetensors file.

    >>> from treadle import weights
    >>> weights.save("model.safetensors", {}, metadata={"license": "MIT"})
    >>> weights.metadata("model.safetensors")
    {'license': 'MIT'}
    """
    return safetensors.read(Path(path))[1]


def save(
    path: PathLike,
    model: Any,
    *,
    metadata: Mapping[str, str] | None = None,
    shard_bytes: int | None = None,
) -> None:
    """Writes the arrays of a model, or a dict of arrays, for other programs to read.

    To go on training, use `treadle.checkpoint`, which keeps the structure, too.

    Args:
      path: ``*.safetensors`` or ``*.npz``; otherwise a folder, which gets a
        ``model.safetensors``.
      model: a Module or pytree, whose arrays are named by their paths (`of`), or a dict
        of arrays by name.
      metadata: strings, kept in the header of safetensors.
      shard_bytes: of a folder, how large a file may be; more of them get an index.

    Raises:
      TypeError: for dtypes that the format lacks (complex128 in safetensors, bfloat16
        in npz).
      ValueError: for other endings, and for leaves of which none is an array.
    """
    path = Path(path)
    arrays = of(model)
    if not arrays and tree.leaves(model):
        raise ValueError(
            f"weights.save: there is no array in {model!r:.60} to be written to {path}"
            f"{at(user_source())}"
        )
    notes = dict(metadata or {})
    if path.suffix == ".npz":
        _save_npz(path, arrays, notes)
    elif path.suffix == ".safetensors":
        safetensors.write(path, arrays, notes)
    elif path.suffix:
        raise ValueError(
            f"weights.save: {path} ends in none of {', '.join(_ENDINGS)}, and a "
            f"folder's name has no ending{at(user_source())}"
        )
    else:
        path.mkdir(parents=True, exist_ok=True)
        _save_folder(path, arrays, notes, shard_bytes)


def _load_folder(folder: Path) -> dict[str, np.ndarray]:
    for name in _WHOLE:
        if (folder / name).exists():
            return load(folder / name)
        index = folder / f"{name}{_INDEX}"
        if index.exists():
            return _load_shards(index)
    alone = sorted(folder.glob("*.safetensors"))
    if len(alone) == 1:
        return load(alone[0])
    found = ", ".join(sorted(p.name for p in folder.iterdir())) or "it is empty"
    raise FileNotFoundError(
        _NOTHING.format(
            path=folder, found=found, index=f"{_WHOLE[0]}{_INDEX}", at=at(user_source())
        )
    )


def _load_shards(index: Path) -> dict[str, np.ndarray]:
    places = json.loads(index.read_text())["weight_map"]
    outside = [file for file in places.values() if Path(file).name != file]
    if outside:
        raise ValueError(f"{index} names a file in another folder: {outside[0]!r}")
    files = {file: load(index.parent / file) for file in sorted(set(places.values()))}
    for name, file in places.items():
        if name not in files[file]:
            raise ValueError(f"{index} says that `{name}` is in {file}; it is not")
    return {name: files[file][name] for name, file in places.items()}


def _load_npz(path: Path) -> dict[str, np.ndarray]:
    arrays = {}
    with np.load(path, allow_pickle=False) as file:
        for name in file.files:
            try:
                array = file[name]
            except ValueError as error:
                raise ValueError(f"{path}: `{name}` is not an array: {error}") from None
            if array.dtype.kind == "V":
                raise ValueError(
                    f"{path}: `{name}` is of raw bytes ({array.dtype}); NumPy forgets "
                    "which dtype of ml_dtypes they were. Say it: "
                    "`np.load(path)[name].view(ml_dtypes.bfloat16)`"
                )
            arrays[name] = array
    return arrays


def _save_npz(path: Path, arrays: Mapping[str, np.ndarray], notes: Any) -> None:
    if notes:
        raise ValueError(f"{path}: .npz has no metadata; safetensors has")
    for name, array in arrays.items():
        if array.dtype.kind == "V":
            raise TypeError(
                f"{path}: .npz can't hold {array.dtype}, which `{name}` has; "
                "safetensors can"
            )
    with open(path, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]


def _save_folder(
    folder: Path,
    arrays: Mapping[str, np.ndarray],
    notes: dict[str, str],
    shard_bytes: int | None,
) -> None:
    shards: list[dict[str, np.ndarray]] = [{}]
    for name, array in arrays.items():
        taken = sum(x.nbytes for x in shards[-1].values())
        if shard_bytes and shards[-1] and taken + array.nbytes > shard_bytes:
            shards.append({})
        shards[-1][name] = array
    whole, listed = folder / _WHOLE[0], folder / f"{_WHOLE[0]}{_INDEX}"
    if len(shards) == 1:
        safetensors.write(whole, shards[0], notes)
        listed.unlink(missing_ok=True)
        return
    places = {}
    for i, shard in enumerate(shards, 1):
        file = f"model-{i:05}-of-{len(shards):05}.safetensors"
        safetensors.write(folder / file, shard, notes)
        places.update(dict.fromkeys(shard, file))
    total = sum(array.nbytes for array in arrays.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    listed.write_text(json.dumps(index, indent=2))
    whole.unlink(missing_ok=True)


def _flat(tree: Any, path: Path) -> dict[str, np.ndarray]:
    """Nested dicts and lists as one dict."""
    found: dict[str, np.ndarray] = {}

    def collect(tree: Any, name: str) -> None:
        if isinstance(tree, np.ndarray):
            found[name] = tree
        elif isinstance(tree, dict | list | tuple):
            items = tree.items() if isinstance(tree, dict) else enumerate(tree)
            for key, part in items:
                collect(part, f"{name}.{key}" if name else str(key))

    collect(tree, "")
    if not found:
        raise ValueError(f"{path} holds no arrays, but {tree!r:.80}")
    return found

"""Files that ``torch.save`` wrote: a pickle, and the memory that its tensors view."""

from __future__ import annotations

import mmap
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from treadle.weights import pickles
from treadle.weights.pickles import Storage, Tensor

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LOCAL_HEADER = 30
_PICKLE = "/data.pkl"
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, struct.error, UnicodeDecodeError),
    *(NotImplementedError, EOFError, OSError),
)
_DAMAGED = """\
{path} begins like a file of PyTorch or an .npz, and is damaged: {error}
Was it copied or downloaded to its end? Get it once more."""
_BIG_ENDIAN = """\
{path} was written by a big-endian machine
Save the weights there as safetensors, which are the same everywhere."""

Memory = Callable[[Storage], np.ndarray]


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """
    Raises:
      ValueError: where the zip file turns out to be damaged.
    """
    try:
        yield
    except _ZIP_ERRORS as error:
        raise ValueError(_DAMAGED.format(path=path, error=error)) from None


def is_archive(path: Path) -> bool:
    """Whether a zip file was written by ``torch.save``.

    Raises:
      ValueError: if it is cut off.
    """
    with _whole(path), zipfile.ZipFile(path) as archive:
        return any(name.endswith(_PICKLE) for name in archive.namelist())


def read_archive(path: Path) -> Any:
    """What a file of PyTorch 1.6 or later holds; its tensors are views of the file.

    Raises:
      ValueError: if it is damaged, or holds more than tensors, numbers, strings and
        containers of them.
    """
    with (
        _whole(path),
        zipfile.ZipFile(path) as archive,
        open(path, "rb") as file,
    ):
        names = archive.namelist()
        pickle = next(name for name in names if name.endswith(_PICKLE))
        folder = pickle.removesuffix(_PICKLE)
        content = pickles.read(archive.read(pickle), str(path))
        order = f"{folder}/byteorder"
        if order in names and archive.read(order) != b"little":
            raise ValueError(_BIG_ENDIAN.format(path=path))
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

        def memory(storage: Storage) -> np.ndarray:
            name = f"{folder}/data/{storage.key}"
            if name not in names:
                raise ValueError(f"{path} is damaged: `{name}` is missing")
            nbytes = storage.elements * storage.dtype.itemsize
            entry = archive.getinfo(name)
            if entry.file_size < nbytes:
                raise ValueError(
                    f"{path} is damaged: `{name}` has {entry.file_size} bytes, not "
                    f"{nbytes}"
                )
            begin = _begin(mapped, entry.header_offset)
            stored = entry.compress_type == zipfile.ZIP_STORED
            if stored and begin + nbytes <= len(mapped):
                return np.frombuffer(mapped, np.uint8, nbytes, begin)
            return np.frombuffer(archive.read(name), np.uint8, nbytes)

        return _filled(content, memory, str(path))


def _begin(mapped: mmap.mmap, header: int) -> int:
    """Where the bytes of a zip entry begin, behind its local header."""
    fields = mapped[header + 26 : header + _LOCAL_HEADER]
    lengths = int.from_bytes(fields[:2], "little") + int.from_bytes(
        fields[2:], "little"
    )
    return header + _LOCAL_HEADER + lengths


def read_legacy(path: Path) -> Any:
    """What a file of PyTorch before 1.6 holds: five pickles, then the storages.

    Raises:
      ValueError: as `read_archive`.
    """
    with open(path, "rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if pickles.read(mapped, str(path)) != _LEGACY_MAGIC:
        raise ValueError(
            f"{path} is a pickle, but not of PyTorch: only tensors are read"
        )
    pickles.read(mapped, str(path))  # the version of the format
    about = pickles.read(mapped, str(path))
    if isinstance(about, dict) and not about.get("little_endian", True):
        raise ValueError(_BIG_ENDIAN.format(path=path))
    content = pickles.read(mapped, str(path))
    keys = pickles.read(mapped, str(path))
    place = mapped.tell()
    dtypes: dict[str, np.dtype] = {}
    _note_storages(content, dtypes)
    places: dict[str, int] = {}
    for key in map(str, keys if isinstance(keys, list) else ()):
        if key not in dtypes:
            raise ValueError(f"{path} holds memory {key!r:.40} that no tensor is of")
        count = int.from_bytes(mapped[place : place + 8], "little")
        places[key] = place + 8
        place += 8 + count * dtypes[key].itemsize

    def memory(storage: Storage) -> np.ndarray:
        begin = places.get(storage.key)
        nbytes = storage.elements * storage.dtype.itemsize
        if begin is None or begin + nbytes > len(mapped):
            raise ValueError(f"{path} is damaged: storage {storage.key} is incomplete")
        return np.frombuffer(mapped, np.uint8, nbytes, begin)

    return _filled(content, memory, str(path))


def _note_storages(tree: Any, into: dict[str, np.dtype]) -> None:
    if isinstance(tree, Tensor):
        into[tree.storage.key] = tree.storage.dtype
    elif isinstance(tree, dict | list | tuple):
        for part in tree.values() if isinstance(tree, dict) else tree:
            _note_storages(part, into)


def _filled(tree: Any, memory: Memory, file: str) -> Any:
    """The tree with arrays in place of tensors; those of one storage share memory."""
    known: dict[str, np.ndarray] = {}

    def fill(tree: Any) -> Any:
        if isinstance(tree, Tensor):
            key = tree.storage.key
            if key not in known:
                known[key] = memory(tree.storage)
            return _view(known[key], tree, file)
        if isinstance(tree, dict):
            return {k: fill(v) for k, v in tree.items()}
        if isinstance(tree, list | tuple):
            return type(tree)(fill(v) for v in tree)
        return tree

    return fill(tree)


def _view(memory: np.ndarray, tensor: Tensor, file: str) -> np.ndarray:
    """
    Raises:
      ValueError: if the tensor reaches beyond its storage.
    """
    size = tensor.dtype.itemsize
    steps = zip(tensor.shape, tensor.strides, strict=True)
    end = tensor.offset + sum((n - 1) * s for n, s in steps) + 1
    if 0 in tensor.shape:
        return np.zeros(tensor.shape, tensor.dtype)
    if end * size > memory.nbytes:
        raise ValueError(
            f"{file} is damaged: a tensor of shape {tensor.shape} ends at element "
            f"{end} of a storage of {memory.nbytes // size}"
        )
    return np.ndarray(
        tensor.shape,
        tensor.dtype,
        memory,
        tensor.offset * size,
        tuple(s * size for s in tensor.strides),
    )

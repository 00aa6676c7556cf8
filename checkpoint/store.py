"""Arrays on disk: TensorStore in the format that Orbax uses.

All arrays of a checkpoint lie in one OCDBT database (a handful of files, however many
arrays), each as a zarr 3 array whose chunks carry a CRC-32C, which TensorStore checks
whenever and by whomever they are read. Nothing is compressed unless it is asked for:
float weights shrink by a tenth, for three times the processor time.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorstore as ts

from treadle.checkpoint.manifest import DamagedError, Leaf, Manifest

# Chunks are what is read, checked and written at once.
CHUNK_BYTES = 16 << 20
# How much may be under way at a time: enough to keep the disk busy, and a bound on the
# memory that a save takes beyond the arrays themselves.
_BYTES_UNDER_WAY = 256 << 20
_DTYPES = {"bool", "int4", "bfloat16", "complex64", "complex128"}
_DTYPES |= {f"{sign}{bits}" for sign in ("int", "uint") for bits in (8, 16, 32, 64)}
_DTYPES |= {f"float{bits}" for bits in ("8_e4m3fn", "8_e5m2", "16", "32", "64")}
_CODECS: list[dict[str, Any]] = [
    {"name": "bytes", "configuration": {"endian": "little"}},
    {"name": "crc32c"},
]


_process = os.getpid()


def check_process(what: str) -> None:
    """
    Raises:
      RuntimeError: in a forked process, which TensorStore would abort.
    """
    if os.getpid() != _process:
        raise RuntimeError(
            f"cannot {what} in a forked process: TensorStore's threads are not in it. "
            "Do it in the process that was forked, or start this one afresh: "
            "multiprocessing.get_context('spawn')"
        )


def can_hold(dtype: np.dtype) -> bool:
    """Whether the store has arrays of this dtype."""
    return dtype.name in _DTYPES


def chunk_shape(shape: Sequence[int], itemsize: int) -> list[int]:
    """Cuts leading axes until a chunk has at most `CHUNK_BYTES`.

    >>> chunk_shape((4096, 65536), 4)
    [64, 65536]
    """
    chunk = list(shape)
    for axis in range(len(chunk)):
        rest = math.prod(chunk[axis + 1 :]) * itemsize
        if chunk[axis] * rest <= CHUNK_BYTES:
            break
        chunk[axis] = max(1, CHUNK_BYTES // rest)
    return chunk


def checksum(array: np.ndarray) -> int:
    """The CRC-32 of the elements in row-major order."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return zlib.crc32(flat.view(np.uint8).data)


def _spec(
    directory: str, name: str, *, driver: str = "zarr3", ocdbt: bool = True
) -> dict[str, Any]:
    folder = os.path.join(directory, "")
    kvstore: dict[str, Any] = {"driver": "file", "path": f"{folder}{name}/"}
    if ocdbt:
        base = {"driver": "file", "path": folder}
        kvstore = {"driver": "ocdbt", "base": base, "path": f"{name}/"}
    return {"driver": driver, "kvstore": kvstore}


def _new(
    directory: str, name: str, array: np.ndarray, compression: int | None
) -> dict[str, Any]:
    chunk = chunk_shape(array.shape, array.itemsize)
    grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
    codecs = list(_CODECS)
    if compression is not None:
        level = {"level": compression}
        codecs.insert(1, {"name": "zstd", "configuration": level})
    metadata = {
        "shape": array.shape,
        "data_type": array.dtype.name,
        "chunk_grid": grid,
        "codecs": codecs,
    }
    # Otherwise a chunk of zeros would be left out, and a lost chunk read as zeros.
    keep = {"store_data_equal_to_fill_value": True}
    return {**_spec(directory, name), "metadata": metadata, **keep}


def write(
    directory: str,
    arrays: Iterable[tuple[str, np.ndarray]],
    compression: int | None = None,
) -> None:
    """Writes named arrays into a new database, and returns when they are on the disk.

    The arrays must not change meanwhile.

    Raises:
      OSError: if the disk is full or fails.
    """
    context = ts.Context()
    under_way: deque[tuple[Any, int]] = deque()
    waiting = 0
    opened = [
        (
            ts.open(
                _new(directory, name, array, compression), context=context, create=True
            ),
            array,
        )
        for name, array in arrays
    ]
    try:
        for future, array in opened:
            done = future.result().write(
                array, can_reference_source_data_indefinitely=True
            )
            under_way.append((done, array.nbytes))
            waiting += array.nbytes
            while waiting > _BYTES_UNDER_WAY:
                first, size = under_way.popleft()
                first.result()
                waiting -= size
        for future, _ in under_way:
            future.result()
    except ValueError as error:
        # What is still being written would come back after its folder is deleted.
        for future, _ in under_way:
            future.exception()
        raise OSError(f"could not write the checkpoint: {error}") from error


def describe(directory: str, manifest: Manifest) -> list[tuple[tuple[int, ...], str]]:
    """The shape and dtype of each array, without reading elements."""
    context = ts.Context()
    return [
        (tuple(opened.shape), opened.dtype.numpy_dtype.name)
        for opened in _open(directory, manifest, manifest.names, context)
    ]


def _open(
    directory: str, manifest: Manifest, names: Iterable[str], context: Any
) -> Iterator[Any]:
    names = list(names)
    options = {"fill_missing_data_reads": not manifest.zeros_stored}
    futures = []
    for name in names:
        spec = _spec(directory, name, driver=manifest.driver, ocdbt=manifest.ocdbt)
        futures.append(ts.open({**spec, **options}, context=context, open=True))
    for name, future in zip(names, futures, strict=True):
        try:
            yield future.result()
        except ValueError as error:
            raise DamagedError(_damage(directory, name, error)) from error


def read(
    directory: str, manifest: Manifest, numbers: Iterable[int]
) -> Iterator[np.ndarray]:
    """The stored arrays among some leaves of a checkpoint, in turn, each checked.

    Raises:
      DamagedError: names the array that is missing or altered.
    """
    stored = [
        (manifest.names[number], manifest.leaves[number])
        for number in numbers
        if manifest.leaves[number].is_stored
    ]
    opened = _open(directory, manifest, (name for name, _ in stored), ts.Context())
    under_way: deque[tuple[str, Leaf, Any]] = deque()
    waiting = 0
    for (name, leaf), array in zip(stored, opened, strict=True):
        under_way.append((name, leaf, array.read()))
        waiting += size(leaf)
        while waiting > _BYTES_UNDER_WAY:
            waiting -= size(under_way[0][1])
            yield _checked(directory, *under_way.popleft())
    while under_way:
        yield _checked(directory, *under_way.popleft())


def size(leaf: Leaf) -> int:
    """The bytes that a leaf takes in memory."""
    return math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize


def _checked(directory: str, name: str, leaf: Leaf, future: Any) -> np.ndarray:
    try:
        array = future.result()
    except ValueError as error:
        raise DamagedError(_damage(directory, name, error)) from error
    if leaf.crc32 is None:
        return array
    if (array.shape, array.dtype.name) != (leaf.shape, leaf.dtype):
        found = f"{array.dtype.name}{list(array.shape)}"
        raise DamagedError(_damage(directory, name, f"it is {found}, saved as {leaf}"))
    if checksum(array) != leaf.crc32:
        raise DamagedError(_damage(directory, name, "its checksum does not match"))
    return array


def _damage(directory: str, name: str, reason: object) -> str:
    reason = str(reason).partition(" [tensorstore_spec=")[0]
    return f"the array {name!r} in the checkpoint at {directory} is damaged: {reason}"

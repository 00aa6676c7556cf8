"""Arrays on disk: TensorStore in the format that Orbax uses.

All arrays of a checkpoint lie in one OCDBT database (a handful of files, however many
arrays), each as a zarr 3 array whose chunks carry a CRC-32C, which TensorStore checks
whenever and by whomever they are read. Nothing is compressed unless it is asked for:
float weights shrink by a tenth, for three times the processor time.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypedDict, cast

import numpy as np
import tensorstore as ts

from treadle.checkpoint import places
from treadle.checkpoint.manifest import DamagedError, Leaf, Manifest

# Chunks are what is read, checked and written at once.
CHUNK_BYTES = 16 << 20


class Storage(TypedDict, total=False):
    """How arrays are stored: options of `save`, `save_async` and `Manager`.

    compression: a level of zstd, from 1 (fast) to 22 (small); None for none.
    chunk_bytes: at most so much is compressed, checked and read at a time.
    file_bytes: how large the files of data are about to be; None for 2 GB.
    max_bytes_in_flight: how much is being written at a time.
    """

    compression: int | None
    chunk_bytes: int
    file_bytes: int | None
    max_bytes_in_flight: int


def check_storage(how: Mapping[str, Any]) -> Storage:
    """
    Raises:
      TypeError, ValueError: if an option is none, or its value makes no sense.
    """
    for name, value in how.items():
        if name not in Storage.__annotations__:
            raise TypeError(f"there is no option {name!r} of how arrays are stored")
        whole = type(value) is int
        if name == "compression":
            if value is not None and not (whole and 1 <= value <= 22):
                raise ValueError(
                    "compression is a level of zstd, from 1 to 22, or None, not "
                    f"{value!r}"
                )
        elif not (whole and value >= 1) and (name, value) != ("file_bytes", None):
            raise ValueError(f"{name} is a whole number of bytes, not {value!r}")
    return cast(Storage, dict(how))


# How much may be under way at a time: enough to keep the disk busy, and a bound on the
# memory that a save takes beyond the arrays themselves.
BYTES_IN_FLIGHT = 256 << 20
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


def chunk_shape(
    shape: Sequence[int], itemsize: int, most: int = CHUNK_BYTES
) -> list[int]:
    """Cuts leading axes until a chunk has at most so many bytes.

    >>> chunk_shape((4096, 65536), 4)
    [64, 65536]
    """
    chunk = list(shape)
    for axis in range(len(chunk)):
        rest = math.prod(chunk[axis + 1 :]) * itemsize
        if chunk[axis] * rest <= most:
            break
        chunk[axis] = max(1, most // rest)
    return chunk


def checksum(array: np.ndarray, before: int = 0) -> int:
    """The CRC-32 of the elements in row-major order.

    before: that of the elements that come first.
    """
    flat = np.ascontiguousarray(array).reshape(-1)
    return zlib.crc32(flat.view(np.uint8).data, before)


def _spec(
    directory: str, name: str, *, driver: str = "zarr3", ocdbt: bool = True
) -> dict[str, Any]:
    kvstore = places.kvstore(directory)
    if ocdbt:
        kvstore = {"driver": "ocdbt", "base": kvstore, "path": f"{name}/"}
    else:
        kvstore["path"] += f"{name}/"
    return {"driver": driver, "kvstore": kvstore}


def _new(
    directory: str, name: str, array: np.ndarray, storage: Storage
) -> dict[str, Any]:
    chunk = _chunk(array, storage)
    grid = {"name": "regular", "configuration": {"chunk_shape": chunk}}
    codecs = list(_CODECS)
    if storage.get("compression") is not None:
        level = {"level": storage["compression"]}
        codecs.insert(1, {"name": "zstd", "configuration": level})
    metadata = {
        "shape": array.shape,
        "data_type": array.dtype.name,
        "chunk_grid": grid,
        "codecs": codecs,
    }
    # Otherwise a chunk of zeros would be left out, and a lost chunk read as zeros.
    keep = {"store_data_equal_to_fill_value": True}
    spec = _spec(directory, name)
    if storage.get("file_bytes") is not None:
        spec["kvstore"]["target_data_file_size"] = storage["file_bytes"]
    return {**spec, "metadata": metadata, **keep}


def _chunk(array: np.ndarray, storage: Storage) -> list[int]:
    most = storage.get("chunk_bytes", CHUNK_BYTES)
    return chunk_shape(array.shape, array.itemsize, most)


def _pieces(
    shape: Sequence[int], itemsize: int, chunk: Sequence[int], most: int
) -> Iterator[tuple[slice, ...]]:
    """Indices of whole chunks of an array with about so many bytes together, in
    row-major order; elements of a piece lie side by side where `chunk_shape` cut."""
    size = list(map(min, chunk, shape))
    for axis in reversed(range(len(size))):
        times = max(1, most // (math.prod(size) * itemsize))
        size[axis] = min(shape[axis], size[axis] * times)
        if size[axis] < shape[axis]:
            break
    starts = (range(0, n, step) for n, step in zip(shape, size, strict=True))
    for corner in itertools.product(*starts):
        ends = map(min, map(operator.add, corner, size), shape)
        yield tuple(map(slice, corner, ends))


def write(
    directory: str, arrays: Iterable[tuple[str, np.ndarray]], storage: Storage
) -> None:
    """Writes named arrays into a new database, and returns when they are on the disk.

    The arrays must not change meanwhile.

    Raises:
      OSError: if the disk is full or fails.
    """
    context = places.context()
    most = storage.get("max_bytes_in_flight", BYTES_IN_FLIGHT)
    under_way: deque[tuple[Any, int]] = deque()
    waiting = 0
    opened = [
        (ts.open(_new(directory, name, x, storage), context=context, create=True), x)
        for name, x in arrays
    ]
    try:
        for future, array in opened:
            target = future.result()
            chunk = _chunk(array, storage)
            for at in _pieces(array.shape, array.itemsize, chunk, _part(most)):
                piece = array[at]
                while under_way and waiting + piece.nbytes > most:
                    first, size = under_way.popleft()
                    first.result()
                    waiting -= size
                done = target[at].write(
                    piece, can_reference_source_data_indefinitely=True
                )
                under_way.append((done, piece.nbytes))
                waiting += piece.nbytes
        for done, _ in under_way:
            done.result()
    except ValueError as error:
        # What is still being written would come back after its folder is deleted.
        for done, _ in under_way:
            done.exception()
        raise OSError(f"could not write the checkpoint: {error}") from error


def describe(directory: str, manifest: Manifest) -> list[tuple[tuple[int, ...], str]]:
    """The shape and dtype of each array, without reading elements."""
    context = places.context()
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
            raise _unreadable(directory, name, error) from error


def _part(most: int) -> int:
    """How large pieces are: a quarter, so that the disk is busy while one waits."""
    return max(1, most // 4)


def read(
    directory: str,
    manifest: Manifest,
    dtypes: Mapping[int, np.dtype | None],
    most: int = BYTES_IN_FLIGHT,
) -> Iterator[np.ndarray]:
    """The stored arrays among some leaves of a checkpoint, in turn, each checked.

    Args:
      dtypes: by the number of the leaf, to what an array is converted, if it is.
      most: how many bytes are being read at a time besides the arrays that are
        returned, but at least one chunk.

    Raises:
      DamagedError: names the array that is missing or altered.
    """
    stored = [n for n in dtypes if manifest.leaves[n].is_stored]
    names = [manifest.names[n] for n in stored]
    under_way: deque[tuple[_Reading, tuple[slice, ...], Any, int]] = deque()
    waiting = 0
    opened = _open(directory, manifest, names, places.context())
    for number, name, array in zip(stored, names, opened, strict=True):
        leaf = manifest.leaves[number]
        reading = _Reading(directory, name, leaf, array, dtypes[number])
        for at in reading.pieces(most):
            bytes_ = math.prod(s.stop - s.start for s in at) * reading.itemsize
            while under_way and waiting + bytes_ > most:
                first, place, future, of_first = under_way.popleft()
                waiting -= of_first
                yield from first.take(place, future)
            under_way.append((reading, at, array[at].read(), bytes_))
            waiting += bytes_
    while under_way:
        first, place, future, _ = under_way.popleft()
        yield from first.take(place, future)


class _Reading:
    """An array that comes piece by piece."""

    def __init__(
        self, directory: str, name: str, leaf: Leaf, opened: Any, dtype: Any
    ) -> None:
        self.directory, self.name, self.leaf = directory, name, leaf
        saved = opened.dtype.numpy_dtype
        if (tuple(opened.shape), saved.name) != (leaf.shape, leaf.dtype):
            found = f"{saved.name}{list(opened.shape)}"
            raise self._damaged(f"it is {found}, saved as {leaf}")
        self.itemsize = saved.itemsize
        self.chunk = opened.chunk_layout.read_chunk.shape or ()  # None: a scalar
        self.dtype = saved if dtype is None else dtype
        self.array: np.ndarray | None = None
        self.checksum = self.taken = 0

    def pieces(self, most: int) -> Iterator[tuple[slice, ...]]:
        """An array that is not too large is one: that spares a copy."""
        shape = self.leaf.shape
        if math.prod(shape) * self.itemsize <= most:
            return iter([tuple(map(slice, [0] * len(shape), shape))])
        return _pieces(shape, self.itemsize, self.chunk, _part(most))

    def take(self, at: tuple[slice, ...], future: Any) -> Iterator[np.ndarray]:
        """Puts a piece to its place; gives the array if it was the last."""
        try:
            piece = future.result()
        except ValueError as error:
            raise _unreadable(self.directory, self.name, error) from error
        if self.leaf.crc32 is not None:
            self.checksum = checksum(piece, self.checksum)
        if piece.shape == self.leaf.shape and piece.dtype == self.dtype:
            self.array = piece
        else:
            if self.array is None:
                self.array = np.empty(self.leaf.shape, self.dtype)
            # Where it is asked for: what a smaller dtype can't hold is infinite.
            with np.errstate(over="ignore"):
                self.array[at] = piece
        self.taken += piece.size
        if self.taken == self.array.size:
            if self.leaf.crc32 not in (None, self.checksum):
                raise self._damaged("its checksum does not match")
            yield self.array

    def _damaged(self, reason: str) -> DamagedError:
        return DamagedError(_damage(self.directory, self.name, reason))


def _damage(directory: str, name: str, reason: object) -> str:
    reason = str(reason).partition(" [tensorstore_spec=")[0]
    return f"the array {name!r} in the checkpoint at {directory} is damaged: {reason}"


def _unreadable(directory: str, name: str, error: ValueError) -> Exception:
    """What an error of TensorStore's means: an object store that does not answer says
    nothing about the array."""
    if str(error).startswith(places.OUT_OF_REACH):
        return places.unreachable(directory, error)
    return DamagedError(_damage(directory, name, error))

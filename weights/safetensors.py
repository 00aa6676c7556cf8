"""The safetensors format: a header of JSON, and arrays that can be mapped into memory.

A file is the header's length (8 bytes, little-endian), the header, and the arrays'
bytes, one after the other without gaps. The header says of each array its dtype, shape
and place.
"""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import ml_dtypes
import numpy as np

from treadle.errors import at, user_source

DTYPES = {
    "BOOL": np.dtype(np.bool_),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "C64": np.dtype(np.complex64),
}
DTYPES |= {f"{k.upper()}{n}": np.dtype(f"{k}{n // 8}") for k in "iu" for n in (8, 16)}
DTYPES |= {f"{k.upper()}{n}": np.dtype(f"{k}{n // 8}") for k in "iu" for n in (32, 64)}
DTYPES |= {f"F{n}": np.dtype(f"f{n // 8}") for n in (16, 32, 64)}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_LONGEST_HEADER = 100_000_000
_ALIGNED = 8
_METADATA = "__metadata__"


class _Entry(NamedTuple):
    """An array of a file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The arrays of a file, and its metadata. The arrays are read-only views of the
    file: what is not used is not read.

    Raises:
      ValueError: if the file is damaged, or has arrays of a dtype that NumPy lacks.
    """
    with open(path, "rb") as file:
        header, start = _header(path, file)
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    metadata = header.pop(_METADATA, {})
    if not isinstance(metadata, dict):
        raise ValueError(_damaged(path, f"its {_METADATA} is not a dict"))
    entries = {name: _entry(path, name, value) for name, value in header.items()}
    _check_places(path, entries, len(mapped) - start)
    arrays = {
        name: np.frombuffer(
            mapped, e.dtype, math.prod(e.shape), start + e.begin
        ).reshape(e.shape)
        if e.end > e.begin
        else np.zeros(e.shape, e.dtype)
        for name, e in entries.items()
    }
    return arrays, {str(k): str(v) for k, v in metadata.items()}


def write(
    path: Path, arrays: Mapping[str, np.ndarray], metadata: Mapping[str, str]
) -> None:
    """Writes a file as a whole or not at all: one of that name, and the arrays that
    were read from it, stay until then.

    Raises:
      TypeError: for an array whose dtype the format lacks, and metadata not of strings.
    """
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    for key, value in metadata.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            raise TypeError(
                f"{path}: metadata are strings by strings, got {key!r}: {value!r:.60}"
                f"{at(user_source())}"
            )
    # The widest first, so that all are aligned.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    end = 0
    for name in order:
        array = arrays[name]
        if array.dtype not in _NAMES:
            raise TypeError(
                f"{path}: safetensors has no dtype {array.dtype}, which `{name}` has"
                "\nSave complex128 as two arrays, `x.real` and `x.imag`; "
                "or save to a file named .npz."
            )
        begin, end = end, end + array.nbytes
        header[name] = {
            "dtype": _NAMES[array.dtype],
            "shape": array.shape,
            "data_offsets": (begin, end),
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(partial, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for name in order:
                flat = np.ascontiguousarray(arrays[name]).reshape(-1)
                file.write(flat.view(np.uint8).data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def looks_like(first: bytes) -> bool:
    """Whether a file that begins so may be of this format."""
    return len(first) > 8 and first[8:9] == b"{"


def _header(path: Path, file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header, and where the arrays begin."""
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > _LONGEST_HEADER:
        raise ValueError(_damaged(path, f"it begins with {first!r}"))
    text = file.read(length)
    if len(text) < length:
        raise ValueError(_damaged(path, f"its header of {length} bytes is cut off"))
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(_damaged(path, f"its header is not JSON ({error})")) from None
    if not isinstance(header, dict):
        raise ValueError(_damaged(path, "its header is not a dict"))
    return header, 8 + length


def _entry(path: Path, name: str, value: Any) -> _Entry:
    try:
        kind, shape = value["dtype"], tuple(value["shape"])
        begin, end = value["data_offsets"]
        sound = all(type(n) is int and n >= 0 for n in (*shape, begin, end))
    except (TypeError, KeyError, ValueError):
        sound = False
    if not sound:
        raise ValueError(_damaged(path, f"the entry of `{name}` is {value!r:.80}"))
    if kind not in DTYPES:
        raise ValueError(
            f"{path}: `{name}` is of dtype {kind}, which NumPy has not; known are "
            f"{', '.join(sorted(DTYPES))}"
        )
    entry = _Entry(DTYPES[kind], shape, begin, end)
    needed = math.prod(shape) * entry.dtype.itemsize
    if needed != end - begin:
        raise ValueError(
            _damaged(
                path,
                f"`{name}`, {kind}{list(shape)}, takes {needed} bytes and has "
                f"{end - begin}",
            )
        )
    return entry


def _check_places(path: Path, entries: Mapping[str, _Entry], size: int) -> None:
    """
    Raises:
      ValueError: unless the arrays fill the file, without gaps and overlaps.
    """
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1][2:]):
        if entry.begin != end:
            raise ValueError(
                _damaged(path, f"`{name}` begins at {entry.begin}, not at {end}")
            )
        end = entry.end
    if end != size:
        raise ValueError(
            _damaged(path, f"its arrays take {end} bytes, and it has {size}")
        )


def _damaged(path: Path, why: str) -> str:
    return (
        f"{path} is not a whole safetensors file: {why}{at(user_source())}\n"
        "Was it copied or downloaded to its end? Get it once more."
    )

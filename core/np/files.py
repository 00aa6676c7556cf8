"""Arrays to and from files and buffers, in NumPy's formats; how arrays are printed.

Checkpoints of models are written by `treadle.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy import get_printoptions as get_printoptions
from numpy import printoptions as printoptions
from numpy import set_printoptions as set_printoptions

from treadle import dtypes
from treadle.dtypes import DTypeLike
from treadle.np.creation import array
from treadle.np.operands import ArrayLike
from treadle.run.array import Array


def save(file: Any, x: ArrayLike) -> None:
    """Writes an array to a file in NumPy's format (``.npy``)."""
    np.save(file, np.asarray(x), allow_pickle=False)


def savez(file: Any, *arrays: ArrayLike, **named_arrays: ArrayLike) -> None:
    """Writes arrays to a file in NumPy's format of several (``.npz``), as ``arr_0``,
    ``arr_1``… or by name."""
    unnamed: Any = map(np.asarray, arrays)
    by_name: Any = {name: np.asarray(x) for name, x in named_arrays.items()}
    np.savez(file, *unnamed, **by_name)


def load(file: Any) -> Array | dict[str, Array]:
    """Reads what `save` has written, as an array; of a file of several (``.npz``), a
    dictionary of them. Pickled objects are refused."""
    found = np.load(file, allow_pickle=False)
    if isinstance(found, np.ndarray):
        return array(_known_dtype(found))
    with found:
        return {name: array(_known_dtype(found[name])) for name in found.files}


def _known_dtype(x: np.ndarray) -> np.ndarray:
    # NumPy writes bfloat16, which it does not know, as two raw bytes.
    return x.view(dtypes.bfloat16) if x.dtype == np.dtype("V2") else x


def fromfile(source: Any, dtype: DTypeLike = float, **options: Any) -> Array:
    """Reads an array of a dtype (float32 by default) from a file; options as
    NumPy's."""
    return array(np.array(np.fromfile(source, dtypes.canonical(dtype), **options)))


def frombuffer(source: Any, dtype: DTypeLike = float, **options: Any) -> Array:
    """An array of a dtype (float32 by default) from bytes; options as NumPy's."""
    return array(np.array(np.frombuffer(source, dtypes.canonical(dtype), **options)))


def fromstring(source: str, dtype: DTypeLike = float, **options: Any) -> Array:
    """Reads an array of a dtype (float32 by default) from text; options as NumPy's."""
    return array(np.array(np.fromstring(source, dtypes.canonical(dtype), **options)))


def fromiter(
    numbers: Iterable[Any], dtype: DTypeLike = float, count: int = -1
) -> Array:
    """An array of the numbers of an iterator, float32 by default."""
    return array(np.fromiter(numbers, dtypes.canonical(dtype), count))


def array2string(x: ArrayLike, *args: Any, **options: Any) -> str:
    """An array as text; options as NumPy's."""
    return np.array2string(np.asarray(x), *args, **options)


def array_str(x: ArrayLike, *args: Any, **options: Any) -> str:
    """The elements as text: `str` of NumPy's array."""
    return np.array_str(np.asarray(x), *args, **options)


def array_repr(x: ArrayLike) -> str:
    """An array as text, with its dtype: its `repr`."""
    return repr(array(x))

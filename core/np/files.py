"""Arrays to and from files and buffers, in NumPy's formats; how arrays are printed.

Checkpoints of models are written by `treadle.checkpoint`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy import get_printoptions as get_printoptions
from numpy import printoptions as printoptions
from numpy import set_printoptions as set_printoptions

from treadle import dtypes
from treadle.np.creation import array
from treadle.np.elementwise import named
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


def load(file: Any) -> Any:
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


def _read(function: Callable[..., Any], doc: str) -> Callable[..., Array]:
    def read(source: Any, dtype: Any = float, **options: Any) -> Array:
        return array(np.array(function(source, dtypes.canonical(dtype), **options)))

    return named(read, function.__name__, doc)


fromfile = _read(
    np.fromfile,
    "Reads an array of a dtype (float32 by default) from a file; options as NumPy's.",
)
frombuffer = _read(
    np.frombuffer,
    "An array of a dtype (float32 by default) from bytes; options as NumPy's.",
)
fromstring = _read(
    np.fromstring,
    "Reads an array of a dtype (float32 by default) from text; options as NumPy's.",
)


def fromiter(numbers: Iterable[Any], dtype: Any = float, count: int = -1) -> Array:
    """An array of the numbers of an iterator, float32 by default."""
    return array(np.fromiter(numbers, dtypes.canonical(dtype), count))


def _shown(function: Callable[..., str], doc: str) -> Callable[..., str]:
    def show(x: ArrayLike, *args: Any, **options: Any) -> str:
        return function(np.asarray(x), *args, **options)

    return named(show, function.__name__, doc)


array2string = _shown(np.array2string, "An array as text; options as NumPy's.")
array_str = _shown(np.array_str, "The elements as text: `str` of NumPy's array.")


def array_repr(x: ArrayLike) -> str:
    """An array as text, with its dtype: its `repr`."""
    return repr(array(x))

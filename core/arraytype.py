"""What is known of an array while tracing: its shape and its dtype."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import Dim, Real, plain
from treadle.errors import at, user_source

_SHORT = {"bool": "bool", "float": "f", "int": "i", "uint": "u", "complex": "c"}


_known: dict[tuple[Any, ...], ArrayType] = {}


class ArrayType:
    """Shape, dtype, and whether the dtype is weak (came from a Python scalar).

    Equal types are one object: a jitted function compares those of all its arguments
    at every call.

    >>> ArrayType((2, 3), np.dtype("float32"))
    f32[2,3]
    """

    __slots__ = ("dtype", "nbytes", "scope", "shape", "size", "weak")
    shape: tuple[int, ...]
    dtype: np.dtype
    weak: bool
    size: int
    nbytes: int
    scope: Any
    """What lengths that are not fixed belong to; None if all are."""

    def __new__(
        cls, shape: tuple[int, ...], dtype: np.dtype, weak: bool = False
    ) -> ArrayType:
        key = shape, dtype, weak
        known, scope = _known, None
        for n in shape:
            if type(n) is Dim:
                scope = n.scope
                known = scope.types
                break
        found = known.get(key)
        if found is None:
            made = object.__new__(cls)
            # Sizes may come as NumPy's integers, which are equal but print differently.
            made.shape = tuple([plain(n) for n in shape])
            made.dtype, made.weak, made.scope = dtype, weak, scope
            made.size = math.prod(made.shape)
            made.nbytes = made.size * dtype.itemsize
            found = known.setdefault(key, made)
        return found

    @property
    def is_sized(self) -> bool:
        """Whether some of its lengths are not fixed."""
        return self.scope is not None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def strong(self) -> ArrayType:
        return ArrayType(self.shape, self.dtype) if self.weak else self

    def __reduce__(self) -> Any:
        return ArrayType, (self.shape, self.dtype, self.weak)

    def __repr__(self) -> str:
        name = self.dtype.name
        letters = name.rstrip("0123456789")
        short = _SHORT.get(letters, "bf" if letters == "bfloat" else letters)
        digits = "" if name == "bool" else name[len(letters) :]
        return f"{short}{digits}[{','.join(map(str, self.shape))}]"


_scalar_types: dict[Any, ArrayType] = {}


def _is_masked(array: Any) -> bool:
    # NumPy loads the module when it is first asked for: ten milliseconds.
    masked = sys.modules.get("numpy.ma")
    return masked is not None and isinstance(array, masked.MaskedArray)


def of_numpy(array: np.ndarray | np.generic) -> ArrayType:
    """The type of a NumPy array or scalar.

    Raises:
      TypeError: if Treadle has no such dtype (objects, strings, dates…), or if the
        array is masked: arrays of ours have no mask to keep.
    """
    if _is_masked(array):
        raise TypeError(
            "masked arrays are not supported: the mask would be lost"
            f"{at(user_source())}\nPass `x.filled(value)`, or `x.data` and `x.mask`."
        )
    if not dtypes.is_supported(array.dtype):
        fix = f"Convert it to one of {', '.join(d.name for d in dtypes.ALL)}."
        if not array.dtype.isnative:
            fix = (
                "Its bytes are in another machine's order: pass "
                "`x.astype(x.dtype.newbyteorder('='))`."
            )
        raise TypeError(
            f"arrays of dtype {array.dtype} are not supported{at(user_source())}\n{fix}"
        )
    return ArrayType(array.shape, array.dtype)


def of_scalar(value: bool | int | float | complex) -> ArrayType:
    """The weak type of a Python scalar."""
    dtype = dtypes.float32 if type(value) is Real else dtypes.of_scalar(value)
    found = _scalar_types.get(dtype)
    if found is None:
        found = _scalar_types[dtype] = ArrayType((), dtype, True)
    return found

"""The dtypes by their names, which are also functions that convert to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from treadle import dtypes
from treadle.np.creation import asarray
from treadle.np.operands import ArrayLike
from treadle.run.array import Array

if TYPE_CHECKING:

    class ScalarType(np.dtype[Any]):  # type: ignore[misc]  # to users it is one
        dtype: np.dtype[Any]

        def __new__(cls, dtype: np.dtype[Any]) -> ScalarType: ...

        def __call__(self, x: ArrayLike = 0) -> Array: ...

else:

    class ScalarType:
        """A dtype that is also a function: called, it makes an array of that dtype.

        It stands wherever a dtype does, equals it, and has its attributes. What arrays
        have, and what is stored, is NumPy's dtype.

        >>> import treadle.numpy as tnp
        >>> tnp.float32(2), tnp.ones(3, tnp.int8).dtype == tnp.int8
        (Array(2., dtype=float32), True)
        """

        __slots__ = ("dtype",)

        def __init__(self, dtype: np.dtype) -> None:
            self.dtype = dtype

        def __call__(self, x: ArrayLike = 0) -> Array:
            return asarray(x, self.dtype)

        @property
        def __class__(self) -> type:
            # NumPy's class can't be inherited from; `isinstance` asks for this.
            return np.dtype

        @property
        def __numpy_dtype__(self) -> np.dtype:
            return self.dtype

        def __getattr__(self, name: str) -> Any:
            if name == "dtype":  # what is being copied has none yet
                raise AttributeError(name)
            return getattr(self.dtype, name)

        def __eq__(self, other: Any) -> Any:
            return self is other or self.dtype == other

        def __hash__(self) -> int:
            return hash(self.dtype)

        def __reduce__(self) -> str:
            return self.name  # pickled by its name in this module: there is one of each

        def __repr__(self) -> str:
            return repr(self.dtype)

        def __str__(self) -> str:
            return str(self.dtype)


int8, int16 = ScalarType(dtypes.int8), ScalarType(dtypes.int16)
int32, int64 = ScalarType(dtypes.int32), ScalarType(dtypes.int64)
uint8, uint16 = ScalarType(dtypes.uint8), ScalarType(dtypes.uint16)
uint32, uint64 = ScalarType(dtypes.uint32), ScalarType(dtypes.uint64)
float16, bfloat16 = ScalarType(dtypes.float16), ScalarType(dtypes.bfloat16)
float32, float64 = ScalarType(dtypes.float32), ScalarType(dtypes.float64)
complex64, complex128 = ScalarType(dtypes.complex64), ScalarType(dtypes.complex128)
bool_ = bool = ScalarType(dtypes.bool_)

"""Several arrays as one vector, and back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from treadle import dtypes
from treadle import np as tnp
from treadle.arraytype import ArrayType


class Flat:
    """How arrays of known types lie in one vector, of the dtype that all fit in."""

    def __init__(self, types: Sequence[ArrayType]) -> None:
        self.types = list(types)
        sizes = [math.prod(t.shape) for t in types]
        self.ends = list(accumulate(sizes, initial=0))
        strong = [(t.dtype, False) for t in types]
        # Half floats would leave a solver without digits.
        self.dtype = dtypes.promote((dtypes.float32, False), *strong)[0]

    @property
    def real(self) -> np.dtype:
        """The dtype of the vector's absolute values."""
        return dtypes.to_real(self.dtype)

    def ravel(self, leaves: Sequence[Any]) -> Any:
        """The elements of arrays, one array after the other."""
        parts = [tnp.ravel(tnp.astype(tnp.asarray(x), self.dtype)) for x in leaves]
        return tnp.concatenate(parts) if parts else tnp.zeros(0, self.dtype)

    def unravel(self, vector: Any) -> list[Any]:
        """The arrays that lie in the vector."""
        found = []
        bounds = zip(self.types, self.ends[:-1], self.ends[1:], strict=True)
        for t, start, end in bounds:
            part = tnp.reshape(vector[start:end], t.shape)
            if dtypes.is_complex(self.dtype) and not dtypes.is_complex(t.dtype):
                part = tnp.real(part)
            found.append(tnp.astype(part, t.dtype))
        return found

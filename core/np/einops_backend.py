"""What einops needs in order to take our arrays, without importing it.

einops knows a framework by a subclass of its `AbstractBackend`. Where it is imported
after Treadle, the import system is asked to say when.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from treadle import dtypes
from treadle.dims import is_dim
from treadle.np.creation import arange, array
from treadle.np.formula import einsum
from treadle.np.join import concatenate, stack
from treadle.np.rearrange import tile
from treadle.np.shapes import expand_dims
from treadle.run.array import Array
from treadle.trace.value import Value

_BACKENDS = "einops._backends"


class _Backend:
    """The methods that einops calls."""

    framework_name = "treadle"

    def is_appropriate_type(self, tensor: Any) -> bool:
        return isinstance(tensor, Value)

    def from_numpy(self, x: np.ndarray) -> Array:
        return array(x)

    def to_numpy(self, x: Array) -> np.ndarray:
        return np.asarray(x)

    def arange(self, start: int, stop: int) -> Array:
        return arange(start, stop)

    def shape(self, x: Array) -> Sequence[int]:
        # Of a list einops keeps nothing: it would fix a size that varies.
        return list(x.shape) if any(map(is_dim, x.shape)) else x.shape

    def stack_on_zeroth_dimension(self, tensors: list[Array]) -> Array:
        return stack(tensors)

    def tile(self, x: Array, repeats: Sequence[int]) -> Array:
        return tile(x, repeats)

    def concat(self, tensors: list[Array], axis: int) -> Array:
        return concatenate(tensors, axis)

    def is_float_type(self, x: Array) -> bool:
        return dtypes.is_float(x.dtype)

    def add_axis(self, x: Array, new_position: int) -> Array:
        return expand_dims(x, new_position)

    def einsum(self, pattern: str, *x: Array) -> Array:
        return einsum(pattern, *x)


def _define(backends: ModuleType) -> None:
    """Adds the backend to those that einops tries."""
    kind = type("TreadleBackend", (_Backend, backends.AbstractBackend), {})
    vars(backends)[kind.__name__] = kind


class _Waiting(MetaPathFinder):
    """Finds no module; defines the backend when einops' own have been imported."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name != _BACKENDS:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_define(module: ModuleType) -> None:
                execute(module)
                _define(module)

            loader.exec_module = execute_and_define
        return spec


if _BACKENDS in sys.modules:
    _define(sys.modules[_BACKENDS])
else:
    sys.meta_path.insert(0, _Waiting())

"""`td.Array`: what programs call an array, be it in memory or traced."""

from __future__ import annotations

from typing import Any

from treadle.run.array import Array as InMemory
from treadle.trace.value import Value


class _ArrayType(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, Value)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, Value)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return InMemory(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(InMemory, name)


class Array(metaclass=_ArrayType):
    """The class of all arrays: those in memory, and those that are being traced.

    Inside the library the two are classes of their own, so that telling them apart
    costs nothing.

    >>> import treadle as td, treadle.numpy as tnp
    >>> seen = []
    >>> _ = td.jit(lambda x: seen.append(isinstance(x, td.Array)) or x)(tnp.ones(2))
    >>> seen, isinstance(tnp.ones(2), td.Array), isinstance(2.0, td.Array)
    ([True], True, False)
    """

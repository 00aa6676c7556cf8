"""What dtypes are and hold."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from treadle import dtypes
from treadle.arraytype import ArrayType
from treadle.errors import at, user_source
from treadle.np.operands import ArrayLike, type_of
from treadle.np.scalar_types import ScalarType
from treadle.trace.value import Value

_KINDS = {
    "bool": dtypes.ALL[:1],
    "signed integer": tuple(d for d in dtypes.ALL if d.kind == "i"),
    "unsigned integer": tuple(d for d in dtypes.ALL if d.kind == "u"),
    "integral": tuple(d for d in dtypes.ALL if d.kind in "iu"),
    "real floating": tuple(d for d in dtypes.ALL if dtypes.is_float(d)),
    "complex floating": tuple(d for d in dtypes.ALL if dtypes.is_complex(d)),
    "numeric": dtypes.ALL[1:],
}


def dtype(x: Any) -> np.dtype:
    """The dtype that a name, a type or a dtype stands for.

    >>> import treadle.numpy as tnp
    >>> tnp.dtype("bfloat16")
    dtype(bfloat16)
    """
    return dtypes.canonical(x)


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind.

    Args:
      kind: a dtype; "bool", "signed integer", "unsigned integer", "integral",
        "real floating", "complex floating" or "numeric"; or a tuple of such.

    >>> import treadle.numpy as tnp
    >>> tnp.isdtype(tnp.float32, ("integral", "real floating"))
    True
    """
    wanted = dtypes.canonical(dtype)
    if isinstance(kind, tuple):
        return any([isdtype(wanted, k) for k in kind])
    if isinstance(kind, str) and kind in _KINDS:
        return wanted in _KINDS[kind]
    try:
        return wanted == dtypes.canonical(kind)
    except TypeError:
        raise type(_unknown(kind))(_unknown(kind)) from None


def _unknown(kind: Any) -> ValueError | TypeError:
    text = (
        f"isdtype: {kind!r} is neither a dtype nor one of "
        f"{', '.join(map(repr, _KINDS))}{at(user_source())}"
    )
    return ValueError(text) if isinstance(kind, str) else TypeError(text)


def issubdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is another one, or below one of NumPy's abstract types, such as
    `tnp.floating`.

    >>> import treadle.numpy as tnp
    >>> tnp.issubdtype(tnp.bfloat16, tnp.floating)
    True
    """
    if _is_abstract(dtype):
        return bool(np.issubdtype(dtype, kind))
    found = dtypes.canonical(dtype)
    if found == dtypes.bfloat16:
        # NumPy doesn't know it: to its rules it is a float like others.
        if not _is_abstract(kind):
            return dtypes.canonical(kind) == found
        found = dtypes.float32
    if not _is_abstract(kind):
        return found == dtypes.canonical(kind)
    return bool(np.issubdtype(found, kind))


def _is_abstract(x: Any) -> bool:
    is_class = isinstance(x, type) and issubclass(x, np.generic)
    return is_class and x in (
        *(np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger),
        *(np.inexact, np.floating, np.complexfloating, np.character, np.flexible),
    )


def _of(name: str, x: Any, numbers: bool = False) -> np.dtype:
    """Of an array, a `td.ShapeDtype` or a dtype; of Python's numbers, too."""
    if numbers and not isinstance(x, str | type | np.dtype | ScalarType):
        return type_of(name, x).dtype
    if isinstance(x, Value | np.ndarray | np.generic | ArrayType):
        return type_of(name, x).dtype
    return dtypes.canonical(x)


def finfo(x: Any) -> Any:
    """The limits of a floating-point dtype, or of that of an array: eps, max, tiny…

    >>> import treadle.numpy as tnp
    >>> float(tnp.finfo(tnp.float32).eps)
    1.1920928955078125e-07
    """
    found = _of("finfo", x)
    if not dtypes.is_differentiable(found):
        raise ValueError(
            f"finfo: {found} is no floating-point dtype{at(user_source())}"
        )
    return ml_dtypes.finfo(dtypes.to_real(found))


def iinfo(x: Any) -> Any:
    """The limits of an integer dtype, or of that of an array: bits, min, max.

    >>> import treadle.numpy as tnp
    >>> tnp.iinfo(tnp.int8).max
    127
    """
    found = _of("iinfo", x)
    if not dtypes.is_integer(found):
        raise ValueError(f"iinfo: {found} is no integer dtype{at(user_source())}")
    return ml_dtypes.iinfo(found)


def can_cast(x: Any, to: Any, casting: str = "safe") -> bool:
    """Whether an array, or a dtype, can be converted to a dtype.

    Args:
      casting: "safe", without loss of a value; "same_kind"; "unsafe", always; "no" and
        "equiv", only to the same dtype. As in NumPy.
    """
    found, wanted = _of("can_cast", x), dtypes.canonical(to)
    return bool(np.can_cast(found, wanted, casting))  # type: ignore[arg-type]


def isscalar(x: Any) -> bool:
    """Whether x is a number, or an array without axes.

    >>> import treadle.numpy as tnp
    >>> tnp.isscalar(1.0), tnp.isscalar(tnp.ones(1))
    (True, False)
    """
    if isinstance(x, Value | np.ndarray):
        return not x.shape
    return bool(np.isscalar(x))


def isrealobj(x: ArrayLike) -> bool:
    """Whether the dtype, or that of an array, is not complex."""
    return not dtypes.is_complex(_of("isrealobj", x, numbers=True))


def iscomplexobj(x: ArrayLike) -> bool:
    """Whether the dtype, or that of an array, is complex."""
    return dtypes.is_complex(_of("iscomplexobj", x, numbers=True))

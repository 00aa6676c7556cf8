"""Element types and how they promote.

The dtype that you give is the dtype that you get. Python scalars are *weak*: they take
the dtype of the array they meet, unless they are of a higher kind (``int32 + 1.5`` is
float32). Two arrays promote as in JAX: an integer never widens a float.
"""

from __future__ import annotations

import math
from difflib import get_close_matches
from typing import Any

import ml_dtypes
import numpy as np

from treadle.errors import at, user_source

bool_ = np.dtype(np.bool_)
int8, int16, int32, int64 = (np.dtype(f"int{n}") for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (np.dtype(f"uint{n}") for n in (8, 16, 32, 64))
float16, float32, float64 = (np.dtype(f"float{n}") for n in (16, 32, 64))
bfloat16 = np.dtype(ml_dtypes.bfloat16)
complex64, complex128 = np.dtype(np.complex64), np.dtype(np.complex128)

DTypeLike = np.dtype[Any] | type[Any] | str
"""What names a dtype: one of these, a class (Python's own or NumPy's), or a string."""

_BOOL, _INT, _FLOAT, _COMPLEX = range(4)
_DEFAULT = (bool_, int32, float32, complex64)
_KIND: dict[np.dtype, int] = {bool_: _BOOL}
_KIND |= dict.fromkeys((int8, int16, int32, int64, uint8, uint16, uint32, uint64), _INT)
_KIND |= dict.fromkeys((float16, bfloat16, float32, float64), _FLOAT)
_KIND |= dict.fromkeys((complex64, complex128), _COMPLEX)
ALL = tuple(_KIND)
"""Every supported dtype."""
_PYTHON = {bool: bool_, int: int32, float: float32, complex: complex64}
PYTHON_OF: dict[type, type] = {np.float64: float, np.complex128: complex}
"""NumPy's functions of Python numbers (`np.sqrt(2)`) give these subclasses of float and
complex. From a user they count as Python numbers: no program gets wider by them."""
_BY_NAME = {d.name: d for d in _KIND}
_canonical: dict[Any, np.dtype] = {}


def canonical(dtype: DTypeLike) -> np.dtype:
    """The supported dtype that `dtype` names.

    Python's own ``bool``, ``int``, ``float`` and ``complex`` mean bool, int32, float32
    and complex64.

    Raises:
      TypeError: if there is no such dtype, or Treadle has none of it.

    >>> canonical("float32"), canonical(float)
    (dtype('float32'), dtype('float32'))
    """
    try:
        found = _canonical.get(dtype)
    except TypeError:
        found = None
    if found is not None:
        return found
    if isinstance(dtype, type) and dtype in _PYTHON:
        result = _PYTHON[dtype]
    elif isinstance(dtype, str) and dtype in _BY_NAME:
        result = _BY_NAME[dtype]
    else:
        try:
            result = np.dtype(dtype)
        except TypeError:
            raise TypeError(
                f"{dtype!r} is not a dtype; use one of {_names()}{at(user_source())}"
                f"{_meant(dtype)}"
            ) from None
        if result not in _KIND:
            raise TypeError(
                f"dtype {result} is not supported; use one of {_names()}"
                f"{at(user_source())}"
            )
    _canonical[dtype] = result
    return result


_SHORT = {"bf16": "bfloat16", "fp": "float", "f": "float", "i": "int", "u": "uint"}


def _meant(dtype: Any) -> str:
    """A line that says which dtype may be meant: of other libraries' objects
    (``torch.float32``), of abbreviations ("fp16") and of misspelt names."""
    name = str(dtype).rpartition(".")[2].lower()
    short = name.rstrip("0123456789")
    name = _SHORT.get(name) or _SHORT.get(short, short) + name[len(short) :]
    found = get_close_matches(name, _BY_NAME, 1)
    return f'\nWrite "{found[0]}", or `td.{found[0]}`.' if found else ""


def _names() -> str:
    return ", ".join(sorted(_BY_NAME))


def is_supported(dtype: np.dtype) -> bool:
    return dtype in _KIND


def is_float(dtype: np.dtype) -> bool:
    """Whether `dtype` is a real floating-point type."""
    return _KIND[dtype] == _FLOAT


def is_integer(dtype: np.dtype) -> bool:
    return _KIND[dtype] == _INT


def is_unsigned(dtype: np.dtype) -> bool:
    return dtype.kind == "u"


def is_complex(dtype: np.dtype) -> bool:
    return _KIND[dtype] == _COMPLEX


def is_differentiable(dtype: np.dtype) -> bool:
    """Whether values of `dtype` have tangents: the floating and complex types."""
    return _KIND[dtype] >= _FLOAT


def of_scalar(value: bool | int | float | complex) -> np.dtype:
    """The default dtype of a Python scalar; integers beyond int32 are int64, or
    uint64 if that is not enough (what neither holds is an error where it is used)."""
    if isinstance(value, int) and not isinstance(value, bool):
        if not -(2**31) <= value < 2**31:
            return int64 if value < 2**63 else uint64
        return int32
    return _PYTHON[type(value)]


def number(dtype: np.dtype, value: Any) -> Any:
    """A Python number as one of NumPy's.

    Raises:
      OverflowError: if the dtype's integers don't reach as far.
      TypeError: if the number is complex, and the dtype is not.
    """
    try:
        return dtype.type(value)
    except OverflowError:
        raise OverflowError(_out_of_range(dtype, value)) from None
    except TypeError:
        if isinstance(value, int):  # bfloat16 takes those of 64 bits
            return dtype.type(_far(dtype, value))
        raise TypeError(
            f"{value} is complex, and can't be one of {dtype}{at(user_source())}\n"
            "Take its real part, or make the array complex: `x.astype(complex)`."
        ) from None


def as_float(value: int) -> float:
    """A Python integer as a float.

    Raises:
      OverflowError: if floats don't reach as far.
    """
    return _far(float64, value)


def _far(dtype: np.dtype, value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise OverflowError(_out_of_range(dtype, value)) from None


def _out_of_range(dtype: np.dtype, value: int) -> str:
    digits = int(value.bit_length() * math.log10(2)) + 1
    shown = str(value) if digits <= 40 else f"An integer of about {digits} digits"
    if not is_integer(dtype):
        return (
            f"{shown} is out of range for {dtype}{at(user_source())}\n"
            "Use a float that is in range, or infinity: `tnp.inf`."
        )
    reach = np.iinfo(dtype)
    remedy = "Convert the array to a wider dtype first: `x.astype(...)`."
    if not -(2**63) <= value < 2**64:
        remedy = "No dtype of integers reaches as far; use a float: `float(...)`."
    return (
        f"{shown} is out of range for {dtype}, which holds {reach.min} to "
        f"{reach.max}{at(user_source())}\n{remedy}"
    )


def of_index(length: int) -> np.dtype:
    """The dtype of places along an axis, and of counts of its elements: int32, or int64
    where that can't hold the length."""
    return int32 if length < 2**31 else int64


def to_float(dtype: np.dtype) -> np.dtype:
    """`dtype` if it is inexact, otherwise the default float."""
    return dtype if is_differentiable(dtype) else float32


def to_real(dtype: np.dtype) -> np.dtype:
    """The dtype of the real part."""
    if dtype == complex64:
        return float32
    return float64 if dtype == complex128 else dtype


def to_complex(dtype: np.dtype) -> np.dtype:
    return complex128 if dtype in (float64, complex128) else complex64


def _promote_strong(a: np.dtype, b: np.dtype) -> np.dtype:
    if a == b:
        return a
    kind_a, kind_b = _KIND[a], _KIND[b]
    if kind_a > kind_b:
        a, b, kind_a, kind_b = b, a, kind_b, kind_a
    if kind_a != kind_b and kind_a in (_BOOL, _INT):
        return b
    if kind_b == _COMPLEX:
        return np.result_type(a if a != bfloat16 else float32, b)
    if {a, b} == {float16, bfloat16}:
        return float32
    result = np.promote_types(a, b)
    return float32 if result not in _KIND or kind_b == _INT != _KIND[result] else result


def promote(*types: tuple[np.dtype, bool]) -> tuple[np.dtype, bool]:
    """The common dtype of several (dtype, weak) pairs, and whether it is weak.

    >>> promote((int32, False), (float32, True))
    (dtype('float32'), True)
    >>> promote((bfloat16, False), (float32, True))[0].name
    'bfloat16'
    """
    dtype, weak = types[0]
    for other, other_weak in types[1:]:
        if weak == other_weak:
            # Python's integers stay integers, however large one of them is.
            large = weak and uint64 in (dtype, other)
            if large and _KIND[dtype] == _KIND[other]:
                dtype = uint64
            else:
                dtype = _promote_strong(dtype, other)
            continue
        strong, flexible = (other, dtype) if weak else (dtype, other)
        if _KIND[flexible] <= _KIND[strong]:
            dtype, weak = strong, False
        elif _KIND[flexible] == _COMPLEX and strong == float64:
            dtype, weak = complex128, False
        else:
            dtype, weak = _DEFAULT[_KIND[flexible]], True
    return dtype, weak

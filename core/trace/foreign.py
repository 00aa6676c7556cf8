"""Functions from outside that compiled programs call: what names them, and where they
are."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, NamedTuple

from treadle.records import record


@record(frozen=True)
class LibraryFunction:
    """A function that a shared library exports: every process finds it by its name."""

    library: str
    symbol: str


class Address:
    """A function that only this process has. `owner` keeps it where it is."""

    def __init__(self, number: int, owner: Any) -> None:
        self.number, self.owner = number, owner

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def __repr__(self) -> str:
        return f"function at {self.number:#x}"


Function = LibraryFunction | Address


def address_of(function: Function) -> int:
    """Where a function is."""
    if isinstance(function, Address):
        return function.number
    return _find(function.library, function.symbol)


@cache
def _find(library: str, symbol: str) -> int:
    address = ctypes.cast(getattr(ctypes.CDLL(library), symbol), ctypes.c_void_p).value
    assert address is not None
    return address


def named(address: int, name: str, owner: Any) -> Function:
    """The function at an address, by its library and symbol if these lead to it.

    name: what it may be called.
    """
    try:
        found = _Information()
        ctypes.CDLL(None).dladdr(ctypes.c_void_p(address), ctypes.byref(found))
        library = (found.file or b"").decode()
        if library and _find(library, name) == address:
            return LibraryFunction(library, name)
    except (AttributeError, OSError, TypeError):
        pass  # There is no dladdr, or the library does not export it.
    return Address(address, owner)


class _Information(ctypes.Structure):
    """What dladdr tells."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


class ScalarCode(NamedTuple):
    """A function of numbers as LLVM IR.

    text: definitions, of which one is of `symbol`; all other names in it are internal,
      or in `declared`. operands, result: names of dtypes.
    """

    symbol: str
    text: str
    declared: tuple[str, ...]
    operands: tuple[str, ...]
    result: str

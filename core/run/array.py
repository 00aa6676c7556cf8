"""The concrete array: an immutable buffer on a device, with a shape and a dtype."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from treadle import arraytype
from treadle.arraytype import ArrayType
from treadle.errors import DonatedError, at, user_source
from treadle.run.device import Device, current, known
from treadle.trace.value import Value, one_element


class Array(Value):
    """An immutable array in memory. Made by `treadle.numpy.array` and by every
    operation; ``numpy.asarray(a)`` is a read-only view without a copy.

    >>> import treadle.numpy as tnp
    >>> tnp.array([1.0, 2.0]) + 1
    Array([2., 3.], dtype=float32)
    """

    __slots__ = ("_address", "_buffer", "_view", "type")

    def __init__(self, data: np.ndarray, type: ArrayType | None = None) -> None:
        self._view: Any = data
        self.type = type or arraytype.of_numpy(data)
        self._address = 0
        self._buffer: Any = None

    @classmethod
    def of_buffer(cls, buffer: Any, type: ArrayType) -> Array:
        """The array whose elements a program has written to a pooled buffer."""
        made = cls.__new__(cls)
        made._view = None
        made._buffer = buffer
        made._address = buffer.address
        made.type = type
        return made

    @property
    def _data(self) -> np.ndarray:
        """The NumPy array inside, made when it is first asked for."""
        if self._view is None:
            self._view = self._buffer.view(self.type.dtype, self.type.shape)
        elif type(self._view) is _Donated:
            raise DonatedError(
                f"this array was donated to {self._view.receiver}, which reused its "
                f"memory{at(user_source())}\n"
                "Use the array that the function returned, or don't donate this one."
            )
        return self._view

    @property
    def device(self) -> Device:
        """Where it is (see `treadle.device_put`)."""
        return current()

    def owned_buffer(self) -> Any:
        """The pooled buffer, if nothing else has ever looked into it."""
        return self._buffer if self._view is None else None

    @property
    def memory(self) -> Any:
        """What keeps the elements alive."""
        return self._buffer, self._view

    def donate(self, receiver: str) -> None:
        """Gives up the memory; any later use is an error that names the receiver."""
        self._view = _Donated(receiver)
        self._buffer = None
        self._address = 0

    def address(self) -> int:
        """Where the elements start in memory, contiguous in row-major order."""
        if not self._address:
            if not self._data.flags.c_contiguous:
                self._view = np.ascontiguousarray(self._data)
            self._address = address_of(self._data)
        return self._address

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if dtype is not None and np.dtype(dtype) != self._data.dtype:
            if copy is False:
                raise ValueError(
                    f"an array of type {self.type} becomes one of {np.dtype(dtype)} "
                    "only by a copy, and copy=False forbids it"
                )
            return self._data.astype(dtype)
        if copy:
            return self._data.copy()
        view = self._data.view()
        view.flags.writeable = False
        return view

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: Any = None,
        dl_device: Any = None,
        copy: bool | None = None,
    ) -> Any:
        readable = self._data.flags.writeable or (max_version or (0,)) >= (1,)
        if not readable and copy is None:
            # Protocols before 1.0 can't say that memory must not be written.
            copy = True
        return self._data.__dlpack__(
            stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()

    def __bool__(self) -> bool:
        return bool(self._data)

    def __int__(self) -> int:
        return int(self._data)

    def __index__(self) -> int:
        return self._data.__index__()

    def __float__(self) -> float:
        return float(self._data)

    def __complex__(self) -> complex:
        return complex(self._data)

    def __format__(self, spec: str) -> str:
        if spec and self.ndim:
            raise TypeError(
                f"formatting with {spec!r} takes one number, and this array is of type "
                f"{self.type}{at(user_source())}\n"
                "Format an element (`x[0]`), or all of it with `np.array2string`."
            )
        return format(self._data[()] if self.ndim == 0 else self._data, spec)

    def item(self) -> Any:
        """The value of a single element as a Python scalar."""
        return one_element(self.type, self._data)

    def tobytes(self) -> bytes:
        """The elements as bytes, the last axis first to vary."""
        return self._data.tobytes()

    def tolist(self) -> Any:
        """The values as nested lists of Python scalars."""
        return self._data.tolist()

    def block_until_ready(self) -> Array:
        """Itself: computation on the CPU is complete when the call returns."""
        return self

    def __repr__(self) -> str:
        text = np.array2string(self._data, separator=", ", prefix="Array(")
        return f"Array({text}, dtype={self.dtype.name})"

    def __str__(self) -> str:
        return str(self._data)

    def __treescope_repr__(self, path: str | None, subtree_renderer: Any) -> Any:
        return subtree_renderer(np.asarray(self._data), path=path)

    def __reduce__(self) -> Any:
        return Array, (np.asarray(self._data),)

    def twin(self) -> Array:
        """Another array over the same memory: either stays when the other is donated,
        and then nobody takes the memory."""
        return Array(self._data, self.type)

    def __copy__(self) -> Array:
        # Arrays don't change, but they may be donated: a copy then stays.
        return Array(np.array(self._data))

    def __deepcopy__(self, memo: dict[int, Any]) -> Array:
        return self.__copy__()


ArrayLike = Array | np.ndarray | np.generic | bool | int | float | complex
"""What functions take: arrays and scalars; lists are made arrays by `array` only."""


class Placed(Array):
    """An array that `device_put` placed, or computed from such (`treadle.run.device`).
    A class of its own, so that nobody else pays for asking where an array is."""

    __slots__ = ("_device",)

    placed = True
    _device: Device

    @classmethod
    def on(cls, device: Device, data: Any) -> Placed:
        """The array with the elements of a NumPy array, or of another array."""
        made = cls(np.asarray(as_numpy(data)))
        made._device = device
        return made

    @property
    def device(self) -> Device:
        return self._device

    def twin(self) -> Array:
        return Placed.on(self._device, self)

    def __copy__(self) -> Array:
        return Placed.on(self._device, np.array(self._data))

    def __reduce__(self) -> Any:
        return _placed, (self._device.name, np.asarray(self._data))

    def unplaced(self) -> Array:
        """The same elements, for where its device is known."""
        return Array(self._data, self.type)


def _placed(name: str, data: np.ndarray) -> Array:
    """An array as it was pickled: placed, where there is such a device."""
    device = next((d for d in known() if d.name == name), None)
    return Array(data) if device is None else Placed.on(device, data)


def address_of(data: np.ndarray) -> int:
    """Where the elements of a contiguous array begin."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(data))  # type: ignore[arg-type]
    except (TypeError, ValueError):  # read-only, empty, or of an ml_dtypes type
        if not data.size:
            return ctypes.addressof(_NOTHING)
        return data.__array_interface__["data"][0]  # four times slower


_NOTHING = (ctypes.c_char * 64)()
"""Memory of arrays without elements: kernels read what is the same along a loop before
they know that the loop has no turns, and such an array may end at a page's end."""


def given_up(receiver: str) -> Any:
    """What stands for the data of an array that was donated."""
    return _Donated(receiver)


class _Donated(NamedTuple):
    """Stands where the data of a donated array was."""

    receiver: str


def as_numpy(x: Any) -> np.ndarray | np.generic:
    """The NumPy value of a concrete argument."""
    if isinstance(x, Array):
        return x._data
    if isinstance(x, np.ndarray | np.generic):
        return x
    t = arraytype.of_scalar(x)
    return t.dtype.type(x)

"""Devices, and arrays that are placed on them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from treadle import tree
from treadle.api.boundary import boundary
from treadle.errors import TracerError, at, user_source
from treadle.run.array import Array, Placed, as_numpy
from treadle.run.device import Device, known, named
from treadle.trace.value import Tracer


@boundary
def devices() -> tuple[Device, ...]:
    """The devices that there are.

    >>> devices()
    (Device('cpu'), Device('reference'))
    """
    return known()


T = TypeVar("T")


@boundary
def device_put(x: T, device: Device | str | None = None) -> T:
    """The arrays of a pytree, placed on a device, where computations with them run.
    Those that are no arrays of Treadle's are copied.

    Operands of one computation that are placed must be on one device. What nobody
    placed goes where they are: arrays made without placed operands, NumPy's arrays,
    numbers. What is computed from placed arrays is placed too.

    Args:
      x: a pytree of arrays and numbers.
      device: one of `devices()`, or its name. None: arrays stay where they are, and
        what isn't one yet becomes one that nobody placed.

    Raises:
      ValueError: if there is no such device.
      TracerError: for the traced arrays of `jit`, `grad`, `vmap`…

    >>> import treadle.numpy as tnp
    >>> x = device_put(tnp.arange(3), "reference")
    >>> (x + 1).device
    Device('reference')
    """
    place = None if device is None else named(device)

    def put(leaf: Any) -> Any:
        if place is None and isinstance(leaf, Array | Tracer):
            return leaf
        if isinstance(leaf, Tracer):
            raise TracerError(
                f"device_put of an array of type {leaf.type} that is being traced"
                f"{at(user_source())}\nPlace the arguments, before the call."
            )
        data = as_numpy(leaf)
        data = data if isinstance(leaf, Array) else np.array(data)
        return Array(data) if place is None else Placed.on(place, data)

    return tree.map(put, x)

"""Devices, and arrays that are placed on them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

from treadle import tree
from treadle.api.boundary import boundary
from treadle.errors import TracerError, at, user_source
from treadle.run.array import Array, Placed, as_numpy
from treadle.run.device import Device, known, named, running_on
from treadle.run.eager import EagerInterpreter, Elsewhere
from treadle.trace.interpreter import state, using
from treadle.trace.value import Tracer


@boundary
def devices() -> tuple[Device, ...]:
    """The devices that there are.

    >>> devices()
    (Device('cpu'), Device('reference'))
    """
    return known()


@contextmanager
def default_device(device: Device | str) -> Iterator[None]:
    """Computes what nobody placed on a device, in a block and in this thread. What is
    the default of the whole program says the environment variable TREADLE_DEVICE.

    Results are not placed: outside of the block they go where others are. Placed arrays
    (`device_put`) stay where they are, and so do programs that were compiled ahead of
    time. Inside of a traced function it changes nothing: its caller's device runs it.

    Args:
      device: one of `devices()`, or its name.

    Raises:
      ValueError: if there is no such device.

    >>> import treadle as td, treadle.numpy as tnp
    >>> with td.default_device("reference"):
    ...     td.jit(tnp.sin)(tnp.zeros(2)).device
    Device('reference')
    """
    try:
        place = named(device)
    except ValueError as error:
        raise ValueError(f"default_device: {error}{at(user_source())}") from None
    base = state.interpreter
    # The quick paths of jitted functions are those of the default device.
    inner = Elsewhere() if type(base) is EagerInterpreter else base
    with running_on(place), using(inner):
        yield


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
        own = isinstance(leaf, Array)
        data = np.asarray(as_numpy(leaf)) if own else np.array(as_numpy(leaf))
        return Array(data) if place is None else Placed.on(place, data)

    return tree.map(put, x)

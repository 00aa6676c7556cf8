"""Devices, and the one rule that says where a computation runs.

A computation runs where its placed operands are: those that `td.device_put` gave, or
that were computed from such. They must be on one device. All other operands (arrays
that nobody placed, NumPy's arrays, Python's numbers) go there too. If nothing is
placed, it runs on the default device, of the block (`td.default_device`) or of all.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

from treadle.errors import at, user_source


@dataclass(frozen=True)
class Device:
    """Where arrays are, and programs run. `td.devices()` lists them."""

    name: str

    def __repr__(self) -> str:
        return f"Device({self.name!r})"


_known: dict[str, Device] = {}
_running: ContextVar[Device | None] = ContextVar("running", default=None)


def register(name: str) -> None:
    """Makes a device known. The first one is the default (`treadle.backends.devices`
    has them all)."""
    _known[name] = Device(name)


def _all() -> dict[str, Device]:
    """By name. The backends, which are slow to load, make themselves known: nothing may
    have asked for them before."""
    if not _known:
        importlib.import_module("treadle.backends.devices")
    return _known


def known() -> tuple[Device, ...]:
    """The devices that there are."""
    return tuple(_all().values())


def named(device: Device | str) -> Device:
    """A device, by its name or itself.

    Raises:
      ValueError: if there is no such device.
    """
    found = _all().get(device.name if isinstance(device, Device) else device)
    if found is None:
        names = " or ".join(map(repr, _all()))
        raise ValueError(f"there is no device {device!r}: take {names}")
    return found


@cache
def default() -> Device:
    """The device of what nobody placed, where no block has one of its own.

    Raises:
      ValueError: if TREADLE_DEVICE names none.
    """
    try:
        return named(os.environ.get("TREADLE_DEVICE") or next(iter(_all())))
    except ValueError as error:
        raise ValueError(f"TREADLE_DEVICE: {error}") from None


def current() -> Device:
    """Where the operation that is being carried out runs."""
    return _running.get() or default()


@contextmanager
def running_on(device: Device) -> Iterator[None]:
    """Operations within it run on a device."""
    token = _running.set(device)
    try:
        yield
    finally:
        _running.reset(token)


def common(what: str, devices: Iterable[Device]) -> Device:
    """The one device of placed operands.

    Raises:
      ValueError: if there are several.
    """
    found: dict[Device, Any] = dict.fromkeys(devices)
    if len(found) > 1:
        first, second, *_ = (d.name for d in found)
        raise ValueError(
            f"{what} of arrays on two devices, {first} and {second}"
            f"{at(user_source())}\n"
            f"Move those of one to the other: `td.device_put(x, {first!r})`."
        )
    return next(iter(found))

"""Which process makes a checkpoint, and whether it still lives."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import socket
from typing import NamedTuple

_UNKNOWN, _DEAD = "0", "dead"
_counter = itertools.count()

PATTERN = r"(?P<place>\w+)-(?P<process>\d+)-(?P<started>\d+)-\d+"


def _place() -> str:
    """Where process numbers mean the same: the machine, and the container on it."""
    name = re.sub(r"\W", "_", socket.gethostname())
    with contextlib.suppress(OSError):
        name += f"_{os.stat('/proc/self/ns/pid').st_ino}"
    return name


def _started(process: int) -> str:
    """When a process began, if the system tells: numbers of processes recur."""
    try:
        with open(f"/proc/{process}/stat", encoding="latin1") as file:
            # Behind the program's name, which may hold any characters.
            state, *others = file.read().rpartition(")")[2].split()
    except (OSError, ValueError):
        return _UNKNOWN
    return _DEAD if state in "ZX" else others[18]


class Maker(NamedTuple):
    """A process, as the names of what it makes tell it."""

    place: str
    process: int
    started: str

    @staticmethod
    def me() -> str:
        """What names made by this process end with; another one each time."""
        me = os.getpid()
        return f"{_place()}-{me}-{_started(me)}-{next(_counter)}"

    @classmethod
    def read(cls, text: str) -> Maker | None:
        """Whom the end of a name tells of; None if it tells of nobody."""
        found = re.fullmatch(PATTERN, text)
        if found is None:
            return None
        return cls(found["place"], int(found["process"]), found["started"])

    @property
    def is_here(self) -> bool:
        """Whether it can be known if the process lives."""
        return self.place == _place()

    @property
    def is_dead(self) -> bool:
        """Whether a process of this place is surely gone."""
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        except (PermissionError, OverflowError):
            pass
        started = _started(self.process)
        return _UNKNOWN not in (started, self.started) and started != self.started

"""What a device says of a profiled run: when each step ran, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class StepTime(NamedTuple):
    """How long a step took, all its executions together."""

    seconds: float = 0.0
    calls: int = 0


class Event(NamedTuple):
    """One execution of steps, or of one of their tasks.

    steps: by number; several, if they ran together. thread: 0 is the caller's.
    begin: in seconds since the run began. task: -1 for the whole.
    """

    steps: tuple[int, ...]
    thread: int
    begin: float
    seconds: float
    task: int = -1


class Record(NamedTuple):
    """A profiled run. Steps are numbered as `treadle.plan.steps.walk` gives them.

    times: by step. Steps that ran together share the time by how long each kept
      threads busy.
    control: seconds spent on loops and branches themselves.
    events: in the order in which they ended. lost: how many more there were.
    seconds: the run's.
    """

    status: int
    times: dict[int, StepTime]
    control: float
    events: Sequence[Event]
    lost: int
    seconds: float

"""A profiled run as a trace file, in the Trace Event Format of Chrome and Perfetto.

Times are microseconds. An event of phase "X" has a begin (`ts`) and a duration (`dur`),
on a thread (`tid`) of a process (`pid`); those of phase "M" name processes and threads.
https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from treadle.plan.record import Event
from treadle.run.text import line_text

_PROCESS = 1


def save(profile: Any, path: Any) -> None:
    """Writes a profile's events."""
    content = {"traceEvents": trace_events(profile), "displayTimeUnit": "ms"}
    Path(path).write_text(json.dumps(content))


def trace_events(profile: Any) -> list[dict[str, Any]]:
    """A profile's events in the format."""
    threads = sorted({e.thread for e in profile.events} | {0})
    named = [_name("process_name", 0, f"treadle: {profile.name}")]
    named += [
        _name("thread_name", n, f"worker {n}" if n else "caller") for n in threads
    ]
    # Of those that begin together, the longer one is around the others.
    order = sorted(profile.events, key=lambda e: (e.begin, -e.seconds))
    return named + [_event(e, profile) for e in order]


def _name(what: str, thread: int, name: str) -> dict[str, Any]:
    head = {"name": what, "ph": "M", "pid": _PROCESS, "tid": thread}
    return {**head, "args": {"name": name}}


def _event(event: Event, profile: Any) -> dict[str, Any]:
    rows = [profile.steps[n] for n in event.steps if n in profile.steps]
    args: dict[str, Any] = {"operations": [row.does for row in rows]}
    args["lines"] = [line_text(row.origin) for row in rows]
    if event.task >= 0:
        args["task"] = event.task
    else:
        args["flops"] = sum([row.cost.flops // max(row.calls, 1) for row in rows])
        args["bytes"] = sum([row.cost.bytes // max(row.calls, 1) for row in rows])
    names = dict.fromkeys([f"{row.name}: {row.does}" for row in rows])
    return {
        "name": " | ".join(names) or "?",
        "cat": "task" if event.task >= 0 else "kernel",
        "ph": "X",
        "ts": event.begin * 1e6,
        "dur": event.seconds * 1e6,
        "pid": _PROCESS,
        "tid": event.thread,
        "args": args,
    }

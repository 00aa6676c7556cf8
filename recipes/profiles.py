"""Where the time of a training step goes: measured, kept in a run's folder, read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import treadle as td
from treadle.recipes.runs import replace_file

_KERNELS, _TABLE, _TRACE = "kernels.json", "profile.txt", "trace.json"
HEAD = ("kernel", "of", "time", "share", "calls", "GFLOP/s", "GB/s")
_MOST = 30

Kernels = dict[str, Any]
"""What is kept of a profile: ``about``, and ``rows`` of texts below `HEAD`."""


def measured(step: Callable[..., Any], state: Any, batch: Any, runs: int) -> Any:
    """A profile of some steps, each from the same state, which stays as it is."""
    return td.profile(step, runs=runs)(state, batch)


def kernels(profile: Any) -> Kernels:
    """The kernels of a profile, the longest first."""
    rows = [
        [
            f"{row.name}: {row.does}",
            _line(row.origin),
            f"{row.seconds * 1e6:,.1f} µs",
            f"{100 * row.share:.1f} %",
            f"{row.calls:,}",
            f"{row.speed.flops / 1e9:.2f}",
            f"{row.speed.bytes / 1e9:.2f}",
        ]
        for row in profile.kernels[:_MOST]
    ]
    rest = profile.kernels[_MOST:]
    if rest:
        seconds, share = sum(r.seconds for r in rest), sum(r.share for r in rest)
        of_all = [f"{seconds * 1e6:,.1f} µs", f"{100 * share:.1f} %"]
        rows.append([f"{len(rest)} more", "", *of_all, "", "", ""])
    machine = profile.machine
    about = (
        f"A step takes {profile.profiled * 1e3:.3g} ms: the quickest of "
        f"{profile.runs}. "
        f"This machine: {machine.flops / 1e9:.0f} GFLOP/s in products of float32, "
        f"{machine.bytes / 1e9:.0f} GB/s in copies."
    )
    return {"about": about, "rows": rows}


def _line(origin: Any) -> str:
    words = [os.path.basename(origin.source) or "(no line)"]
    words += ["backward"] * origin.backward
    words += [f"in {origin.scope}"] * bool(origin.scope)
    return " ".join(words)


def write(profile: Any, folder: Path, step: int) -> None:
    """Keeps a profile: a table, a trace for Perfetto and Chrome, and what a report
    shows of it."""
    folder.mkdir(exist_ok=True)
    found = kernels(profile)
    found["about"] += f" Measured in the training, before step {step + 1}."
    replace_file(folder / _KERNELS, json.dumps(found, indent=1) + "\n")
    replace_file(folder / _TABLE, f"{profile}\n")
    profile.save(folder / _TRACE)


def read(folder: Path) -> Kernels | None:
    """What a report shows of a profile that was kept; None if there is none."""
    try:
        found = json.loads((folder / _KERNELS).read_text(encoding="utf-8"))
        return {"about": str(found["about"]), "rows": list(found["rows"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None

"""Times training steps of several libraries side by side, in one process.

Peers take turns in blocks. Before its block a peer waits until the threads of the
previous one have stopped spinning (OpenBLAS spins for 100 ms, OpenMP for 2 ms), then
warms up, then times its steps one by one. Every step ends with its loss as a Python
float, so no peer's work is still running when the clock stops.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, SupportsFloat

HERE = Path(__file__).parent
QUIET_SECONDS = 0.2
WARM_UP_STEPS = 2
BLOCK_SECONDS = 0.5
BLOCK_STEPS = (3, 50)
LOSS_STEPS = 20
PEAK_FLOPS = 400e9


class Step(Protocol):
    """A training step of one library on one workload."""

    def step(self) -> SupportsFloat:
        """Train once; the loss."""


def losses(step: Step, count: int = LOSS_STEPS) -> list[float]:
    """The losses of the first `count` training steps."""
    return [float(step.step()) for _ in range(count)]


def largest_difference(curves: Mapping[str, list[float]]) -> float:
    """How far two peers' losses at the same step ever are apart."""
    return max(
        max(values) - min(values) for values in zip(*curves.values(), strict=True)
    )


def timed_step(step: Step) -> float:
    """Milliseconds of one training step."""
    start = time.perf_counter()
    float(step.step())
    return (time.perf_counter() - start) * 1e3


def block_steps(milliseconds: float) -> int:
    """How many steps of this length make a block."""
    low, high = BLOCK_STEPS
    return min(high, max(low, round(BLOCK_SECONDS * 1e3 / milliseconds)))


def time_interleaved(
    peers: Mapping[str, Step], rounds: int, steps: int | None = None
) -> dict[str, list[float]]:
    """Milliseconds of every timed step, by peer; each round starts with another."""
    times: dict[str, list[float]] = {name: [] for name in peers}
    order = list(peers)
    for _ in range(rounds):
        for name in order:
            time.sleep(QUIET_SECONDS)
            warm = [timed_step(peers[name]) for _ in range(WARM_UP_STEPS)]
            count = steps or block_steps(min(warm))
            times[name] += [timed_step(peers[name]) for _ in range(count)]
        order = order[1:] + order[:1]
    return times


def compile_times(peer: str, workload: str, runs: int) -> dict[str, float]:
    """Median milliseconds to build the program in a fresh process, by kind of start.

    `cold` starts with an empty kernel cache; `warm` is the next process, which finds
    the kernels on disk (Treadle only: the other peers run without a cache on disk).
    """
    kinds = ("cold", "warm") if peer == "treadle" else ("cold",)
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(runs):
        with tempfile.TemporaryDirectory() as cache:
            for kind in kinds:
                times[kind].append(_compile_in_child(peer, workload, cache))
    return {kind: statistics.median(values) for kind, values in times.items()}


def _compile_in_child(peer: str, workload: str, cache: str) -> float:
    environment = dict(
        os.environ, TREADLE_CACHE_DIR=cache, JAX_ENABLE_COMPILATION_CACHE="false"
    )
    child = subprocess.run(
        [sys.executable, str(HERE / "compile_time.py"), peer, workload],
        env=environment,
        capture_output=True,
        text=True,
    )
    if child.returncode:
        raise RuntimeError(f"{peer} did not compile {workload}:\n{child.stderr}")
    return json.loads(child.stdout.splitlines()[-1])["compile_ms"]


def limit_ms(flops: int) -> float:
    """The shortest time in which the machine can do this arithmetic."""
    return flops / PEAK_FLOPS * 1e3


def table(rows: list[dict], peers: tuple[str, ...]) -> str:
    """The rows as a Markdown table; ratios are a peer's time over Treadle's."""
    ours = "treadle" in peers
    others = [peer for peer in peers if peer != "treadle"]
    columns = {"workload": "workload"}
    columns |= {f"{peer}_ms": f"{peer} ms" for peer in peers}
    columns |= {f"{peer}_ratio": f"{peer}/treadle" for peer in others if ours}
    columns |= {"limit_ms": "limit ms"}
    columns |= {
        f"{peer}_compile_ms": f"{peer} compile ms" for peer in peers if peer != "torch"
    }
    if ours:
        columns |= {"treadle_warm_compile_ms": "treadle warm compile ms"}
    columns |= {"loss_difference": "max loss difference"}
    lines = ["| " + " | ".join(columns.values()) + " |", "| --- " * len(columns) + "|"]
    for row in rows:
        cells = (_cell(row.get(key)) for key in columns)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: str | float | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    digits = 2 if value == 0 else 2 - math.floor(math.log10(abs(value)))
    return f"{value:.0e}" if abs(value) < 1e-2 else f"{value:.{max(digits, 0)}f}"

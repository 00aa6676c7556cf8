"""Times training steps of several libraries side by side, in one process.

Peers take turns in blocks. Before its block a peer waits until the threads of the
previous one have stopped spinning (OpenBLAS spins for 100 ms, OpenMP for 2 ms), then
warms up, then times its steps one by one. Every step ends with its loss as a Python
float, so no peer's work is still running when the clock stops.
"""

import compileall
import functools
import importlib.util
import json
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
BLOCK_SECONDS = 0.3
BLOCK_STEPS = (3, 50)
LOSS_STEPS = 20
CHILD_SECONDS = 180
"""How long a peer may take to compile a workload and to train a few steps."""


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


def alone(peer: str, workload: str, runs: int) -> dict[str, float]:
    """What fresh processes take, or a RuntimeError that says why they fail: medians
    of `compile_ms`, `memory_mb`, `process_mb`, and for Treadle `warm_compile_ms`, that
    of a process which finds the kernels on disk.

    Nothing else finds anything on disk, except that `torch.compile` keeps what the last
    process made for this one.
    """
    found: dict[str, list[float]] = {}
    if peer == "treadle":
        _write_bytecode()
    for i in range(runs):
        with tempfile.TemporaryDirectory() as cache:
            kept = {} if i == runs - 1 else {"TORCHINDUCTOR_CACHE_DIR": cache}
            place = {"TREADLE_CACHE_DIR": cache} | kept
            first = _in_child(peer, workload, "compile", place)
            if peer == "treadle":
                again = _in_child(peer, workload, "compile", place)
                first["warm_compile_ms"] = again["compile_ms"]
            place["TREADLE_CACHE_DIR"] = os.path.join(cache, "of memory")
            first |= _in_child(peer, workload, "memory", place)
        for key, value in first.items():
            found.setdefault(key, []).append(value)
    return {key: statistics.median(values) for key, values in found.items()}


@functools.cache
def _write_bytecode() -> None:
    """Treadle's modules have their bytecode, as those of installed packages have: the
    compiler is imported by the first call, whose time is taken."""
    for name in ("treadle", "treadle.nn", "treadle.optim", "treadle.rng"):
        spec = importlib.util.find_spec(name)
        for folder in spec.submodule_search_locations if spec else ():
            compileall.compile_dir(folder, quiet=2)


def _in_child(
    peer: str, workload: str, measure: str, places: dict[str, str]
) -> dict[str, float]:
    environment = dict(os.environ, JAX_ENABLE_COMPILATION_CACHE="false", **places)
    # In an environment without bytecode compiling that takes most of a first call.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    try:
        child = subprocess.run(
            [sys.executable, str(HERE / "alone.py"), peer, workload, measure],
            env=environment,
            capture_output=True,
            text=True,
            timeout=CHILD_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"took more than {CHILD_SECONDS} s") from error
    if child.returncode:
        lines = child.stderr.strip().splitlines() or ["it gave no reason"]
        raise RuntimeError(lines[-1])
    return json.loads(child.stdout.splitlines()[-1])

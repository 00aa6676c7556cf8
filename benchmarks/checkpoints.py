"""Saving and restoring, beside Orbax: time, processor time and memory.

python benchmarks/checkpoints.py                 # 8 arrays of 32 MB, 5 rounds
python benchmarks/checkpoints.py --megabytes 64 --rounds 3

Each measurement is a process of its own, in turns. Ours compares checksums as it
restores; Orbax has none.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from treadle import checkpoint

ARRAYS = 8
PARTS = ("save", "restore")


def arrays(megabytes: int) -> dict[str, np.ndarray]:
    """What is saved: numbers that can't be compressed."""
    random = np.random.default_rng(0)
    count = megabytes << 18
    return {f"{n}": random.random(count, np.float32) for n in range(ARRAYS)}


def ours() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """How Treadle saves and restores."""
    return checkpoint.save, checkpoint.restore


def theirs() -> tuple[Callable[..., Any], Callable[..., Any]]:
    """How Orbax does."""
    import orbax.checkpoint as ocp

    checkpointer = ocp.PyTreeCheckpointer()
    return checkpointer.save, lambda path, like: checkpointer.restore(path, item=like)


PEERS = {"treadle": ours, "orbax": theirs}


def measured(peer: str, part: str, path: Path, megabytes: int) -> dict[str, float]:
    """What one save or restore takes: seconds, of the processor, and how much memory
    (MB) besides what was there before."""
    save, restore = PEERS[peer]()
    tree = arrays(megabytes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    found = save(path, tree) if part == "save" else restore(path, tree)
    took = time.perf_counter() - wall, time.process_time() - cpu
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if part == "restore" and any((found[n] != x).any() for n, x in tree.items()):
        raise SystemExit(f"{peer} has restored something else")
    return {"seconds": took[0], "cpu": took[1], "memory": (most - before) / 1024}


def in_process(peer: str, part: str, path: Path, megabytes: int) -> dict[str, float]:
    """`measured`, in a process of its own."""
    command = [sys.executable, __file__, "--one", peer, part, str(path)]
    command += ["--megabytes", str(megabytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--megabytes", type=int, default=32, help="of each array")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        peer, part, path = options.one
        print(json.dumps(measured(peer, part, Path(path), options.megabytes)))
        return
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for part in PARTS:
                for peer in PEERS:
                    path = Path(folder) / f"{peer}-{number}"
                    row = in_process(peer, part, path, options.megabytes)
                    found.setdefault((part, peer), []).append(row)
    print("| | treadle | orbax | treadle/orbax |\n| --- | --- | --- | --- |")
    units = (("seconds", "s", 2), ("cpu", "s of the processor", 2), ("memory", "MB", 0))
    for part in PARTS:
        for name, unit, digits in units:
            a, b = (
                statistics.median(row[name] for row in found[part, peer])
                for peer in PEERS
            )
            print(f"| {part}, {unit} | {a:.{digits}f} | {b:.{digits}f} | {a / b:.2f} |")


if __name__ == "__main__":
    main()

"""Prints what one library takes for one workload in a process of its own.

Run in a fresh process: `python alone.py PEER WORKLOAD`. The library is imported before
the clock starts; the training step's program is not built. Memory is the most that the
process holds while it trains: as a whole, and without what it held with the library
imported.
"""

import ctypes
import importlib
import json
import sys
from pathlib import Path

import workloads

STEPS = 3
LIBRARIES = {"treadle": "treadle_peer", "jax": "jax_peer"}


def held(which: str) -> int:
    """Bytes of memory that this process holds: `VmRSS`, or `VmHWM`, the most so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(which):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"this system does not tell {which}")


def forget_the_most() -> None:
    """From now on `VmHWM` is the most after this; freed memory goes back first."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")


def main(peer: str, workload: str) -> None:
    """Print a JSON object: `compile_ms`, and `memory_mb` and `process_mb`."""
    importlib.import_module(f"peers.{LIBRARIES.get(peer, 'torch_peer')}")
    before = held("VmRSS")
    step = workloads.build(workload, peer)
    found = {"compile_ms": step.compile_ms()}
    if Path("/proc/self/clear_refs").exists():
        forget_the_most()
        for _ in range(STEPS):
            float(step.step())
        most = held("VmHWM")
        found |= {"memory_mb": (most - before) / 1e6, "process_mb": most / 1e6}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Prints what one library takes for one workload in a process of its own.

Run in a fresh process: `python alone.py PEER WORKLOAD compile`, or `memory`. The
library is imported before the clock starts; the training step's program is not built.
Memory is the most that the process holds while it trains: as a whole, and without what
it held once a small model had trained, when the library has loaded all of its own.
"""

import ctypes
import importlib
import json
import sys
from pathlib import Path
from typing import Any

import workloads

STEPS = 3
SMALL = "mlp-tiny"
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


def compile_time(peer: str, workload: str) -> dict[str, float]:
    """`compile_ms`."""
    return {"compile_ms": workloads.build(workload, peer).compile_ms()}


def memory(peer: str, workload: str) -> dict[str, float]:
    """`memory_mb` and `process_mb`; nothing where the system does not tell."""
    if not Path("/proc/self/clear_refs").exists():
        return {}
    trained(SMALL, peer)
    forget_the_most()
    before = held("VmRSS")
    step = trained(workload, peer)
    forget_the_most()
    for _ in range(STEPS):
        float(step.step())
    most = held("VmHWM")
    return {"memory_mb": (most - before) / 1e6, "process_mb": most / 1e6}


def trained(workload: str, peer: str) -> Any:
    """The workload's step, compiled and done once."""
    step = workloads.build(workload, peer)
    step.compile_ms()
    float(step.step())
    return step


MEASURES = {"compile": compile_time, "memory": memory}


def main(peer: str, workload: str, measure: str) -> None:
    """Print a JSON object of what was measured."""
    importlib.import_module(f"peers.{LIBRARIES.get(peer, 'torch_peer')}")
    print(json.dumps(MEASURES[measure](peer, workload)))


if __name__ == "__main__":
    main(*sys.argv[1:])

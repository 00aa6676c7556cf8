"""Prints the time that one library takes to build one workload's training step.

Run in a fresh process: `python compile_time.py PEER WORKLOAD`. The library is imported
and has run something before the clock starts; the training step's program is not built.
"""

import json
import sys

import workloads


def main(peer: str, workload: str) -> None:
    """Print `{"compile_ms": milliseconds}`."""
    step = workloads.build(workload, peer)
    print(json.dumps({"compile_ms": step.compile_ms()}))


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Compares training steps in Treadle, JAX and PyTorch: `python benchmarks/run.py`."""

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import harness
import machine
import report
import workloads

# Rounding differences grow with every step: the same PyTorch model in float32 and in
# float64 is up to 1e-3 apart after 20 steps of AdamW. In bfloat16 each value has a
# relative error of 4e-3.
FIRST_LOSS_TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
LOSS_TOLERANCE = {"float32": 5e-3, "bfloat16": 5e-2}

# Every row has these keys; null where a peer was left out or failed.
KEYS = (
    "workload",
    *(f"{peer}_ms" for peer in workloads.PEERS),
    *(f"{peer}_memory_mb" for peer in workloads.PEERS),
    *(f"{peer}_process_mb" for peer in workloads.PEERS),
    *(f"{peer}_compile_ms" for peer in workloads.PEERS if peer != "torch"),
    "treadle_warm_compile_ms",
    "ratio",
    "limit_ms",
    "limit_ratio",
)


def compare_losses(name: str, steps: dict[str, harness.Step]) -> dict[str, float]:
    """Train every peer from the same weights; how far their losses are apart."""
    dtype = getattr(workloads.load(name), "dtype", "float32")
    curves = {peer: harness.losses(step) for peer, step in steps.items()}
    first = harness.largest_difference({p: c[:1] for p, c in curves.items()})
    largest = harness.largest_difference(curves)
    size = max(1, max(abs(x) for curve in curves.values() for x in curve))
    if not (
        first <= FIRST_LOSS_TOLERANCE[dtype] * size
        and largest <= LOSS_TOLERANCE[dtype] * size
    ):
        shown = "\n".join(f"  {peer}: {curve}" for peer, curve in curves.items())
        raise SystemExit(f"{name}: the peers' losses differ by {largest}\n{shown}")
    return {"first_loss_difference": first, "loss_difference": largest}


def alone(name: str, options: argparse.Namespace, failures: dict[str, str]) -> dict:
    """Compile times and memory of each peer; those that fail go into `failures`."""
    row = {}
    for peer in options.peers if options.compiles else ():
        print(f"  {peer} alone", flush=True)
        try:
            found = harness.alone(peer, name, options.compiles)
        except RuntimeError as error:
            # Treadle has to run everything; peers may not be able to.
            if peer == "treadle":
                raise
            failures[peer] = str(error)
            continue
        if peer == "torch":
            del found["compile_ms"]
        row |= {f"{peer}_{key}": value for key, value in found.items()}
    return row


def built(name: str, peers: list[str], failures: dict[str, str]) -> dict:
    """The steps of those peers that can do one."""
    steps = {}
    for peer in peers:
        try:
            float(workloads.build(name, peer).step())
        except Exception as error:
            if peer != "compiled":
                raise
            failures[peer] = str(error).strip().splitlines()[-1]
        else:
            steps[peer] = workloads.build(name, peer)
    return steps


def measure(name: str, rate: float, options: argparse.Namespace) -> dict:
    """One row of the table."""
    row: dict = dict.fromkeys(KEYS) | {"workload": name}
    failures: dict[str, str] = {}
    row |= alone(name, options, failures)
    able = [peer for peer in options.peers if peer not in failures]
    steps = built(name, able, failures)
    print("  losses", flush=True)
    row |= compare_losses(name, steps)
    print("  steps in turns", flush=True)
    times = harness.time_interleaved(steps, options.rounds, options.steps)
    row |= {f"{peer}_ms": statistics.median(ms) for peer, ms in times.items()}
    row |= {f"{peer}_best_ms": min(ms) for peer, ms in times.items()}
    # Calls that compute nothing have no such limit.
    row["limit_ms"] = workloads.load(name).flops() / rate * 1e3 or None
    if "treadle" in steps:
        row |= ratios(row, [peer for peer in steps if peer != "treadle"])
    return row | {"load": os.getloadavg()[0], "failures": failures}


def ratios(row: dict, others: list[str]) -> dict[str, float]:
    """Times of the others over Treadle's, and Treadle's over the limit."""
    ours = row["treadle_ms"]
    found = {f"{peer}_ratio": row[f"{peer}_ms"] / ours for peer in others}
    if found:
        found["ratio"] = min(found.values())
    if row["limit_ms"]:
        found["limit_ratio"] = ours / row["limit_ms"]
    return found


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--workload", nargs="+", choices=workloads.NAMES, default=workloads.NAMES
    )
    parser.add_argument(
        "--peers",
        type=lambda text: tuple(text.split(",")),
        default=workloads.PEERS,
        help="comma-separated, of " + ",".join(workloads.PEERS),
    )
    parser.add_argument("--rounds", type=int, default=4, help="blocks of each peer")
    parser.add_argument(
        "--steps", type=int, help="timed steps a block (default: 0.3 s)"
    )
    parser.add_argument(
        "--compiles",
        type=int,
        default=1,
        help="fresh processes for compile time and memory; 0: none",
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--picture", type=Path, help="draw the ratios into this PNG")
    parser.add_argument(
        "--table", type=Path, help="print the table of this JSON file; measure nothing"
    )
    options = parser.parse_args()
    if unknown := set(options.peers) - set(workloads.PEERS):
        parser.error(f"unknown peers: {', '.join(sorted(unknown))}")
    return options


def measured(options: argparse.Namespace) -> report.Rows:
    """The rows, which are written as they come."""
    rate = machine.flops_per_second()
    print(f"limit: {rate / 1e9:.0f} GFLOP/s in float32", flush=True)
    rows: report.Rows = []
    start = time.perf_counter()
    for i, name in enumerate(options.workload):
        minutes = (time.perf_counter() - start) / 60
        print(f"{i + 1}/{len(options.workload)} {name}, {minutes:.1f} min", flush=True)
        with tempfile.TemporaryDirectory() as cache:
            os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
            rows.append(measure(name, rate, options) | {"flops_per_second": rate})
        print(report.table(rows[-1:]), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=2) + "\n")
    return rows


def main() -> None:
    """Measure or read, print the table, draw the picture."""
    options = parse()
    known = options.table and json.loads(options.table.read_text())
    rows = known or measured(options)
    print("\n" + report.table(rows))
    if options.picture:
        report.picture(rows, options.picture)


if __name__ == "__main__":
    main()

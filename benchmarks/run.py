"""Compares training steps in Treadle, JAX and PyTorch: `python benchmarks/run.py`."""

import argparse
import json
import os
import statistics
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import harness
import workloads

# Rounding differences grow with every step: the same PyTorch model in float32 and in
# float64 is up to 1e-3 apart after 20 steps of AdamW.
FIRST_LOSS_TOLERANCE = 1e-5
LOSS_TOLERANCE = 5e-3

# Every row has these keys; null where a peer was left out.
KEYS = (
    "workload",
    *(f"{peer}_ms" for peer in workloads.PEERS),
    "limit_ms",
    "treadle_compile_ms",
    "jax_compile_ms",
)


def compare_losses(name: str, steps: dict[str, harness.Step]) -> dict[str, float]:
    """Train every peer from the same weights; how far their losses are apart."""
    curves = {peer: harness.losses(step) for peer, step in steps.items()}
    first = harness.largest_difference({p: c[:1] for p, c in curves.items()})
    largest = harness.largest_difference(curves)
    if not (first <= FIRST_LOSS_TOLERANCE and largest <= LOSS_TOLERANCE):
        shown = "\n".join(f"  {peer}: {curve}" for peer, curve in curves.items())
        raise SystemExit(f"{name}: the peers' losses differ by {largest}\n{shown}")
    return {"first_loss_difference": first, "loss_difference": largest}


def measure(name: str, options: argparse.Namespace) -> dict:
    """One row of the table."""
    row: dict = dict.fromkeys(KEYS) | {"workload": name}
    for peer in options.peers:
        if peer != "torch" and options.compiles:
            times = harness.compile_times(peer, name, options.compiles)
            row[f"{peer}_compile_ms"] = times["cold"]
            if "warm" in times:
                row[f"{peer}_warm_compile_ms"] = times["warm"]
    steps = {peer: workloads.build(name, peer) for peer in options.peers}
    row |= compare_losses(name, steps)
    times = harness.time_interleaved(steps, options.rounds, options.steps)
    row |= {f"{peer}_ms": statistics.median(ms) for peer, ms in times.items()}
    row |= {f"{peer}_best_ms": min(ms) for peer, ms in times.items()}
    if "treadle" in steps:
        ours = row["treadle_ms"]
        others = [peer for peer in steps if peer != "treadle"]
        row |= {f"{peer}_ratio": row[f"{peer}_ms"] / ours for peer in others}
    row["load"] = os.getloadavg()[0]
    row["limit_ms"] = harness.limit_ms(workloads.load(name).flops())
    return row


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
    parser.add_argument("--rounds", type=int, default=6, help="blocks of each peer")
    parser.add_argument(
        "--steps", type=int, help="timed steps a block (default: 0.5 s)"
    )
    parser.add_argument(
        "--compiles",
        type=int,
        default=3,
        help="fresh processes a compile time; 0: none",
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    options = parser.parse_args()
    if unknown := set(options.peers) - set(workloads.PEERS):
        parser.error(f"unknown peers: {', '.join(sorted(unknown))}")
    return options


def main() -> None:
    """Measure, print the table, write the rows."""
    options = parse()
    rows = []
    for name in options.workload:
        print(f"{name} ...", flush=True)
        rows.append(measure(name, options))
        print(harness.table(rows[-1:], options.peers), flush=True)
        if options.json:
            options.json.write_text(json.dumps(rows, indent=2) + "\n")
    print("\n" + harness.table(rows, options.peers))


if __name__ == "__main__":
    main()

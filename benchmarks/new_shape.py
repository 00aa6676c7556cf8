"""Calls with batch sizes never seen: `python benchmarks/new_shape.py`.

Trains at one batch size, then at new ones, one example among them. Treadle may trace
again, but its kernels take their sizes at run time: the number of natively compiled
kernels must not grow.
The script starts with an empty kernel cache and asserts this after every new size.
"""

import argparse
import os
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import harness
import workloads

WORKLOADS = ("mlp", "cnn", "gpt-small", "lstm")
SIZES = (1, 2, 7, 96, 130, 257)
STEPS = 5


def compiled_kernels(peer: str) -> int:
    """How many kernels Treadle has compiled natively in this process."""
    if peer != "treadle":
        return 0
    from treadle.backends.cpu.run import native

    return native.stats.compiled


def measure(name: str, peer: str, sizes: list[int]) -> None:
    """Print first-call and next-call times; fail if a size compiled a kernel."""
    step = workloads.build(name, peer)
    harness.losses(step, STEPS)
    known = compiled_kernels(peer)
    for size in sizes:
        step.feed(workloads.load(name).batch(0, size))
        first, following = harness.timed_step(step), harness.timed_step(step)
        print(f"| {name} | {peer} | {size} | {first:.1f} | {following:.1f} |")
        added = compiled_kernels(peer) - known
        assert not added, f"{name}: batch size {size} compiled {added} kernels"


def main() -> None:
    """Run the chosen workloads in the chosen peers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=WORKLOADS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument(
        "--peers", nargs="+", choices=("treadle", "jax"), default=("treadle", "jax")
    )
    options = parser.parse_args()
    print("| workload | peer | batch | first call ms | next call ms |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TREADLE_CACHE_DIR"] = cache
        for name in options.workload:
            for peer in options.peers:
                measure(name, peer, options.sizes)


if __name__ == "__main__":
    main()

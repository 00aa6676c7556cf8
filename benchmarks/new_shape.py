"""Training steps at sizes never seen: `python benchmarks/new_shape.py`.

Each workload trains at two sizes, then at 50 others, one example and sequences of one
element among them. Treadle leaves a size open when it sees a second one: from then on
it may not trace again nor compile a kernel, and each step must give the loss, and all
of them the parameters, that programs traced for each size give, bit by bit. The script
starts with an empty kernel cache and fails if that is not so.

It prints what passes before the program of a size starts: the look-up, the binding of
the sizes and the numbers of the plan, and the path for further calls; the median and
the most of all sizes, in milliseconds. JAX compiles for each size; it is shown a few,
with what the first call takes longer than the next ones.
"""

import argparse
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import harness
import numpy as np
import workloads

COUNT = 50
JAX_COUNT = 2
REPEATS = 3


class Case(NamedTuple):
    """A workload, and how long its batches and its sequences may be."""

    workload: str
    batch: int
    length: int | None = None

    def sizes(self, count: int) -> list[tuple[int, ...]]:
        """Different sizes: two that say what varies, then so many others: some of one
        element, then any."""
        if self.length is None:
            most, first = [self.batch], _BATCHES
        else:
            most, first = [self.batch, self.length], _PAIRS
            first = (*first, (1, self.length), (self.batch, 1))
        rng = np.random.default_rng(0)
        found = dict.fromkeys(first)
        while len(found) < min(2 + count, math.prod(most)):
            found[tuple([int(rng.integers(1, m + 1)) for m in most])] = None
        return list(found)[: 2 + count]

    def batches(self, size: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """The inputs and labels of a step."""
        x, y = workloads.load(self.workload).batch(0, size[0])
        if self.length is None:
            return x, y
        return x[:, : size[1]], y[:, : size[1]] if y.ndim > 1 else y


_BATCHES = ((3,), (7,), (1,), (2,), (10,), (32,))
_PAIRS = ((3, 5), (2, 7), (1, 1), (7, 2), (10, 10))
CASES = {
    "mlp": Case("mlp", 300),
    "cnn": Case("cnn", 100),
    "gpt-small": Case("gpt-small", 56),
    "gpt-small, length too": Case("gpt-small", 20, 128),
    "lstm": Case("lstm", 100),
    "lstm, length too": Case("lstm", 60, 64),
    "attention, length too": Case("attention", 20, 200),
}


class Measured(NamedTuple):
    """Milliseconds that a size costs at its first call, by size, and the losses."""

    extra: list[float]
    losses: list[float]


def measure(step: harness.Step, case: Case, sizes: Sequence[tuple]) -> Measured:
    """Trains a few steps at each size."""
    extra, losses = [], []
    for size in sizes:
        step.feed(case.batches(size))
        with before_the_start() as passed:
            step.step()
        for _ in range(REPEATS - 1):
            step.step()
        extra.append(sum(passed) * 1e3)
        losses.append(float(step.step()))
    return Measured(extra, losses)


def jax_extra(step: harness.Step, case: Case, sizes: Sequence[tuple]) -> list[float]:
    """What JAX's first steps take longer than the next ones, by size."""
    found = []
    for size in sizes:
        step.feed(case.batches(size))
        times = [harness.timed_step(step) for _ in range(REPEATS)]
        found.append(times[0] - min(times[1:]))
    return found


@contextmanager
def before_the_start() -> Iterator[list[float]]:
    """Collects the seconds that Treadle's calls spend meanwhile before a program
    starts, if they have no path yet."""
    from treadle.api.entry import Entry
    from treadle.api.jit import Jitted

    passed: list[float] = []

    def timed(function: Callable) -> Callable:
        def call(*args: object) -> object:
            start = time.perf_counter()
            try:
                return function(*args)
            finally:
                passed.append(time.perf_counter() - start)

        return call

    parts = ((Jitted, "_lookup"), (Entry, "path_like"))
    kept = [(owner, name, getattr(owner, name)) for owner, name in parts]
    for owner, name, function in kept:
        setattr(owner, name, timed(function))
    try:
        yield passed
    finally:
        for owner, name, function in kept:
            setattr(owner, name, function)


def compiled_kernels() -> int:
    """How many kernels Treadle has compiled natively in this process."""
    from treadle.backends.cpu.run import native

    return native.stats.compiled


def check(case: Case, count: int) -> Measured:
    """Trains at sizes that are left open, and again with a program for each size.
    Raises AssertionError if they differ, or for a trace or a kernel too many."""
    first, second, *others = sizes = case.sizes(count)
    step = workloads.build(case.workload, "treadle")
    warm = measure(step, case, (first, second))
    traces, kernels = step.traces, compiled_kernels()
    rest = measure(step, case, others)
    more, added = step.traces - traces, compiled_kernels() - kernels
    assert not more, f"{case}: {more} traces after the second size"
    assert not added, f"{case}: {added} kernels after the second size"
    fixed = workloads.build(case.workload, "treadle")
    losses = list(static_losses(fixed, case, sizes))
    assert warm.losses + rest.losses == losses, f"{case}: other losses"
    for a, b in zip(arrays(step), arrays(fixed), strict=True):
        assert a.tobytes() == b.tobytes(), f"{case}: other parameters"
    return rest


def static_losses(step: harness.Step, case: Case, sizes: Sequence[tuple]) -> Iterator:
    """The losses of programs that are traced for one size each."""
    import treadle as td

    for size in sizes:
        step.train = td.jit(step.function, donate=("model", "state"))
        step.feed(case.batches(size))
        for _ in range(REPEATS):
            step.step()
        yield float(step.step())


def arrays(step: harness.Step) -> list[np.ndarray]:
    """The parameters, and the optimizer's state."""
    import treadle as td

    return [np.asarray(a) for a in td.tree.leaves((step.model, step.state))]


def main() -> None:
    """Run the chosen cases in the chosen peers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument(
        "--peers", nargs="+", choices=("treadle", "jax"), default=("treadle", "jax")
    )
    options = parser.parse_args()
    print("| workload | peer | new sizes | ms, median | ms, most |")
    print("| --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TREADLE_CACHE_DIR"] = cache
        for name in options.cases:
            case = CASES[name]
            for peer in options.peers:
                if peer == "treadle":
                    extra = check(case, options.count).extra
                else:
                    step = workloads.build(case.workload, peer)
                    extra = jax_extra(step, case, case.sizes(JAX_COUNT))[2:]
                middle = f"{statistics.median(extra):.2f} | {max(extra):.2f}"
                print(f"| {name} | {peer} | {len(extra)} | {middle} |", flush=True)


if __name__ == "__main__":
    main()

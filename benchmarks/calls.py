"""What a call costs beside the work: `python benchmarks/calls.py`.

Compiled functions that do next to nothing, called again and again, in Treadle and in
JAX. The two take turns in short blocks; a block counts with the time of its average
call, and the table has the median of each peer's fastest quarter of blocks.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable, Iterable
from itertools import cycle

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

import treadle as td
import treadle.numpy as tnp
from treadle import nn

ARRAYS = 100
BLOCK_SECONDS = 0.02

Call = Callable[[], object]


class Layer(nn.Module):
    """Two arrays of a model."""

    weight: td.Array
    bias: td.Array


class Model(nn.Module):
    """A hundred arrays in fifty layers."""

    layers: list


def model() -> Model:
    layers = [Layer(tnp.ones(4), tnp.ones(4)) for _ in range(ARRAYS // 2)]
    return td.tree.map(lambda x: x, Model(layers))


def rebuilt(model: Model) -> Model:
    """The same arrays in new modules."""
    return Model([Layer(layer.weight, layer.bias) for layer in model.layers])


def over(function: Callable, arguments: Iterable) -> Call:
    """A call with the next of some arguments."""
    following = cycle(arguments)
    return lambda: function(next(following))


def cases() -> dict[str, tuple[Call, Call]]:
    """For each row, a call of Treadle's and one of JAX's."""
    ours, theirs = (
        [ones(4) * (i + 1) for i in range(ARRAYS)] for ones in (tnp.ones, jnp.ones)
    )
    batch = np.ones(4, np.float32)
    add = lambda x: x + 1  # noqa: E731
    total = lambda xs: sum(xs[1:], xs[0])  # noqa: E731
    each = lambda xs: [x + 1 for x in xs]  # noqa: E731
    of_model = td.jit(lambda m: total(td.tree.leaves(m)))
    flat = over(jax.jit(total), [theirs])
    start = model()
    held = td.jit(lambda m: td.tree.map(lambda x: x * 1, m))(start)
    new = [rebuilt(start) for _ in range(50)]
    mapped = [td.tree.map(lambda x: x, m) for m in new]
    return {
        "one array": (over(td.jit(add), ours[:1]), over(jax.jit(add), theirs[:1])),
        "one array of NumPy's": (
            over(td.jit(add), [batch]),
            over(jax.jit(add), [batch]),
        ),
        "100 arrays to 1": (over(td.jit(total), [ours]), flat),
        "100 arrays to 100": (
            over(td.jit(each), [ours]),
            over(jax.jit(each), [theirs]),
        ),
        "module of 100 arrays, held; a flat list": (over(of_model, [held]), flat),
        "the same, new modules each time; a flat list": (over(of_model, new), flat),
        "the same, from `tree.map` each time; a flat list": (
            over(of_model, mapped),
            flat,
        ),
    }


def block(call: Call, count: int) -> float:
    """Microseconds of an average call."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def measure(pair: tuple[Call, Call], blocks: int) -> list[float]:
    """Microseconds of a call of each peer."""
    counts = []
    for call in pair:
        block(call, 100)
        counts.append(max(10, round(BLOCK_SECONDS * 1e6 / block(call, 100))))
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(blocks):
        for call, count, found in zip(pair, counts, times, strict=True):
            found.append(block(call, count))
    return [statistics.median(sorted(found)[: max(1, blocks // 4)]) for found in times]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", type=int, default=40)
    options = parser.parse_args()
    print("| call | treadle us | jax us | treadle/jax |\n| --- | --- | --- | --- |")
    for name, pair in cases().items():
        ours, theirs = measure(pair, options.blocks)
        print(f"| {name} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} |")


if __name__ == "__main__":
    main()

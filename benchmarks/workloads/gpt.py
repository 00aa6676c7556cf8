"""A decoder-only transformer: the parts that the GPT workloads share.

Pre-LN blocks, GELU (tanh) with a hidden width of 4 d, learned positions, causal
attention, an untied linear head, cross-entropy over all positions.
"""

from dataclasses import dataclass

import numpy as np

from workloads import initial


@dataclass(frozen=True)
class Sizes:
    """One GPT workload."""

    layers: int
    width: int
    heads: int
    length: int
    batch: int
    vocabulary: int = 96


def weights(sizes: Sizes, seed: int) -> initial.Weights:
    """Initial weights by path; `qkv` stacks query, key and value."""
    rng = np.random.default_rng(seed)
    d = sizes.width
    result = initial.table(rng, "tokens", sizes.vocabulary, d)
    result |= initial.table(rng, "positions", sizes.length, d)
    for i in range(sizes.layers):
        block = f"blocks.{i}"
        result |= initial.norm(f"{block}.norm1", d)
        result |= initial.dense(rng, f"{block}.attention.qkv", 3 * d, d)
        result |= initial.dense(rng, f"{block}.attention.out", d, d)
        result |= initial.norm(f"{block}.norm2", d)
        result |= initial.dense(rng, f"{block}.expand", 4 * d, d)
        result |= initial.dense(rng, f"{block}.shrink", d, 4 * d)
    result |= initial.norm("norm", d)
    return result | initial.dense(rng, "head", sizes.vocabulary, d)


def batch(sizes: Sizes, seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (size, length) and the tokens that follow them."""
    rng = np.random.default_rng(seed + 1)
    text = rng.integers(0, sizes.vocabulary, (size, sizes.length + 1))
    return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])


def flops(sizes: Sizes) -> int:
    """Forward and both gradients of all linear layers and of attention.

    Attention counts the pairs that the causal mask lets through: half of the square.
    """
    tokens = sizes.batch * sizes.length
    d = sizes.width
    linear = tokens * (sizes.layers * 12 * d * d + d * sizes.vocabulary)
    pairs = sizes.batch * sizes.length * (sizes.length + 1) // 2
    attention = sizes.layers * 2 * pairs * d
    return 2 * 3 * (linear + attention)

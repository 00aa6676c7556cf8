"""A decoder-only transformer, in the sizes of the GPT workloads.

Pre-LN blocks, GELU (tanh) with a hidden width of 4 d, learned positions, causal
attention, an untied linear head, cross-entropy over all positions.
"""

from dataclasses import dataclass

import numpy as np

from workloads import initial


@dataclass(frozen=True)
class Workload:
    """One size of it, with what a module of a workload has."""

    layers: int
    width: int
    heads: int
    length: int
    batch_size: int
    vocabulary: int = 96

    def weights(self, seed: int) -> initial.Weights:
        """Initial weights by path; `qkv` stacks query, key and value."""
        rng = np.random.default_rng(seed)
        d = self.width
        result = initial.table(rng, "tokens", self.vocabulary, d)
        result |= initial.table(rng, "positions", self.length, d)
        for i in range(self.layers):
            block = f"blocks.{i}"
            result |= initial.norm(f"{block}.norm1", d)
            result |= initial.dense(rng, f"{block}.attention.qkv", 3 * d, d)
            result |= initial.dense(rng, f"{block}.attention.out", d, d)
            result |= initial.norm(f"{block}.norm2", d)
            result |= initial.dense(rng, f"{block}.expand", 4 * d, d)
            result |= initial.dense(rng, f"{block}.shrink", d, 4 * d)
        result |= initial.norm("norm", d)
        return result | initial.dense(rng, "head", self.vocabulary, d)

    def batch(
        self, seed: int, size: int | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Tokens (size, length) and the tokens that follow them."""
        rng = np.random.default_rng(seed + 1)
        shape = (size or self.batch_size, self.length + 1)
        text = rng.integers(0, self.vocabulary, shape)
        return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])

    def flops(self) -> int:
        """Forward and both gradients of all linear layers and of attention.

        Attention counts the pairs that the causal mask lets through: about half.
        """
        tokens = self.batch_size * self.length
        d = self.width
        linear = tokens * (self.layers * 12 * d * d + d * self.vocabulary)
        pairs = self.batch_size * self.length * (self.length + 1) // 2
        attention = self.layers * 2 * pairs * d
        return 2 * 3 * (linear + attention)

    def jax_step(self, weights, batch):
        """Equinox and Optax."""
        from workloads import gpt_jax

        return gpt_jax.build(self, weights, batch)

    def torch_step(self, weights, batch):
        """PyTorch."""
        from workloads import gpt_torch

        return gpt_torch.build(self, weights, batch)

    def treadle_step(self, weights, batch):
        """Treadle."""
        from workloads import gpt_treadle

        return gpt_treadle.build(self, weights, batch)

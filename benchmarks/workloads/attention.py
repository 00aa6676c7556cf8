"""Causal self-attention, 4 heads of width 128, and a linear layer; up to 200 places."""

import numpy as np

from workloads import initial

BATCH = 16
LENGTH = 200
WIDTH = 128
HEADS = 4
CLASSES = 10


def weights(seed: int) -> initial.Weights:
    """Initial weights by path; `qkv` stacks query, key and value."""
    rng = np.random.default_rng(seed)
    result = initial.dense(rng, "attention.qkv", 3 * WIDTH, WIDTH)
    result |= initial.dense(rng, "attention.out", WIDTH, WIDTH)
    return result | initial.dense(rng, "out", CLASSES, WIDTH)


def batch(seed: int, size: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Sequences (size, LENGTH, WIDTH) and labels (size, LENGTH)."""
    rng = np.random.default_rng(seed + 1)
    x = rng.standard_normal((size, LENGTH, WIDTH)).astype(np.float32)
    return x, rng.integers(0, CLASSES, (size, LENGTH))


def jax_step(weights: initial.Weights, batch):
    """Equinox and Optax."""
    import equinox as eqx
    import jax
    from peers import jax_peer

    from workloads import gpt_jax

    class Model(eqx.Module):
        attention: gpt_jax.Attention
        out: eqx.nn.Linear

        def __init__(self, key):
            k1, k2 = jax.random.split(key)
            self.attention = gpt_jax.Attention(WIDTH, HEADS, key=k1)
            self.out = eqx.nn.Linear(WIDTH, CLASSES, key=k2)

        def __call__(self, x):
            return jax.vmap(self.out)(self.attention(x))

    model = jax_peer.fill(Model(jax.random.key(0)), weights)
    return jax_peer.TrainStep(model, batch)


def treadle_step(weights: initial.Weights, batch):
    """Treadle."""
    from peers import treadle_peer

    from treadle import nn, rng

    class Model(nn.Module):
        attention: nn.MultiHeadAttention
        out: nn.Linear

        def __init__(self, *, key):
            k1, k2 = rng.split(key)
            self.attention = nn.MultiHeadAttention(WIDTH, HEADS, key=k1)
            self.out = nn.Linear(WIDTH, CLASSES, key=k2)

        def __call__(self, x):
            return self.out(self.attention(x, causal=True))

    model = treadle_peer.fill(Model(key=rng.key(0)), weights)
    return treadle_peer.TrainStep(model, batch)

"""MLP 784-512-512-10, batch 128."""

import itertools

import numpy as np

from workloads import initial

BATCH = 128
SIZES = (784, 512, 512, 10)


def weights(seed: int) -> initial.Weights:
    """Initial weights by path."""
    rng = np.random.default_rng(seed)
    result = {}
    for i, (n_in, n_out) in enumerate(itertools.pairwise(SIZES)):
        result |= initial.dense(rng, f"layers.{i}", n_out, n_in)
    return result


def batch(seed: int, size: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Inputs (size, 784) and labels (size,)."""
    rng = np.random.default_rng(seed + 1)
    x = rng.standard_normal((size, SIZES[0])).astype(np.float32)
    return x, rng.integers(0, SIZES[-1], size)


def flops() -> int:
    """Forward, weight gradients, and input gradients of all layers but the first."""
    products = [a * b for a, b in itertools.pairwise(SIZES)]
    return 2 * BATCH * (3 * sum(products) - products[0])


def jax_step(weights: initial.Weights, batch):
    """Equinox and Optax."""
    import equinox as eqx
    import jax
    from peers import jax_peer

    class MLP(eqx.Module):
        layers: list[eqx.nn.Linear]

        def __init__(self, key):
            keys = jax.random.split(key, len(SIZES) - 1)
            pairs = itertools.pairwise(SIZES)
            self.layers = [
                eqx.nn.Linear(n_in, n_out, key=k)
                for (n_in, n_out), k in zip(pairs, keys, strict=True)
            ]

        def __call__(self, x):
            for layer in self.layers[:-1]:
                x = jax.nn.relu(layer(x))
            return self.layers[-1](x)

    model = jax_peer.fill(MLP(jax.random.key(0)), weights)
    return jax_peer.TrainStep(model, batch)


def torch_step(weights: initial.Weights, batch):
    """PyTorch."""
    import torch
    from peers import torch_peer
    from torch import nn

    class MLP(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(
                nn.Linear(n_in, n_out) for n_in, n_out in itertools.pairwise(SIZES)
            )

        def forward(self, x):
            for layer in self.layers[:-1]:
                x = torch.relu(layer(x))
            return self.layers[-1](x)

    return torch_peer.TrainStep(torch_peer.fill(MLP(), weights), batch)


def treadle_step(weights: initial.Weights, batch):
    """Treadle."""
    from peers import treadle_peer

    from treadle import nn, rng

    class MLP(nn.Module):
        layers: list[nn.Linear]

        def __init__(self, *, key):
            keys = rng.split(key, len(SIZES) - 1)
            pairs = itertools.pairwise(SIZES)
            self.layers = [
                nn.Linear(n_in, n_out, key=k)
                for (n_in, n_out), k in zip(pairs, keys, strict=True)
            ]

        def __call__(self, x):
            for layer in self.layers[:-1]:
                x = nn.relu(layer(x))
            return self.layers[-1](x)

    model = treadle_peer.fill(MLP(key=rng.key(0)), weights)
    return treadle_peer.TrainStep(model, batch)

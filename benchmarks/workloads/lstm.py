"""LSTM 32 -> 128 over 64 steps and a linear head, batch 32."""

import numpy as np

from workloads import initial

BATCH = 32
STEPS = 64
FEATURES = 32
HIDDEN = 128
CLASSES = 10


def weights(seed: int) -> initial.Weights:
    """Initial weights by path; the gates stand in the order i, f, g, o."""
    rng = np.random.default_rng(seed)
    cell_input = initial.dense(rng, "cell", 4 * HIDDEN, FEATURES)
    cell_hidden = initial.dense(rng, "cell", 4 * HIDDEN, HIDDEN)
    return {
        "cell.weight_ih": cell_input["cell.weight"],
        "cell.weight_hh": cell_hidden["cell.weight"],
        "cell.bias": cell_input["cell.bias"],
    } | initial.dense(rng, "out", CLASSES, HIDDEN)


def batch(seed: int, size: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Sequences (size, time, features) and labels (size,)."""
    rng = np.random.default_rng(seed + 1)
    x = rng.standard_normal((size, STEPS, FEATURES)).astype(np.float32)
    return x, rng.integers(0, CLASSES, size)


def flops() -> int:
    """Forward, weight gradients, and the gradients of the hidden states."""
    cell = 4 * HIDDEN * (2 * FEATURES + 3 * HIDDEN)
    return 2 * BATCH * (STEPS * cell + 3 * HIDDEN * CLASSES)


def jax_step(weights: initial.Weights, batch):
    """Equinox and Optax."""
    import equinox as eqx
    import jax
    import jax.numpy as jnp
    from peers import jax_peer

    class Classifier(eqx.Module):
        cell: eqx.nn.LSTMCell
        out: eqx.nn.Linear

        def __init__(self, key):
            k1, k2 = jax.random.split(key)
            self.cell = eqx.nn.LSTMCell(FEATURES, HIDDEN, key=k1)
            self.out = eqx.nn.Linear(HIDDEN, CLASSES, key=k2)

        def __call__(self, x):
            def advance(carry, frame):
                return self.cell(frame, carry), None

            start = (jnp.zeros(HIDDEN), jnp.zeros(HIDDEN))
            (hidden, _), _ = jax.lax.scan(advance, start, x)
            return self.out(hidden)

    model = jax_peer.fill(Classifier(jax.random.key(0)), weights)
    return jax_peer.TrainStep(model, batch)


def torch_step(weights: initial.Weights, batch):
    """PyTorch; its second bias is held at zero, as the other cells have one."""
    from peers import torch_peer
    from torch import nn

    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTM(FEATURES, HIDDEN, batch_first=True)
            self.cell.bias_hh_l0.requires_grad_(False)
            self.out = nn.Linear(HIDDEN, CLASSES)

        def forward(self, x):
            _, (hidden, _) = self.cell(x)
            return self.out(hidden[0])

    names = {
        "cell.weight_ih": "cell.weight_ih_l0",
        "cell.weight_hh": "cell.weight_hh_l0",
        "cell.bias": "cell.bias_ih_l0",
    }
    renamed = {names.get(name, name): value for name, value in weights.items()}
    renamed["cell.bias_hh_l0"] = np.zeros_like(weights["cell.bias"])
    return torch_peer.TrainStep(torch_peer.fill(Classifier(), renamed), batch)


def treadle_step(weights: initial.Weights, batch):
    """Treadle."""
    from peers import treadle_peer

    import treadle as td
    import treadle.numpy as tnp
    from treadle import nn, rng

    class Classifier(nn.Module):
        cell: nn.LSTMCell
        out: nn.Linear

        def __init__(self, *, key):
            k1, k2 = rng.split(key)
            self.cell = nn.LSTMCell(FEATURES, HIDDEN, key=k1)
            self.out = nn.Linear(HIDDEN, CLASSES, key=k2)

        def __call__(self, x):
            def advance(carry, frame):
                return self.cell(frame, carry), None

            zeros = tnp.zeros((x.shape[0], HIDDEN))
            (hidden, _), _ = td.scan(advance, (zeros, zeros), tnp.swapaxes(x, 0, 1))
            return self.out(hidden)

    model = treadle_peer.fill(Classifier(key=rng.key(0)), weights)
    return treadle_peer.TrainStep(model, batch)

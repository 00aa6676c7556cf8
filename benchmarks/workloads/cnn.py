"""Two 3x3 convolutions and two linear layers on 28x28 images, batch 64."""

import numpy as np

from workloads import initial

BATCH = 64
SIZE = 28
CHANNELS = (1, 32, 64)
FLAT = (SIZE // 4) ** 2 * CHANNELS[2]
HIDDEN = 128
CLASSES = 10


def weights(seed: int) -> initial.Weights:
    """Initial weights by path; `hidden` reads (channel, row, column) order."""
    rng = np.random.default_rng(seed)
    return (
        initial.dense(rng, "conv1", CHANNELS[1], CHANNELS[0], 3, 3)
        | initial.dense(rng, "conv2", CHANNELS[2], CHANNELS[1], 3, 3)
        | initial.dense(rng, "hidden", HIDDEN, FLAT)
        | initial.dense(rng, "out", CLASSES, HIDDEN)
    )


def batch(seed: int, size: int = BATCH) -> tuple[np.ndarray, np.ndarray]:
    """Images (size, 1, 28, 28) and labels (size,)."""
    rng = np.random.default_rng(seed + 1)
    x = rng.standard_normal((size, 1, SIZE, SIZE)).astype(np.float32)
    return x, rng.integers(0, CLASSES, size)


def flops() -> int:
    """Forward, weight gradients, and input gradients of all layers but the first."""
    conv1 = SIZE**2 * 9 * CHANNELS[0] * CHANNELS[1]
    conv2 = (SIZE // 2) ** 2 * 9 * CHANNELS[1] * CHANNELS[2]
    linear = FLAT * HIDDEN + HIDDEN * CLASSES
    return 2 * BATCH * (2 * conv1 + 3 * (conv2 + linear))


def jax_step(weights: initial.Weights, batch):
    """Equinox and Optax."""
    import equinox as eqx
    import jax
    from peers import jax_peer

    class CNN(eqx.Module):
        conv1: eqx.nn.Conv2d
        conv2: eqx.nn.Conv2d
        hidden: eqx.nn.Linear
        out: eqx.nn.Linear
        pool: eqx.nn.MaxPool2d

        def __init__(self, key):
            k1, k2, k3, k4 = jax.random.split(key, 4)
            self.conv1 = eqx.nn.Conv2d(1, 32, 3, padding="SAME", key=k1)
            self.conv2 = eqx.nn.Conv2d(32, 64, 3, padding="SAME", key=k2)
            self.hidden = eqx.nn.Linear(FLAT, HIDDEN, key=k3)
            self.out = eqx.nn.Linear(HIDDEN, CLASSES, key=k4)
            self.pool = eqx.nn.MaxPool2d(2, 2)

        def __call__(self, x):
            x = self.pool(jax.nn.relu(self.conv1(x)))
            x = self.pool(jax.nn.relu(self.conv2(x)))
            return self.out(jax.nn.relu(self.hidden(x.ravel())))

    model = jax_peer.fill(CNN(jax.random.key(0)), weights)
    return jax_peer.TrainStep(model, batch)


def torch_step(weights: initial.Weights, batch):
    """PyTorch."""
    import torch
    from peers import torch_peer
    from torch import nn
    from torch.nn import functional as F

    class CNN(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 32, 3, padding="same")
            self.conv2 = nn.Conv2d(32, 64, 3, padding="same")
            self.hidden = nn.Linear(FLAT, HIDDEN)
            self.out = nn.Linear(HIDDEN, CLASSES)

        def forward(self, x):
            x = F.max_pool2d(torch.relu(self.conv1(x)), 2)
            x = F.max_pool2d(torch.relu(self.conv2(x)), 2)
            return self.out(torch.relu(self.hidden(x.flatten(1))))

    # Channels last is the layout in which PyTorch convolves fastest on a CPU.
    model = torch_peer.fill(CNN(), weights).to(memory_format=torch.channels_last)
    step = torch_peer.TrainStep(model, batch)
    x, y = step.arguments
    step.arguments = [x.to(memory_format=torch.channels_last), y]
    return step


def treadle_step(weights: initial.Weights, batch):
    """Treadle; channels last."""
    from peers import treadle_peer

    from treadle import nn, rng

    class CNN(nn.Module):
        conv1: nn.Conv2d
        conv2: nn.Conv2d
        hidden: nn.Linear
        out: nn.Linear

        def __init__(self, *, key):
            k1, k2, k3, k4 = rng.split(key, 4)
            self.conv1 = nn.Conv2d(1, 32, 3, padding="SAME", key=k1)
            self.conv2 = nn.Conv2d(32, 64, 3, padding="SAME", key=k2)
            self.hidden = nn.Linear(FLAT, HIDDEN, key=k3)
            self.out = nn.Linear(HIDDEN, CLASSES, key=k4)

        def __call__(self, x):
            x = nn.max_pool(nn.relu(self.conv1(x)), 2)
            x = nn.max_pool(nn.relu(self.conv2(x)), 2)
            return self.out(nn.relu(self.hidden(x.reshape(x.shape[0], -1))))

    class Step(treadle_peer.TrainStep):
        def feed(self, batch):
            x, y = batch
            super().feed((x.transpose(0, 2, 3, 1), y))

    # Here `hidden` reads (row, column, channel) order.
    maps = weights["hidden.weight"].reshape(HIDDEN, CHANNELS[2], SIZE // 4, SIZE // 4)
    hidden = maps.transpose(0, 2, 3, 1).reshape(HIDDEN, FLAT)
    model = treadle_peer.fill(CNN(key=rng.key(0)), weights | {"hidden.weight": hidden})
    return Step(model, batch)

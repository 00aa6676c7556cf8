"""Treadle."""

import time

import numpy as np

import treadle as td
from peers import LEARNING_RATE, WEIGHT_DECAY
from treadle import nn, optim
from treadle import numpy as tnp

PARTS = ("query", "key", "value")


def fill(model: nn.Module, weights: dict[str, np.ndarray]) -> nn.Module:
    """`model` with every array replaced by the weight of its path."""
    unused = _apart(weights)

    def replace(path, leaf):
        name = ".".join(str(getattr(entry, "name", entry)) for entry in path)
        value = _channels_last(name, unused.pop(name))
        if value.shape != leaf.shape:
            raise ValueError(f"{name} has shape {leaf.shape}, not {value.shape}")
        return tnp.asarray(value)

    filled = td.tree.map_with_path(replace, model)
    if unused:
        raise ValueError(f"the model has no array {', '.join(unused)}")
    return filled


def _apart(weights: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights, with projections to query, key and value that are one for others
    (`qkv`) in three."""
    found = {}
    for name, value in weights.items():
        if ".qkv." in name:
            for part, third in zip(PARTS, np.split(value, 3), strict=True):
                found[name.replace(".qkv.", f".{part}.")] = third
        else:
            found[name] = value
    return found


def _channels_last(name: str, value: np.ndarray) -> np.ndarray:
    """The weight in Treadle's layout: input channels before output channels."""
    if value.ndim == 4:
        return value.transpose(2, 3, 1, 0)
    is_table = name in ("tokens.weight", "positions.weight")
    return value.T if value.ndim == 2 and not is_table else value


class TrainStep:
    """One jitted, donated step."""

    def __init__(self, model: nn.Module, batch):
        self.model = model
        self.feed(batch)
        optimizer = optim.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        self.state = optimizer.init(model)

        def train(model, state, x, y):
            def loss(model):
                return nn.cross_entropy(model(x), y).mean()

            value, grads = td.value_and_grad(loss)(model)
            updates, state = optimizer.update(grads, state, model)
            return optim.apply_updates(model, updates), state, value

        self.function = train
        self.train = td.jit(train, donate=("model", "state"))

    def feed(self, batch) -> None:
        """Train on `batch` from now on; labels and tokens are 32-bit."""
        self.batch = tuple(
            tnp.asarray(array if array.dtype.kind == "f" else array.astype(np.int32))
            for array in batch
        )

    @property
    def traces(self) -> int:
        """How often the step was traced."""
        return self.train.report().traces

    def compile_ms(self) -> float:
        """Milliseconds to trace, to compile, and to make a path for further calls (the
        second step does): what the first two steps take more than the third."""
        times = []
        for _ in range(3):
            start = time.perf_counter()
            float(self.step())
            times.append((time.perf_counter() - start) * 1e3)
        return times[0] + times[1] - 2 * times[2]

    def step(self):
        """Train once; the loss."""
        self.model, self.state, loss = self.train(self.model, self.state, *self.batch)
        return loss

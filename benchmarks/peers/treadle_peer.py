"""Treadle."""

import numpy as np
from workloads import initial

import treadle as td
from peers import LEARNING_RATE, WEIGHT_DECAY, after_two_steps
from peers.treadle_functions import TreadleFunctions
from treadle import nn, optim
from treadle import numpy as tnp

PARTS = ("query", "key", "value")


def fill(model: nn.Module, weights: dict[str, np.ndarray]) -> nn.Module:
    """`model` with every array replaced by the weight of its path."""
    unused = _apart(weights)

    def replace(path, leaf):
        name = ".".join(str(getattr(entry, "name", entry)) for entry in path)
        value = initial.channels_last(name, unused.pop(name))
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


def build(program, weights: initial.Weights, batch):
    """The step of a program of `workloads`."""
    params = {
        name: tnp.asarray(initial.channels_last(name, value))
        for name, value in weights.items()
    }
    functions = TreadleFunctions()
    loss = program.bound(functions)
    batch = tuple(functions.cast(x, program.dtype) for x in placed(batch))
    if program.trains:
        return LossStep(params, loss, batch)
    return CallStep(params, loss, batch, program.repeat)


def placed(batch) -> tuple:
    """The batch as arrays; labels and tokens are 32-bit."""
    return tuple(
        tnp.asarray(array if array.dtype.kind != "i" else array.astype(np.int32))
        for array in batch
    )


class LossStep:
    """One jitted, donated step that lessens `loss(model, *batch)`."""

    def __init__(self, model, loss, batch):
        self.model = model
        self.feed(batch)
        optimizer = optim.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        self.state = optimizer.init(model)

        def train(model, state, *batch):
            value, grads = td.value_and_grad(loss)(model, *batch)
            updates, state = optimizer.update(grads, state, model)
            return optim.apply_updates(model, updates), state, value

        self.function = train
        self.train = td.jit(train, donate=("model", "state"))

    def feed(self, batch) -> None:
        """Train on `batch` from now on."""
        self.batch = placed(batch)

    @property
    def traces(self) -> int:
        """How often the step was traced."""
        return self.train.report().traces

    def compile_ms(self) -> float:
        """Milliseconds to trace, to compile, and to make a path for further calls (the
        second step does)."""
        return after_two_steps(self)

    def step(self):
        """Train once; the loss."""
        self.model, self.state, loss = self.train(self.model, self.state, *self.batch)
        return loss


class TrainStep(LossStep):
    """The same for a model that maps a batch to logits."""

    def __init__(self, model: nn.Module, batch):
        super().__init__(
            model, lambda model, x, y: nn.cross_entropy(model(x), y).mean(), batch
        )


class CallStep:
    """Calls of a jitted function, one after the other."""

    def __init__(self, params, function, batch, repeat: int):
        self.params, self.batch, self.repeat = params, placed(batch), repeat
        self.function = td.jit(function)

    def compile_ms(self) -> float:
        """As that of a training step."""
        return after_two_steps(self)

    def results(self) -> list[np.ndarray]:
        """All that the function gives."""
        found = self.function(self.params, *self.batch)
        return [np.asarray(x) for x in td.tree.leaves(found)]

    def step(self) -> float:
        """Call as often as asked for; the first element of what the last one gave."""
        for _ in range(self.repeat):
            found = self.function(self.params, *self.batch)
        return float(np.asarray(td.tree.leaves(found)[0]).flat[0])

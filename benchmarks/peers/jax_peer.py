"""JAX with Equinox models and Optax."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from workloads import initial

from peers import LEARNING_RATE, WEIGHT_DECAY
from peers.jax_functions import JaxFunctions


def fill(model, weights: dict[str, np.ndarray]):
    """`model` with every array replaced by the weight of its path."""
    params, static = eqx.partition(model, eqx.is_array)

    def replace(path, leaf):
        # Equinox keeps a convolution's bias as (channels, 1, 1).
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        return jnp.asarray(weights[name].reshape(leaf.shape))

    filled = jax.tree_util.tree_map_with_path(replace, params)
    if len(jax.tree.leaves(filled)) != len(weights):
        raise ValueError("the model has fewer arrays than there are weights")
    return eqx.combine(filled, static)


def build(program, weights: initial.Weights, batch):
    """The step of a program of `workloads`."""
    params = {
        name: jnp.asarray(initial.channels_last(name, value))
        for name, value in weights.items()
    }
    functions = JaxFunctions()
    loss = program.bound(functions)
    batch = tuple(functions.cast(jnp.asarray(x), program.dtype) for x in batch)
    if program.trains:
        return LossStep(params, loss, batch)
    return CallStep(params, loss, batch, program.repeat)


def _seconds_to_compile(function, *arguments) -> float:
    jax.block_until_ready(arguments)
    start = time.perf_counter()
    function.lower(*arguments).compile()
    return time.perf_counter() - start


class LossStep:
    """One jitted, donated step that lessens `loss(params, *batch)`."""

    def __init__(self, params, loss, batch):
        self.params = params
        self.feed(batch)
        optimizer = optax.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        self.state = optimizer.init(params)

        def train(params, state, *batch):
            value, grads = jax.value_and_grad(loss)(params, *batch)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        self.train = jax.jit(train, donate_argnums=(0, 1))

    def feed(self, batch) -> None:
        """Train on `batch` from now on."""
        self.batch = tuple(jnp.asarray(array) for array in batch)

    def compile_ms(self) -> float:
        """Milliseconds to trace, lower and compile."""
        arguments = self.params, self.state, *self.batch
        return _seconds_to_compile(self.train, *arguments) * 1e3

    def step(self):
        """Train once; the loss."""
        self.params, self.state, loss = self.train(self.params, self.state, *self.batch)
        return loss


class TrainStep(LossStep):
    """The same for a model that maps one example to logits, as Equinox models do."""

    def __init__(self, model, batch):
        # The arrays alone cross the jit boundary: it is the cheapest way to call an
        # Equinox model, `eqx.filter_jit` splits the model again at each call.
        params, static = eqx.partition(model, eqx.is_array)

        def loss(params, x, y):
            logits = jax.vmap(eqx.combine(params, static))(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        super().__init__(params, loss, batch)


class CallStep:
    """Calls of a jitted function, one after the other."""

    def __init__(self, params, function, batch, repeat: int):
        self.params, self.repeat = params, repeat
        self.batch = tuple(jnp.asarray(array) for array in batch)
        self.function = jax.jit(function)

    def compile_ms(self) -> float:
        """Milliseconds to trace, lower and compile."""
        return _seconds_to_compile(self.function, self.params, *self.batch) * 1e3

    def results(self) -> list[np.ndarray]:
        """All that the function gives."""
        found = self.function(self.params, *self.batch)
        return [np.asarray(x) for x in jax.tree.leaves(found)]

    def step(self) -> float:
        """Call as often as asked for; the first element of what the last one gave."""
        for _ in range(self.repeat):
            found = self.function(self.params, *self.batch)
        return float(np.asarray(jax.tree.leaves(found)[0]).flat[0])

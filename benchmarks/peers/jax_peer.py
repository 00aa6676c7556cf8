"""JAX with Equinox models and Optax."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from peers import LEARNING_RATE, WEIGHT_DECAY


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


class TrainStep:
    """One jitted, donated step; the model maps one example, as Equinox models do."""

    def __init__(self, model, batch):
        # The arrays alone cross the jit boundary: it is the cheapest way to call an
        # Equinox model, `eqx.filter_jit` splits the model again at each call.
        self.params, static = eqx.partition(model, eqx.is_array)
        self.feed(batch)
        optimizer = optax.adamw(LEARNING_RATE, weight_decay=WEIGHT_DECAY)
        self.state = optimizer.init(self.params)

        def train(params, state, x, y):
            def loss(params):
                logits = jax.vmap(eqx.combine(params, static))(x)
                entropy = optax.softmax_cross_entropy_with_integer_labels(logits, y)
                return entropy.mean()

            value, grads = jax.value_and_grad(loss)(params)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        self.train = jax.jit(train, donate_argnums=(0, 1))

    def feed(self, batch) -> None:
        """Train on `batch` from now on."""
        self.batch = tuple(jnp.asarray(array) for array in batch)

    def compile_ms(self) -> float:
        """Milliseconds to trace, lower and compile."""
        jax.block_until_ready((self.params, self.state, self.batch))
        start = time.perf_counter()
        self.train.lower(self.params, self.state, *self.batch).compile()
        return (time.perf_counter() - start) * 1e3

    def step(self):
        """Train once; the loss."""
        self.params, self.state, loss = self.train(self.params, self.state, *self.batch)
        return loss

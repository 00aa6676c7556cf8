"""Differentially private training: each example's gradient is clipped, and noise added.

The gradients of single examples are `vmap(grad)`. That no example changes the sum of
the clipped gradients by more than the bound is what privacy rests on; it is checked.
(M. Abadi et al.: Deep Learning with Differential Privacy, 2016.)
"""

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng

BOUND, NOISE = 1.0, 0.8


def loss(model, x, y):
    return nn.cross_entropy(model(x), y).mean()


def example_gradients(model, x, y):
    """The gradient of each example: a model whose arrays have one axis more."""
    return td.vmap(td.grad(loss), in_axes=(None, 0, 0))(model, x, y)


def clipped(gradient):
    """The gradient, shortened to the bound."""
    factor = tnp.minimum(1, BOUND / (optim.global_norm(gradient) + 1e-12))
    return td.tree.map(lambda g: factor * g, gradient)


def clipped_sum(model, x, y):
    gradients = td.vmap(clipped)(example_gradients(model, x, y))
    return td.tree.map(lambda g: g.sum(0), gradients)


def private_gradient(model, x, y, key):
    total = clipped_sum(model, x, y)
    leaves, form = td.tree.flatten(total)
    keys = rng.split(key, len(leaves))
    noisy = [
        (g + NOISE * BOUND * rng.normal(k, g.shape)) / len(x)
        for g, k in zip(leaves, keys, strict=True)
    ]
    return form.unflatten(noisy)


def moons(key, n):
    """Two half circles, one inside the other's arms."""
    k1, k2 = rng.split(key)
    y = tnp.arange(n) % 2
    angle = tnp.pi * (rng.uniform(k1, (n,)) + y)
    x = tnp.stack([tnp.cos(angle) + y, tnp.sin(angle) + 0.4 * y], 1)
    return x + 0.1 * rng.normal(k2, (n, 2)), y


def main(epochs=30, batch=256):
    k1, k2, k3, k4 = rng.split(rng.key(0), 4)
    x, y = moons(k1, 2048)
    model = nn.MLP([2, 32, 32, 2], activation=nn.tanh, key=k2)

    first = clipped_sum(model, x[:64], y[:64])
    without = clipped_sum(model, x[1:64], y[1:64])
    change = optim.global_norm(td.tree.map(lambda a, b: a - b, first, without))
    mean = td.tree.map(lambda g: g.mean(0), example_gradients(model, x[:64], y[:64]))
    for a, b in zip(
        td.tree.leaves(mean),
        td.tree.leaves(td.grad(loss)(model, x[:64], y[:64])),
        strict=True,
    ):
        assert tnp.allclose(a, b, rtol=1e-4, atol=1e-6)
    print(f"one example changes the sum by {change:.3f}; the bound is {BOUND}")
    assert change <= BOUND * 1.001

    optimizer = optim.adam(5e-3)

    @td.jit
    def epoch(model, state, key):
        k1, k2 = rng.split(key)
        rows = rng.permutation(k1, len(x)).reshape(-1, batch)

        def step(carry, row):
            model, state = carry
            rows, key = row
            gradient = private_gradient(model, x[rows], y[rows], key)
            updates, state = optimizer.update(gradient, state, model)
            return (optim.apply_updates(model, updates), state), None

        keys = rng.split(k2, len(rows))
        return td.scan(step, (model, state), (rows, keys))[0]

    state = optimizer.init(model)
    for key in rng.split(k3, epochs):
        model, state = epoch(model, state, key)
    new_x, new_y = moons(k4, 1000)
    accuracy = (model(new_x).argmax(-1) == new_y).mean()
    print(f"accuracy after {epochs} private epochs: {accuracy:.1%}")
    assert accuracy > 0.9


if __name__ == "__main__":
    main()

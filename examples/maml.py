"""Model-agnostic meta-learning: weights from which one step of gradient descent learns.

Tasks are sine waves of any height and phase, given by ten points each. The gradient of
the weights goes through each task's own step: a gradient of a gradient, under `vmap`.
(C. Finn, P. Abbeel, S. Levine: Model-Agnostic Meta-Learning, 2017.)
"""

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng


def tasks(key, count, points=10):
    """Places and values of `count` sine waves: to learn from, and to be tested with."""
    k1, k2, k3 = rng.split(key, 3)
    height = rng.uniform(k1, (count, 1, 1), minval=0.5, maxval=3)
    phase = rng.uniform(k2, (count, 1, 1), minval=0, maxval=3)
    x = rng.uniform(k3, (count, 2 * points, 1), minval=-4, maxval=4)
    y = height * tnp.sin(x + phase)
    return (x[:, :points], y[:, :points]), (x[:, points:], y[:, points:])


def loss(model, x, y):
    return ((model(x) - y) ** 2).mean()


def adapted(model, x, y, steps=1, rate=0.05):
    """The model after a few steps on one task."""

    def step(model, _):
        slope = td.grad(loss)(model, x, y)
        return td.tree.map(lambda w, g: w - rate * g, model, slope), None

    return td.scan(step, model, length=steps)[0]


def meta_loss(model, known, wanted, steps=1):
    """The mean error on new points of tasks, after learning from known ones."""

    def one(x, y, new_x, new_y):
        return loss(adapted(model, x, y, steps), new_x, new_y)

    return td.vmap(one)(*known, *wanted).mean()


def main(rounds=2000):
    k1, k2, k3 = rng.split(rng.key(0), 3)
    model = nn.MLP([1, 40, 40, 1], activation=nn.tanh, key=k1)
    optimizer = optim.adam(2e-3)

    @td.jit
    def train(model, keys):
        def step(carry, key):
            model, state = carry
            value, slope = td.value_and_grad(meta_loss)(model, *tasks(key, 16))
            updates, state = optimizer.update(slope, state, model)
            return (optim.apply_updates(model, updates), state), value

        (model, _), path = td.scan(step, (model, optimizer.init(model)), keys)
        return model, path

    trained, path = train(model, rng.split(k2, rounds))
    known, new = tasks(k3, 200)
    before = [meta_loss(model, known, new, n).item() for n in (0, 1, 5)]
    after = [meta_loss(trained, known, new, n).item() for n in (0, 1, 5)]
    print("error on new tasks after 0, 1 and 5 steps of gradient descent")
    print("  from random weights ", *[f"{x:6.3f}" for x in before])
    print("  from learned weights", *[f"{x:6.3f}" for x in after])
    assert path[-100:].mean() < 0.5 * path[:100].mean()
    assert after[1] < 0.5 * after[0] and after[2] < 0.4 * before[2]


if __name__ == "__main__":
    main()

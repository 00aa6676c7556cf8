"""A layer that is defined by an equation: z = tanh(W z + U x + b).

`td.fixed_point` finds z, and differentiates the equation rather than the iterations, in
the memory of one call. The gradient is checked against that of many iterations.
(S. Bai, J. Z. Kolter, V. Koltun: Deep Equilibrium Models, 2019.)
"""

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng


class Equilibrium(nn.Module):
    w: td.Array
    inner: nn.Linear
    out: nn.Linear

    def __init__(self, width, *, key):
        k1, k2, k3 = rng.split(key, 3)
        self.w = rng.normal(k1, (width, width)) / width**0.5
        self.inner = nn.Linear(1, width, key=k2)
        self.out = nn.Linear(width, 1, key=k3)

    def step(self, z, x):
        # A norm below 1 makes it a contraction: there is one fixed point.
        norm = tnp.sqrt((self.w**2).sum())
        return tnp.tanh(z @ (0.9 * self.w / norm) + self.inner(x))

    def __call__(self, x):
        start = tnp.zeros((*x.shape[:-1], len(self.w)))
        z = td.fixed_point(lambda z: self.step(z, x), start, tolerance=1e-6)
        return self.out(z)

    def unrolled(self, x, steps=150):
        z = tnp.zeros((*x.shape[:-1], len(self.w)))
        z = td.fori_loop(0, steps, lambda i, z: self.step(z, x), z)
        return self.out(z)


def loss(model, x, y):
    return ((model(x) - y) ** 2).mean()


def unrolled_loss(model, x, y):
    return ((model.unrolled(x) - y) ** 2).mean()


def largest_difference(a, b):
    pairs = zip(td.tree.leaves(a), td.tree.leaves(b), strict=True)
    return max([abs(x - y).max().item() for x, y in pairs])


def main(rounds=400):
    model = Equilibrium(32, key=rng.key(0))
    x = tnp.linspace(-2, 2, 64)[:, None]
    y = tnp.sin(3 * x) * x

    ours = td.jit(td.grad(loss))(model, x, y)
    wanted = td.jit(td.grad(unrolled_loss))(model, x, y)
    error = largest_difference(ours, wanted)
    print(f"gradients of the equation and of 150 iterations differ by {error:.1e}")
    assert error < 1e-4

    optimizer = optim.adam(1e-2)

    @td.jit
    def train(model):
        def step(carry, _):
            model, state = carry
            value, slope = td.value_and_grad(loss)(model, x, y)
            updates, state = optimizer.update(slope, state, model)
            return (optim.apply_updates(model, updates), state), value

        init = model, optimizer.init(model)
        return td.scan(step, init, length=rounds)

    (model, _), path = train(model)
    print(f"squared error: {path[0]:.4f} before, {path[-1]:.5f} after {rounds} steps")
    assert path[-1] < 0.02 * path[0]


if __name__ == "__main__":
    main()

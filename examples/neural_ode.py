"""A neural differential equation: a network learns the field that draws a spiral.

`odeint` takes as many steps as the tolerances ask for; its gradient solves the adjoint
equation, backwards in time and without memory of the way. It is checked against the
gradient through the steps.
(R. T. Q. Chen et al.: Neural Ordinary Differential Equations, 2018.)
"""

import treadle as td
import treadle.numpy as tnp
from treadle import nn, optim, rng
from treadle.scipy.integrate import odeint

TIMES = tnp.linspace(0, 3, 16)


def spiral(y, t):
    """What is to be learned."""
    return y**3 @ tnp.array([[-0.1, 2.0], [-2.0, -0.1]])


def paths(field, starts, gradient="adjoint"):
    """Of all starts at once: arrays of (time, start, 2)."""
    return odeint(field, starts, TIMES, rtol=1e-4, atol=1e-5, gradient=gradient)


def loss(model, starts, wanted, gradient="adjoint"):
    found = paths(lambda y, t: model(y**3), starts, gradient)
    return abs(found - wanted).mean()


def main(rounds=300):
    k1, k2 = rng.split(rng.key(0))
    model = nn.MLP([2, 32, 2], activation=nn.tanh, key=k1)
    starts = rng.uniform(k2, (16, 2), minval=-1.5, maxval=1.5)
    wanted = td.jit(lambda y: paths(spiral, y))(starts)

    adjoint = td.jit(td.grad(loss))(model, starts, wanted)
    through = td.jit(td.grad(lambda m, y, z: loss(m, y, z, "marks")))(
        model, starts, wanted
    )
    size = optim.global_norm(through)
    error = optim.global_norm(td.tree.map(lambda a, b: a - b, adjoint, through)) / size
    print(f"the adjoint's gradient differs from the steps' by {error:.1e} of its norm")
    assert error < 1e-2

    optimizer = optim.adam(optim.cosine_decay_schedule(2e-2, rounds))

    @td.jit
    def train(model):
        def step(carry, _):
            model, state = carry
            value, slope = td.value_and_grad(loss)(model, starts, wanted)
            updates, state = optimizer.update(slope, state, model)
            return (optim.apply_updates(model, updates), state), value

        return td.scan(step, (model, optimizer.init(model)), length=rounds)

    (model, _), path = train(model)
    print(f"mean distance: {path[0]:.3f} before, {path[-1]:.4f} after {rounds} steps")
    new = tnp.array([[1.2, 0.3], [-0.4, 1.0]])
    ahead = paths(lambda y, t: model(y**3), new)
    error = abs(ahead - paths(spiral, new)).mean()
    print(f"from starts that it has not seen: {error:.4f}")
    assert path[-1] < 0.1 * path[0] and error < 0.1


if __name__ == "__main__":
    main()

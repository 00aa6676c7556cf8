"""Hamiltonian Monte Carlo: 64 chains sample a logistic regression's posterior at once.

The chains are one `vmap` of one function; the log density is any function with a
gradient. What they find is checked against the posterior summed up on a grid.
"""

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng

X = tnp.array([-2.0, -1.5, -1.0, -0.2, 0.1, 0.7, 1.1, 1.9])
Y = tnp.array([0, 0, 1, 0, 1, 0, 1, 1])


def log_density(w):
    """Of the slope and the offset, up to a constant: normal priors of width 2."""
    logits = w[0] * X + w[1]
    likelihood = tnp.where(Y == 1, nn.log_sigmoid(logits), nn.log_sigmoid(-logits))
    return likelihood.sum() - (w**2).sum() / 8


def leapfrog(log_density, q, p, step_size, steps):
    """Follows position and momentum for a time; the energy hardly changes."""
    force = td.grad(log_density)

    def step(carry, _):
        q, p = carry
        p = p + step_size / 2 * force(q)
        q = q + step_size * p
        p = p + step_size / 2 * force(q)
        return (q, p), None

    return td.scan(step, (q, p), length=steps)[0]


def chain(log_density, q, key, samples, step_size=0.3, steps=12):
    """Positions, and how often a proposal was taken."""

    def sample(q, key):
        k1, k2 = rng.split(key)
        p = rng.normal(k1, q.shape)
        new_q, new_p = leapfrog(log_density, q, p, step_size, steps)
        energy = (p**2).sum() / 2 - log_density(q)
        new_energy = (new_p**2).sum() / 2 - log_density(new_q)
        taken = tnp.log(rng.uniform(k2)) < energy - new_energy
        q = new_q if taken else q  # Python's `if`: each chain takes its own way
        return q, (q, taken)

    _, (path, taken) = td.scan(sample, q, rng.split(key, samples))
    return path, taken.mean()


def on_a_grid():
    """The posterior's mean and standard deviation."""
    axis = tnp.linspace(-8, 8, 321)
    grid = tnp.stack(tnp.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    weights = nn.softmax(td.vmap(log_density)(grid))
    mean = weights @ grid
    return mean, tnp.sqrt(weights @ (grid - mean) ** 2)


def main(chains=64, samples=600):
    k1, k2 = rng.split(rng.key(0))
    starts = 3 * rng.normal(k1, (chains, 2))
    keys = rng.split(k2, chains)

    @td.jit
    def run(starts, keys):
        return td.vmap(lambda q, k: chain(log_density, q, k, samples))(starts, keys)

    paths, taken = run(starts, keys)
    kept = paths[:, 100:].reshape(-1, 2)
    mean, deviation = on_a_grid()
    print(f"{chains} chains of {samples} samples; {taken.mean():.0%} were taken")
    print("posterior mean     ", kept.mean(0), "on a grid", mean)
    print("standard deviation ", kept.std(0), "on a grid", deviation)
    # The standard error is about 1 % of the deviation; chains are correlated a little.
    assert abs(kept.mean(0) - mean).max() < 0.06 * deviation.min()
    assert abs(kept.std(0) / deviation - 1).max() < 0.06
    assert 0.6 < taken.mean() <= 1


if __name__ == "__main__":
    main()

"""Gaussian process regression: a kernel's parameters are found by gradients.

The log marginal likelihood is differentiated through a Cholesky factorization and
maximised by BFGS. Its gradient is checked against the textbook's formula.
"""

import math

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.scipy.optimize import minimize


def kernel(params, x, z):
    """Squared exponential."""
    square = ((x[:, None, :] - z[None, :, :]) / tnp.exp(params["length"])) ** 2
    return tnp.exp(params["height"] - square.sum(-1) / 2)


def noisy(params, x):
    return kernel(params, x, x) + tnp.exp(params["noise"]) * tnp.eye(len(x))


def log_likelihood(params, x, y):
    factor = tnp.linalg.cholesky(noisy(params, x))
    half = tnp.linalg.solve_triangular(factor, y, lower=True)
    log_det = 2 * tnp.log(tnp.diagonal(factor)).sum()
    return -(half @ half + log_det + len(y) * math.log(2 * math.pi)) / 2


def predict(params, x, y, new):
    """Means and standard deviations of the function at other places."""
    factor = tnp.linalg.cholesky(noisy(params, x))
    cross = kernel(params, x, new)
    weights = tnp.linalg.cho_solve((factor, True), y)
    half = tnp.linalg.solve_triangular(factor, cross, lower=True)
    variance = tnp.exp(params["height"]) - (half**2).sum(0)
    return cross.T @ weights, tnp.sqrt(variance)


def gradient_by_hand(params, x, y):
    """½ tr((aa' - K⁻¹) dK/dp) for each parameter p, where Ka = y."""
    K = noisy(params, x)
    a = tnp.linalg.solve(K, y)
    inner = tnp.outer(a, a) - tnp.linalg.inv(K)
    slopes = td.jacfwd(noisy)(params, x)
    return td.tree.map(lambda s: tnp.einsum("ij,ij...->...", inner, s) / 2, slopes)


def truth(x):
    return tnp.sin(3 * x[:, 0]) * x[:, 1]


def main(n=100):
    k1, k2, k3 = rng.split(rng.key(0), 3)
    x = rng.uniform(k1, (n, 2), minval=-1, maxval=1)
    y = truth(x) + 0.1 * rng.normal(k2, (n,))
    start = {"length": tnp.zeros(2), "height": tnp.array(0.0), "noise": tnp.array(0.0)}

    slope = td.jit(td.grad(log_likelihood))(start, x, y)
    by_hand = gradient_by_hand(start, x, y)
    print("gradient at the start:", slope["length"], "by hand:", by_hand["length"])
    for a, b in zip(td.tree.leaves(slope), td.tree.leaves(by_hand), strict=True):
        assert tnp.allclose(a, b, rtol=1e-3, atol=1e-2)

    @td.jit
    def fit(x, y):
        return minimize(lambda p: -log_likelihood(p, x, y) / n, start, tol=1e-3)

    found = fit(x, y)
    lengths, noise = tnp.exp(found.x["length"]), tnp.exp(found.x["noise"] / 2)
    print(f"after {found.nit} steps: lengths {lengths}, noise {noise:.3f} (it is 0.1)")
    new = rng.uniform(k3, (1000, 2), minval=-1, maxval=1)
    mean, deviation = td.jit(predict)(found.x, x, y, new)
    errors = abs(mean - truth(new))
    inside = (errors < 2 * deviation).mean()
    print(f"mean error {errors.mean():.3f}; {inside:.0%} within 2 deviations")
    assert found.success and 0.07 < noise < 0.14
    assert errors.mean() < 0.06 and inside > 0.85


if __name__ == "__main__":
    main()

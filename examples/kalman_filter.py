"""A Kalman filter and smoother: a car is tracked by noisy measurements of its position.

The filter is a `scan`, so the likelihood of all measurements has a gradient, by which
the noises are found. It is checked against the joint normal distribution.
"""

import math

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.scipy.optimize import minimize

DT = 0.1
A = tnp.array([[1.0, DT], [0.0, 1.0]])  # position and speed
C = tnp.array([[1.0, 0.0]])  # the position is measured
DRIFT = tnp.array([[DT**3 / 3, DT**2 / 2], [DT**2 / 2, DT]])
MEAN, COV = tnp.zeros(2), tnp.eye(2)


def kalman_filter(log_noises, measured):
    """The log likelihood; means and covariances, before and after each measurement."""
    q, r = tnp.exp(log_noises)
    Q, R = q * DRIFT, r * tnp.eye(1)

    def step(carry, y):
        mean, cov = carry
        S = C @ cov @ C.T + R
        gain = tnp.linalg.solve(S, C @ cov).T
        error = y - C @ mean
        new_mean, new_cov = mean + gain @ error, cov - gain @ S @ gain.T
        _, log_det = tnp.linalg.slogdet(2 * math.pi * S)
        likelihood = -(error @ tnp.linalg.solve(S, error) + log_det) / 2
        after = A @ new_mean, A @ new_cov @ A.T + Q
        return after, (likelihood, mean, cov, new_mean, new_cov)

    _, (likelihoods, *moments) = td.scan(step, (MEAN, COV), measured)
    return likelihoods.sum(), moments


def smoother(moments):
    """Means that know of later measurements, too (Rauch, Tung and Striebel, 1965)."""
    before_mean, before_cov, mean, cov = moments

    def step(carry, row):
        mean, cov, next_mean, next_cov = row
        gain = tnp.linalg.solve(next_cov, A @ cov).T
        smooth = mean + gain @ (carry - next_mean)
        return smooth, smooth

    rows = mean[:-1], cov[:-1], before_mean[1:], before_cov[1:]
    _, means = td.scan(step, mean[-1], rows, reverse=True)
    return tnp.concatenate([means, mean[-1:]])


def joint(log_noises, measured):
    """The log likelihood, and the smoothed positions, without a filter: all positions
    together are normal, and so are all measurements."""
    n = len(measured)
    q, r = tnp.exp(log_noises)
    cov, blocks = COV, {}
    for i in range(n):
        block = cov
        for j in range(i, n):
            blocks[i, j], blocks[j, i] = block[0, 0], block[0, 0]
            block = A @ block
        cov = A @ cov @ A.T + q * DRIFT
    K = tnp.array([[blocks[i, j] for j in range(n)] for i in range(n)])
    S = K + r * tnp.eye(n)
    y = measured[:, 0]
    half = tnp.linalg.solve(S, y)
    _, log_det = tnp.linalg.slogdet(2 * math.pi * S)
    return -(y @ half + log_det) / 2, K @ half


def simulated(key, n, q=2.0, r=0.05):
    k1, k2, k3 = rng.split(key, 3)
    root = tnp.linalg.cholesky(q * DRIFT)

    def step(x, kick):
        return A @ x + root @ kick, x

    _, path = td.scan(step, rng.normal(k1, (2,)), rng.normal(k2, (n, 2)))
    return path, path[:, :1] + math.sqrt(r) * rng.normal(k3, (n, 1))


def main(n=400):
    path, measured = simulated(rng.key(1), n)

    @td.jit
    def fit(measured):
        return minimize(
            lambda noises: -kalman_filter(noises, measured)[0] / n,
            tnp.zeros(2),
            tol=1e-3,
        )

    found = fit(measured)
    print(f"noises {tnp.exp(found.x)}, simulated with 2 and 0.05; {found.message}")
    smooth = td.jit(lambda x, y: smoother(kalman_filter(x, y)[1]))(found.x, measured)
    raw = ((measured - path[:, :1]) ** 2).mean() ** 0.5
    error = ((smooth[:, 0] - path[:, 0]) ** 2).mean() ** 0.5
    print(f"error of the position: {raw:.3f} measured, {error:.3f} smoothed")

    few = measured[:12]
    wanted, positions = joint(found.x, few)
    likelihood, moments = kalman_filter(found.x, few)
    print(f"log likelihood of {len(few)}: {likelihood:.4f}; joint: {wanted:.4f}")
    assert abs(likelihood - wanted) < 1e-3
    assert abs(smoother(moments)[:, 0] - positions).max() < 1e-3
    assert abs(tnp.exp(found.x) / tnp.array([2.0, 0.05]) - 1).max() < 0.5
    assert error < 0.5 * raw


if __name__ == "__main__":
    main()

"""L-BFGS fits a regression, and a gradient through its solution finds the penalty.

`minimize` has the derivative of the minimum, whatever the steps to it were: so the
error on other data has a gradient in the penalty, and is minimised in turn. Both are
checked: the minimum by its gradient, its derivative by the formula for least squares.
"""

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.scipy.optimize import minimize


def data(key, n, features=30):
    """Labels that depend on the first few of many features."""
    k1, k2 = rng.split(key)
    x = rng.normal(k1, (n, features))
    truth = tnp.where(tnp.arange(features) < 5, 1.5, 0.0)
    return x, (rng.uniform(k2, (n,)) < nn.sigmoid(x @ truth)).astype(float)


def error(params, x, y):
    logits = x @ params["w"] + params["b"]
    return (nn.softplus(logits) - y * logits).mean()


def fitted(log_penalty, x, y):
    """The regression with a penalty on its weights."""

    def loss(params):
        return error(params, x, y) + tnp.exp(log_penalty) * (params["w"] ** 2).sum()

    start = {"w": tnp.zeros(x.shape[1]), "b": tnp.array(0.0)}
    return minimize(loss, start, method="L-BFGS", tol=1e-5)


def ridge(log_penalty, x, y):
    """Least squares, for which there is a formula."""
    penalty = tnp.exp(log_penalty)

    def loss(w):
        return ((x @ w - y) ** 2).sum() / 2 + penalty * (w @ w) / 2

    found = minimize(loss, tnp.zeros(x.shape[1]), method="L-BFGS", tol=1e-3).x
    wanted = tnp.linalg.solve(x.T @ x + penalty * tnp.eye(x.shape[1]), x.T @ y)
    return found, wanted


def main():
    k1, k2, k3 = rng.split(rng.key(0), 3)
    x, y = data(k1, 100)
    other_x, other_y = data(k2, 1000)
    test_x, test_y = data(k3, 1000)

    found, wanted = ridge(2.0, x, y)
    slope, by_formula = td.jit(td.jacfwd(lambda a: ridge(a, x, y)))(2.0)
    print(f"least squares differ from the formula by {abs(found - wanted).max():.1e}")
    print(f"their derivatives by {abs(slope - by_formula).max():.1e}")
    assert tnp.allclose(found, wanted, atol=1e-3)
    assert tnp.allclose(slope, by_formula, atol=1e-3)

    def other_error(log_penalty):
        return error(fitted(log_penalty, x, y).x, other_x, other_y)

    best = td.jit(lambda: minimize(other_error, tnp.array(-9.0), tol=1e-3))()
    before, after = (td.jit(fitted)(a, x, y) for a in (-9.0, best.x))
    print(f"penalty {tnp.exp(best.x):.4f} after {best.nit} steps; {best.message}")
    print(f"the last of the fits took {after.nit} steps of L-BFGS; {after.message}")
    errors = [error(r.x, test_x, test_y) for r in (before, after)]
    print(f"error on test data: {errors[0]:.4f} before, {errors[1]:.4f} after")
    assert abs(after.jac["w"]).max() < 1e-4 and best.success
    assert errors[1] < 0.9 * errors[0]


if __name__ == "__main__":
    main()

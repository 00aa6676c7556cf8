"""Minima: against SciPy's, and their derivatives against closed forms."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

import treadle as td
import treadle.numpy as tnp
from treadle.scipy.optimize import minimize

METHODS = ("BFGS", "L-BFGS")


def rosenbrock(np: Any) -> Any:
    return lambda x: np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(np: Any) -> Any:
    return lambda x: (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def beale(np: Any) -> Any:
    powers = (1, 2, 3)
    sides = (1.5, 2.25, 2.625)
    return lambda x: sum(
        [(s - x[0] + x[0] * x[1] ** p) ** 2 for p, s in zip(powers, sides, strict=True)]
    )


def ellipse(np: Any) -> Any:
    return lambda x: np.sum(np.arange(1, 41) ** 2 * (x - 1) ** 2)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("function", "start"),
    [
        (rosenbrock, np.zeros(2)),
        (rosenbrock, np.zeros(10)),
        (himmelblau, np.zeros(2)),
        (beale, np.array([1.0, 1.0])),
        (ellipse, np.zeros(40)),
    ],
)
def test_minima_in_about_as_few_evaluations_as_scipy(
    function: Any, start: np.ndarray, method: str
) -> None:
    found = td.jit(lambda x: minimize(function(tnp), x, method=method))(start)
    with jax.enable_x64(True):
        gradient = jax.jit(jax.grad(function(jnp)))
        theirs = scipy.optimize.minimize(
            function(np),
            start,
            jac=lambda x: np.asarray(gradient(x)),
            method={"L-BFGS": "L-BFGS-B"}.get(method, method),
        )
        slope = gradient(np.asarray(found.x))
    assert found.success and found.status == 0 and theirs.success
    np.testing.assert_allclose(found.x, theirs.x, atol=2e-4)
    np.testing.assert_allclose(found.jac, slope, rtol=1e-6, atol=1e-9)
    assert np.abs(np.asarray(found.jac)).max() <= 1e-5
    assert found.njev == found.nfev <= 2 * theirs.nfev + 5


def test_the_inverse_of_the_hessian_is_found() -> None:
    matrix = np.array([[3.0, 1.0], [1.0, 2.0]])
    found = minimize(lambda x: x @ matrix @ x / 2 - x[0], np.array([3.0, -4.0]))
    np.testing.assert_allclose(found.hess_inv, np.linalg.inv(matrix), rtol=1e-3)
    assert minimize(lambda x: x @ x, np.ones(2), method="L-BFGS").hess_inv is None


@pytest.mark.parametrize("method", METHODS)
def test_derivatives_are_those_of_the_minimum(method: str) -> None:
    """x minimises a cosh(x) - b x where sinh(x) = b / a."""

    def lowest(a: Any, b: Any) -> Any:
        def fun(x: Any, a: Any) -> Any:
            return a * tnp.cosh(x["u"]) - b * x["u"] + tnp.sum((x["v"] - a) ** 2)

        start = {"u": np.array(0.3), "v": np.zeros(2)}
        found = minimize(fun, start, (a,), method=method, tol=1e-9)
        return found.x["u"] + found.x["v"].sum(), found.fun

    a, b = np.array(2.0), np.array(3.0)
    (x, fun), pullback = td.vjp(td.jit(lowest), a, b)
    u = np.arcsinh(b / a)
    root = np.sqrt(a**2 + b**2)
    np.testing.assert_allclose(x, u + 2 * a, rtol=1e-8)
    np.testing.assert_allclose(fun, root - b * u, rtol=1e-8)
    to_x = pullback((np.array(1.0), np.array(0.0)))
    np.testing.assert_allclose(to_x, [2 - b / a / root, 1 / root], rtol=1e-5)
    to_fun = pullback((np.array(0.0), np.array(1.0)))
    np.testing.assert_allclose(to_fun, [root / a, -u], rtol=1e-5, atol=1e-7)
    td.check_grads(
        td.jit(lambda a: lowest(a, b)[0]), (a,), order=2, rtol=1e-3, atol=1e-3
    )


def test_vmap_goes_its_own_way_for_each_example() -> None:
    starts = np.array([[0.0, 0.0], [-3.0, 3.0], [3.0, -2.0], [-4.0, -4.0]])
    found = td.jit(td.vmap(lambda x: minimize(himmelblau(tnp), x)))(starts)
    alone = [td.jit(lambda x: minimize(himmelblau(tnp), x))(x) for x in starts]
    for row, one in zip(np.asarray(found.x), alone, strict=True):
        np.testing.assert_allclose(row, one.x, atol=1e-5)
    np.testing.assert_allclose(found.fun, 0, atol=1e-8)
    np.testing.assert_array_equal(found.nit, [int(one.nit) for one in alone])


def test_what_went_wrong_is_said() -> None:
    steps = minimize(rosenbrock(tnp), tnp.zeros(5), options={"maxiter": 3})
    assert not steps.success and steps.nit == 3 and "maxiter" in steps.message
    kink = minimize(lambda x: tnp.sum(tnp.abs(x)) + x[0] * 0.3, tnp.array([1.0, 2.0]))
    assert not kink.success and "not smooth" in kink.message
    endless = td.jit(lambda x: minimize(tnp.sum, x))(tnp.zeros(2))
    assert not endless.success and endless.status != 0
    nowhere = minimize(lambda x: tnp.sum(tnp.log(x)), -tnp.ones(2))
    assert nowhere.status == 3 and "not finite" in nowhere.message
    done = minimize(lambda x: tnp.sum(x * x), tnp.zeros(2))
    assert done.success and done.nit == 0 and done.nfev == 1


def test_a_step_out_of_the_domain_is_taken_back() -> None:
    found = td.jit(lambda x: minimize(lambda x: tnp.sum(x - tnp.log(x)), x))(
        np.array([3.9, 0.01])
    )
    assert found.success
    np.testing.assert_allclose(found.x, [1.0, 1.0], atol=1e-4)


def test_errors_name_what_is_wrong() -> None:
    x = tnp.ones(2)
    with pytest.raises(ValueError, match="'newton' is neither 'BFGS' nor 'L-BFGS'"):
        minimize(tnp.sum, x, method="newton")
    with pytest.raises(TypeError, match="no option 'max_iter'"):
        minimize(tnp.sum, x, options={"max_iter": 3})
    with pytest.raises(TypeError, match=r"must give a real scalar, got f32\[2\]"):
        minimize(lambda x: x, x)
    with pytest.raises(TypeError, match="imaginary part as two arrays"):
        minimize(lambda x: tnp.sum(tnp.abs(x)), x * 1j)
    with pytest.raises(TypeError, match="floating"):
        minimize(lambda x: tnp.sum(x) * 1.0, tnp.ones(2, int))

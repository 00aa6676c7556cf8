"""Differential equations: against SciPy's and JAX's solvers, and closed forms."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
import scipy.integrate
from jax.experimental.ode import odeint as jax_odeint

import treadle as td
import treadle.numpy as tnp
from treadle.errors import StructureError
from treadle.scipy.integrate import odeint

TIMES = np.linspace(0.0, 6.0, 9)
START = np.array([2.0, 0.0])
WEIGHTS = np.random.default_rng(1).normal(size=(9, 2))


def oscillator(np: Any) -> Any:
    """Van der Pol's."""
    return lambda y, t, mu: np.stack([y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]])


def exact(start: np.ndarray, times: np.ndarray, mu: float) -> np.ndarray:
    """To nearly all digits."""
    field = oscillator(np)
    span = times[0], times[-1]
    return scipy.integrate.solve_ivp(
        lambda t, y: field(y, t, mu),
        span,
        start,
        method="DOP853",
        t_eval=times,
        rtol=1e-12,
        atol=1e-12,
    ).y.T


def test_values_are_as_near_as_jax_comes() -> None:
    solve = td.jit(lambda y, t, mu: odeint(oscillator(tnp), y, t, mu))
    wanted = exact(START, TIMES, 2.0)
    with jax.enable_x64(True):
        theirs = jax_odeint(oscillator(jax.numpy), START, TIMES, 2.0)
    ours = np.asarray(solve(START, TIMES, 2.0))
    assert ours.dtype == np.float64
    least = np.abs(np.asarray(theirs) - wanted).max()
    assert np.abs(ours - wanted).max() < 3 * least < 1e-5
    back = solve(wanted[2], TIMES[2::-1].copy(), 2.0)
    np.testing.assert_allclose(back, wanted[2::-1], atol=1e-5)


@pytest.mark.parametrize("rtol", [1e-3, 1e-6, 1e-9])
def test_errors_follow_the_tolerances(rtol: float) -> None:
    solve = td.jit(
        lambda y, t: odeint(oscillator(tnp), y, t, 2.0, rtol=rtol, atol=rtol)
    )
    error = np.abs(np.asarray(solve(START, TIMES)) - exact(START, TIMES, 2.0)).max()
    assert rtol / 100 < error < 300 * rtol


@pytest.mark.parametrize("gradient", ["adjoint", "marks", "steps"])
def test_gradients(gradient: str) -> None:
    def loss(np: Any, solve: Any, **kwargs: Any) -> Any:
        field = oscillator(np)
        return lambda y, t, mu: (WEIGHTS * solve(field, y, t, mu, **kwargs)).sum()

    tight = {"rtol": 1e-10, "atol": 1e-10}
    mu = np.float64(2.0)
    found = td.jit(
        td.grad(loss(tnp, odeint, gradient=gradient, mxstep=400, **tight), (0, 1, 2))
    )(START, TIMES, mu)
    with jax.enable_x64(True):
        wanted = jax.grad(loss(jax.numpy, jax_odeint, **tight), (0, 1, 2))(
            START, TIMES, mu
        )
    for f, w in zip(found, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=1e-6, atol=1e-7)


def test_forward_mode_goes_through_the_steps() -> None:
    def end(rate: Any) -> Any:
        field = lambda y, t: -rate * y  # noqa: E731
        return odeint(field, 1.0, tnp.array([0.0, 2.0]), gradient="steps")[-1]

    out, tangent = td.jit(lambda r: td.jvp(end, (r,), (1.0,)))(0.5)
    np.testing.assert_allclose([out, tangent], [np.exp(-1), -2 * np.exp(-1)], rtol=1e-4)


@pytest.mark.parametrize("gradient", ["adjoint", "steps"])
def test_second_derivatives_of_what_func_closes_over(gradient: str) -> None:
    times = np.array([0.0, 0.7, 1.3])

    def end(rate: Any) -> Any:
        field = lambda y, t: rate * y  # noqa: E731
        return odeint(field, 1.0 + 0 * rate, times, gradient=gradient, mxstep=64)[-1]

    found = td.jit(td.grad(td.grad(end)))(np.array(0.4))
    np.testing.assert_allclose(found, 1.3**2 * np.exp(1.3 * 0.4), rtol=1e-6)


def test_pytrees_and_complex_numbers() -> None:
    """A spin in a field along z; its phase is counted beside it."""

    def field(state: Any, t: Any, omega: Any) -> Any:
        spin = state["spin"]
        turn = tnp.array([-0.5j, 0.5j]) * omega
        return {"spin": turn * spin, "phase": omega * tnp.cos(t)}

    @td.jit
    def end(omega: Any) -> Any:
        start = {"spin": tnp.array([1.0, 1.0j]), "phase": 0.0}
        found = odeint(field, start, tnp.array([0.0, 1.0]), omega)
        return td.tree.map(lambda x: x[-1], found)

    out = end(2.0)
    assert out["spin"].dtype == tnp.complex64 and out["phase"].dtype == tnp.float32
    wanted = np.exp(np.array([-1j, 1j])) * np.array([1, 1j])
    np.testing.assert_allclose(out["spin"], wanted, rtol=1e-4)
    np.testing.assert_allclose(out["phase"], 2 * np.sin(1), rtol=1e-4)
    slope = td.jit(td.grad(lambda w: tnp.real(end(w)["spin"][0]) + end(w)["phase"]))
    np.testing.assert_allclose(slope(2.0), np.sin(1.0) * 0.5, rtol=1e-3)


def test_vmap_takes_each_example_its_own_steps() -> None:
    def end(rate: Any) -> Any:
        return odeint(lambda y, t: -rate * y, 1.0, tnp.array([0.0, 1.0]))[-1]

    rates = tnp.array([0.1, 3.0, 30.0])
    found = td.jit(td.vmap(td.value_and_grad(end)))(rates)
    np.testing.assert_allclose(found[0], np.exp(-np.asarray(rates)), atol=1e-4)
    np.testing.assert_allclose(found[1], -np.exp(-np.asarray(rates)), atol=1e-4)
    alone = [td.jit(end)(r) for r in rates]
    np.testing.assert_allclose(found[0], np.array(alone), rtol=1e-5, atol=1e-7)


def test_eager_equals_compiled() -> None:
    field = oscillator(tnp)
    eager = odeint(field, START, TIMES[:3], 1.0, rtol=1e-4)
    compiled = td.jit(lambda y: odeint(field, y, TIMES[:3], 1.0, rtol=1e-4))(START)
    np.testing.assert_allclose(eager, compiled, rtol=1e-9)


def test_what_is_not_reached_is_nan() -> None:
    times = tnp.array([0.0, 0.5, 2.0, 3.0])
    blown_up = td.jit(lambda: odeint(lambda y, t: y * y, 1.0, times))()
    np.testing.assert_allclose(blown_up[:2], [1.0, 2.0], rtol=1e-4)
    assert np.isnan(blown_up[2:]).all()
    few = td.jit(lambda: odeint(lambda y, t: -y, 1.0, times, hmax=0.01, mxstep=70))()
    np.testing.assert_allclose(few[:2], np.exp([0.0, -0.5]), rtol=1e-4)
    assert np.isnan(few[2:]).all()
    assert odeint(lambda y, t: -y, 1.0, tnp.array([0.0])).shape == (1,)


def test_errors_name_what_is_wrong() -> None:
    times = tnp.array([0.0, 1.0])
    with pytest.raises(StructureError, match="must give what y0 is"):
        odeint(lambda y, t: (y, y), 1.0, times)
    with pytest.raises(TypeError, match=r"must give what y0 is"):
        odeint(lambda y, t: tnp.stack([y, y]), 1.0, times)
    with pytest.raises(TypeError, match="floating or complex"):
        odeint(lambda y, t: y, tnp.array([1, 2]), times)
    with pytest.raises(ValueError, match="vector of times"):
        odeint(lambda y, t: y, 1.0, 3.0)
    with pytest.raises(ValueError, match="'backwards' is none of"):
        odeint(lambda y, t: y, 1.0, times, gradient="backwards")
    with pytest.raises(ValueError, match="mxstep=0"):
        odeint(lambda y, t: y, 1.0, times, mxstep=0)

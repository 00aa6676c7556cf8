"""The distributions made of simpler ones: JAX's numbers, their laws, their errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from scipy import stats

import treadle as td
from tests.rng.test_distributions import KEY, OTHER, exact, near
from treadle import rng

SCALES = np.float32([0.5, 1, 3])
ROWS = (40, 3)
SIGNED = ("double_sided_maxwell", "generalized_normal", "ball")


@pytest.mark.parametrize(
    ("name", "args", "shape"),
    [
        ("lognormal", (0.7,), (30,)),
        ("lognormal", (SCALES,), ROWS),
        ("maxwell", (), (30,)),
        ("double_sided_maxwell", (0.5, 2.0), (30,)),
        ("pareto", (2.5,), (30,)),
        ("pareto", (SCALES,), ROWS),
        ("rayleigh", (2.0,), (30,)),
        ("rayleigh", (SCALES,), ROWS),
        ("triangular", (-1.0, 0.5, 2.0), (30,)),
        ("triangular", (0.0, 0.0, SCALES), ROWS),
        ("wald", (1.5,), (30,)),
        ("wald", (SCALES,), ROWS),
        ("weibull_min", (2.0, 1.5), (30,)),
        ("weibull_min", (1.0, SCALES), ROWS),
        ("chisquare", (3.0,), (30,)),
        ("chisquare", (SCALES,), ROWS),
        ("f", (3.0, 5.0), (30,)),
        ("t", (4.0,), (30,)),
        ("t", (SCALES,), ROWS),
        ("generalized_normal", (1.5,), (30,)),
        ("ball", (3,), (20,)),
        ("ball", (4, 1.5), (5, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_numbers_are_those_of_jax(
    name: str, args: tuple, shape: tuple[int, ...], dtype: str
) -> None:
    # JAX then tosses coins of 64 bits, so that signs differ.
    plain = dtype == "float32" or name not in SIGNED
    with jax.enable_x64(dtype == "float64"):
        expected = getattr(jax.random, name)(OTHER, *args, shape=shape, dtype=dtype)
        found = getattr(rng, name)(KEY, *args, shape=shape, dtype=dtype)
        middle = 0.5 if name == "double_sided_maxwell" else 0.0
        sizes = (x if plain else abs(x - middle) for x in (found, expected))
        near(*sizes, 2e-5, 2e-6)
        compiled = td.jit(
            lambda key: getattr(rng, name)(key, *args, shape=shape, dtype=dtype)
        )
        near(compiled(KEY), found, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_lengths_of_halves_are_finite(dtype: str) -> None:
    found = np.asarray(rng.rayleigh(KEY, 1.0, (5000,), dtype)).astype("float32")
    assert np.isfinite(found).all()
    assert stats.kstest(found[found < 2], stats.rayleigh.cdf).statistic < 0.2


@pytest.mark.parametrize(
    "name", ["lognormal", "pareto", "rayleigh", "wald", "chisquare", "t"]
)
def test_shapes_are_those_of_parameters(name: str) -> None:
    assert getattr(rng, name)(KEY, SCALES).shape == (3,)
    with pytest.raises(ValueError, match=rf"{name}: parameters of shape \(3,\)"):
        getattr(rng, name)(KEY, SCALES, (4,))


@pytest.mark.parametrize(
    ("n", "p"),
    [(10, 0.3), (1, 0.5), (100, 0.02), (40, 0.9), (1000, 0.4), (0, 0.5), (7, 0.0)],
)
def test_binomial_is_exact(n: int, p: float) -> None:
    exact(rng.binomial(KEY, n, p, (60,)), jax.random.binomial(OTHER, n, p, shape=(60,)))
    assert (rng.binomial(KEY, n, 1.0, (3,)) == n).all()


def test_binomial_of_what_is_no_number() -> None:
    n = np.float32([-1, np.nan, np.inf, 5, 5, 5.7])
    p = np.float32([0.5, 0.5, 0.5, -0.1, 1.5, 0.5])
    found = rng.binomial(KEY, n, p)
    exact(found, jax.random.binomial(OTHER, n, p))
    assert (
        np.isnan(found[:2]).all() and found[2] == np.inf and np.isnan(found[3:5]).all()
    )


def test_multinomial() -> None:
    p = np.float32([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    found = rng.multinomial(KEY, np.float32([20, 300]), p)
    exact(found, jax.random.multinomial(OTHER, np.float32([20, 300]), p))
    assert (found.sum(-1) == np.float32([20, 300])).all() and (found[1, 2] == 0).item()
    many = rng.multinomial(KEY, 50, p[0], (2000,))
    assert many.shape == (2000, 3) and (many.sum(-1) == 50).all()
    np.testing.assert_allclose(many.mean(0), 50 * p[0], rtol=0.05)
    with pytest.raises(ValueError, match="multinomial: p is a vector"):
        rng.multinomial(KEY, 5, 0.5)


@pytest.mark.parametrize("p", [0.01, 0.3, 0.999])
def test_geometric_is_exact(p: float) -> None:
    p = np.float32(p)
    exact(rng.geometric(KEY, p, (60,)), jax.random.geometric(OTHER, p, (60,)))
    assert rng.geometric(KEY, p, (60,)).min() >= 1


LAWS: dict[str, tuple[Callable[..., Any], Any]] = {
    "binomial, few": (lambda k, s: rng.binomial(k, 12, 0.3, s), stats.binom(12, 0.3)),
    "binomial, many": (
        lambda k, s: rng.binomial(k, 400, 0.7, s),
        stats.binom(400, 0.7),
    ),
    "geometric": (lambda k, s: rng.geometric(k, 0.2, s), stats.geom(0.2)),
    "wald": (lambda k, s: rng.wald(k, 0.8, s), stats.invgauss(0.8)),
    "t": (lambda k, s: rng.t(k, 5.0, s), stats.t(5)),
    "f": (lambda k, s: rng.f(k, 6.0, 9.0, s), stats.f(6, 9)),
    "chisquare": (lambda k, s: rng.chisquare(k, 3.0, s), stats.chi2(3)),
    "weibull_min": (lambda k, s: rng.weibull_min(k, 1.0, 2.0, s), stats.weibull_min(2)),
    "triangular": (lambda k, s: rng.triangular(k, 0, 0.3, 1, s), stats.triang(0.3)),
    "maxwell": (rng.maxwell, stats.maxwell),
    "rayleigh": (lambda k, s: rng.rayleigh(k, 1.0, s), stats.rayleigh),
    "pareto": (lambda k, s: rng.pareto(k, 3.0, s), stats.pareto(3)),
    "lognormal": (lambda k, s: rng.lognormal(k, 0.5, s), stats.lognorm(0.5)),
    "generalized_normal": (
        lambda k, s: rng.generalized_normal(k, 1.5, s),
        stats.gennorm(1.5),
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_samples_follow_their_law(name: str) -> None:
    draw, law = LAWS[name]
    x = np.asarray(draw(rng.key(7), (20_000,)), np.float64)
    # The largest distance between the distribution functions, at points between the
    # numbers of discrete ones.
    points = np.quantile(x, np.linspace(0.02, 0.98, 60)) + 1e-9
    found = np.searchsorted(np.sort(x), points, side="right") / x.size
    assert np.abs(found - law.cdf(points)).max() < 0.015


def test_vectors_of_the_ball_fill_it() -> None:
    x = np.asarray(rng.ball(KEY, 3, shape=(5000,)), np.float64)
    radius = np.sqrt((x * x).sum(-1))
    assert radius.max() <= 1
    # Volumes grow with the third power.
    assert np.abs(np.sort(radius**3) - np.linspace(0, 1, 5000)).max() < 0.03
    with pytest.raises(ValueError, match="ball: d is -1"):
        rng.ball(KEY, -1)


COV = np.float32([[2, 0.3, 0.1], [0.3, 0.5, -0.2], [0.1, -0.2, 1.0]])
MEAN = np.float32([1, -2, 0.5])


@pytest.mark.parametrize("shape", [None, (5,), (2, 3)])
def test_multivariate_normal(shape: Any) -> None:
    near(
        rng.multivariate_normal(KEY, MEAN, COV, shape),
        jax.random.multivariate_normal(OTHER, MEAN, COV, shape),
        1e-5,
    )


@pytest.mark.parametrize("method", ["cholesky", "eigh", "svd"])
def test_covariance_of_multivariate_normal(method: str) -> None:
    x = rng.multivariate_normal(KEY, MEAN, COV, (50_000,), method=method)
    np.testing.assert_allclose(np.cov(np.asarray(x).T), COV, atol=0.03)
    np.testing.assert_allclose(np.asarray(x).mean(0), MEAN, atol=0.03)


def test_multivariate_normal_batches_and_differentiates() -> None:
    means = np.stack([MEAN, 2 * MEAN])
    x = rng.multivariate_normal(KEY, means, np.stack([COV, COV]))
    assert x.shape == (2, 3)

    def loss(module: Any, key: Any) -> Callable:
        return lambda m, c: (module.multivariate_normal(key, m, c) ** 2).sum()

    found = td.grad(loss(rng, KEY), (0, 1))(MEAN, COV)
    expected = jax.grad(loss(jax.random, OTHER), (0, 1))(MEAN, COV)
    for a, b in zip(found, expected, strict=True):
        near(a, b, 1e-4, 1e-5)


def test_wrong_covariances() -> None:
    with pytest.raises(ValueError, match=r"cov \(..., n, n\), got \(3,\) and \(2, 2\)"):
        rng.multivariate_normal(KEY, MEAN, COV[:2, :2])
    with pytest.raises(ValueError, match="one of cholesky, eigh, svd, got 'qr'"):
        rng.multivariate_normal(KEY, MEAN, COV, method="qr")


@pytest.mark.parametrize(("n", "m"), [(3, None), (4, 2), (2, 5)])
def test_orthogonal(n: int, m: int | None) -> None:
    found = rng.orthogonal(KEY, n, (2,), m=m)
    near(found, jax.random.orthogonal(OTHER, n, (2,), m=m), 1e-4, 1e-5)
    x = np.asarray(found)
    x = x if x.shape[-2] <= x.shape[-1] else np.swapaxes(x, -1, -2)
    np.testing.assert_allclose(
        x @ np.swapaxes(x, -1, -2),
        np.broadcast_to(np.eye(x.shape[-2]), (2, *x.shape[-2:-1] * 2)),
        atol=1e-5,
    )


def test_complex_numbers() -> None:
    near_parts(
        rng.normal(KEY, (30,), "complex64"),
        jax.random.normal(OTHER, (30,), "complex64"),
    )
    unitary = np.asarray(rng.orthogonal(KEY, 3, dtype="complex64"))
    near_parts(unitary, jax.random.orthogonal(OTHER, 3, dtype="complex64"))
    np.testing.assert_allclose(unitary @ unitary.conj().T, np.eye(3), atol=1e-5)


def near_parts(ours: Any, theirs: Any) -> None:
    a, b = np.asarray(ours), np.asarray(theirs)
    assert a.dtype == b.dtype
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_categories_without_replacement() -> None:
    logits = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
    for axis, shape in ((1, (4, 6)), (0, (3, 9)), (1, (2, 2, 6))):
        found = rng.categorical(KEY, logits, axis, shape, replace=False)
        exact(
            found,
            jax.random.categorical(OTHER, logits, axis, shape, replace=False),
        )
    drawn = np.asarray(rng.categorical(KEY, logits, 1, (9, 6), replace=False))
    assert (np.sort(drawn, 0) == np.arange(9)[:, None]).all()
    with pytest.raises(ValueError, match=r"can't draw shape \(10, 6\) of 9 categories"):
        rng.categorical(KEY, logits, 1, (10, 6), replace=False)


def test_derivatives_of_parameters() -> None:
    cases: list[tuple[str, tuple]] = [
        ("lognormal", (0.7,)),
        ("pareto", (2.5,)),
        ("rayleigh", (2.0,)),
        ("triangular", (-1.0, 0.5, 2.0)),
        ("wald", (1.5,)),
        ("weibull_min", (2.0, 1.5)),
    ]
    for name, args in cases:
        numbers = tuple(range(len(args)))
        ours = td.grad(lambda *a, n=name: getattr(rng, n)(KEY, *a, (9,)).sum(), numbers)
        theirs = jax.grad(
            lambda *a, n=name: getattr(jax.random, n)(OTHER, *a, shape=(9,)).sum(),
            numbers,
        )
        for a, b in zip(ours(*args), theirs(*args), strict=True):
            near(a, b, 1e-4, 1e-5)

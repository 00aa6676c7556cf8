"""`treadle.scipy.stats` against SciPy, and its derivatives against differences."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from typing import Any

import jax.scipy.stats
import numpy as np
import pytest
import scipy.stats

import treadle as td
import treadle.numpy as tnp

stats = td.scipy.stats
inf, nan = np.inf, np.nan
X = np.array([-inf, -30.0, -2.5, -1.0, 0.0, 0.3, 0.5, 1.0, 1.7, 6.0, 40.0, inf, nan])
Q = np.array([0.0, 1e-12, 0.2, 0.5, 0.9, 1.0, -0.1, 1.1, nan])
SMOOTH = np.array([0.13, 0.4, 0.72])


@dataclass(frozen=True)
class Case:
    """A distribution with its shapes; where it differs from SciPy's, why.

    smooth: where derivatives are compared. inverse: whether there are quantiles.
    """

    name: str
    shapes: tuple[float, ...] = ()
    smooth: np.ndarray = field(default_factory=lambda: SMOOTH)
    inverse: bool = False
    without: tuple[str, ...] = ()
    label: str = ""

    @property
    def ours(self) -> Any:
        return getattr(stats, self.name)

    @property
    def theirs(self) -> Any:
        return getattr(scipy.stats, self.name)


CONTINUOUS = [
    *[
        Case(name, inverse=True)
        for name in ("norm", "uniform", "expon", "laplace", "logistic", "cauchy")
    ],
    Case("gumbel_l", inverse=True),
    Case("gumbel_r", inverse=True),
    Case("pareto", (2.5,), SMOOTH * 3 + 1, inverse=True),
    Case("gamma", (2.5,)),
    Case("gamma", (0.4,), label="steep"),
    Case("chi2", (3.0,)),
    Case("beta", (2.0, 3.5)),
    Case("beta", (1.0, 0.5), label="steep"),
    Case("t", (3.5,)),
    Case("gennorm", (1.3,)),
    Case("truncnorm", (-1.2, 2.0)),
    Case("truncnorm", (3.0, 9.0), SMOOTH + 4, label="tail"),
    Case("vonmises", (2.0,), without=("cdf", "sf", "logcdf", "logsf")),
    Case("wrapcauchy", (0.4,), without=("cdf", "sf", "logcdf", "logsf")),
]
PROBABILITIES = ("logpdf", "pdf", "cdf", "sf", "logcdf", "logsf")
continuous = pytest.mark.parametrize(
    "case", CONTINUOUS, ids=lambda case: case.name + case.label
)


compiled_too = pytest.mark.parametrize(
    "how",
    [lambda f: f, pytest.param(td.jit, marks=pytest.mark.slow)],
    ids=["eager", "compiled"],
)


@continuous
@compiled_too
def test_continuous_distributions_are_scipys(case: Case, how: Any) -> None:
    methods = [m for m in PROBABILITIES if m not in case.without]
    named = {"loc": 0.25, "scale": 1.5}

    def all_of(x: Any, q: Any) -> Any:
        found = [getattr(case.ours, m)(x, *case.shapes) for m in methods]
        found += [getattr(case.ours, m)(x, *case.shapes, **named) for m in methods]
        if case.inverse:
            found += [getattr(case.ours, m)(q, **_names(case)) for m in ("ppf", "isf")]
        return found

    with np.errstate(all="ignore"):
        wanted = [getattr(case.theirs, m)(X, *case.shapes) for m in methods]
        wanted += [getattr(case.theirs, m)(X, *case.shapes, **named) for m in methods]
        if case.inverse:
            wanted += [getattr(case.theirs, m)(Q, *case.shapes) for m in ("ppf", "isf")]
    for found, want in zip(how(all_of)(X, Q), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-14)


def _names(case: Case) -> dict[str, float]:
    return {"b": case.shapes[0]} if case.name == "pareto" else {}


@continuous
def test_derivatives_of_continuous_distributions(case: Case) -> None:
    """By the variable the log-density's and the distribution function's; by all
    parameters the log-density's."""
    args = (case.smooth, *[np.full(3, s) for s in (*case.shapes, 0.1, 1.2)])
    args = (args[0] * 1.2 + 0.1, *args[1:])

    def differences(method: str, i: int) -> Any:
        step = 1e-5

        def at(by: float) -> Any:
            moved = [a + by * (i == j) for j, a in enumerate(args)]
            return getattr(case.theirs, method)(*moved)

        return (at(step) - at(-step)) / (2 * step)

    wanted = [differences("logpdf", i) for i in range(len(args))]
    every = tuple(range(len(args)))
    slopes = td.jit(td.vmap(td.grad(case.ours.logpdf, argnums=every)))(*args)
    for found, want in zip(slopes, wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-7)
    if "cdf" not in case.without:
        found = td.jvp(lambda x: case.ours.cdf(x, *args[1:]), args[:1], (np.ones(3),))
        np.testing.assert_allclose(found[1], case.theirs.pdf(*args), rtol=1e-9)


K = np.array([-1.0, 0.0, 1.0, 2.0, 3.5, 5.0, 7.0, 12.0, nan])
DISCRETE = [
    ("bernoulli", (0.3,), True),
    ("bernoulli", (1.0,), True),
    ("binom", (7.0, 0.3), True),
    ("binom", (5.0, 0.0), False),
    ("betabinom", (7.0, 2.0, 0.6), False),
    ("nbinom", (3.5, 0.4), True),
    ("geom", (0.3,), True),
    ("poisson", (2.5,), True),
    ("poisson", (0.0,), False),
]


@pytest.mark.parametrize(("name", "shapes", "has_cdf"), DISCRETE, ids=str)
@compiled_too
def test_discrete_distributions_are_scipys(
    name: str, shapes: tuple[float, ...], has_cdf: bool, how: Any
) -> None:
    ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
    methods = ["logpmf", "pmf"] + ["cdf"] * has_cdf

    def all_of(k: Any) -> Any:
        found = [getattr(ours, m)(k, *shapes) for m in methods]
        return [*found, ours.logpmf(k, *shapes, loc=1.0)]

    with np.errstate(all="ignore"):
        wanted = [getattr(theirs, m)(K, *shapes) for m in methods]
        wanted += [theirs.logpmf(K, *shapes, loc=1)]
    for found, want in zip(how(all_of)(K), wanted, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-15)


def test_derivatives_of_discrete_distributions() -> None:
    for name, shapes, _ in DISCRETE:
        if 0.0 in shapes or 1.0 in shapes:
            continue
        ours, theirs = getattr(stats, name), getattr(scipy.stats, name)
        i, step = len(shapes) - 1, 1e-6
        high, low = ([*shapes[:i], shapes[i] + by] for by in (step, -step))
        wanted = (theirs.logpmf(1.0, *high) - theirs.logpmf(1.0, *low)) / (2 * step)
        found = td.grad(ours.logpmf, argnums=i + 1)(1.0, *map(np.float64, shapes))
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_quantiles_and_entropy() -> None:
    q = np.array([0.0, 0.3, 0.7, 0.9, 1.0, 1.5])
    np.testing.assert_array_equal(
        stats.bernoulli.ppf(q, 0.4), scipy.stats.bernoulli.ppf(q, 0.4)
    )
    mu = np.array([0.5, 4.0, 60.0, 150.0, 400.0])
    np.testing.assert_allclose(
        stats.poisson.entropy(mu), scipy.stats.poisson.entropy(mu), rtol=1e-9
    )


def test_vectors() -> None:
    alpha = np.array([0.5, 2.0, 3.0])
    x = np.array([[0.2, 0.1], [0.5, 0.3], [0.3, 0.6]])
    wanted = scipy.stats.dirichlet.logpdf(x, alpha)
    for f in (stats.dirichlet.logpdf, td.jit(stats.dirichlet.logpdf)):
        np.testing.assert_allclose(f(x, alpha), wanted, rtol=1e-12)
        np.testing.assert_allclose(f(x[:2], alpha), wanted, rtol=1e-12)
    assert stats.dirichlet.pdf(x[:, 0] * 2, alpha) == 0
    counts, p = np.array([[1.0, 2.0, 0.0], [1.0, 1.0, 2.0]]), [0.2, 0.5, 0.3]
    wanted = scipy.stats.multinomial.logpmf(counts, 3, p)
    found = stats.multinomial.logpmf(counts, 3, np.array(p))
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    cov = np.array([[2.0, 0.3], [0.3, 0.5]])
    points = np.random.default_rng(0).normal(size=(4, 2))
    normal = stats.multivariate_normal
    wanted = scipy.stats.multivariate_normal([1, 2], cov).logpdf(points)
    mean = np.array([1.0, 2.0])
    found = td.jit(normal.logpdf)(points, mean, cov)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    many = td.vmap(normal.logpdf, in_axes=(0, None, None))(points, mean, cov)
    np.testing.assert_allclose(many, wanted, rtol=1e-12)
    equal = scipy.stats.multivariate_normal([0, 0], 2 * np.eye(2)).pdf(points)
    np.testing.assert_allclose(normal.pdf(points, 0.0, 2.0), equal, rtol=1e-12)
    td.check_grads(lambda m, c: normal.logpdf(points, m, c @ c.T), (mean, cov))


@pytest.mark.parametrize("weighted", [False, True])
def test_densities_of_samples(weighted: bool) -> None:
    rng = np.random.default_rng(1)
    for d, how in ((1, None), (2, "silverman"), (2, 0.4)):
        data, points = rng.normal(size=(d, 30)), rng.normal(size=(d, 5))
        weights = rng.uniform(size=30) if weighted else None
        ours = stats.gaussian_kde(data, how, weights)
        theirs = scipy.stats.gaussian_kde(data, how, weights)
        for found, wanted in (
            (ours(points), theirs(points)),
            (ours.logpdf(points), theirs.logpdf(points)),
            (ours.covariance, theirs.covariance),
            (ours.integrate_kde(ours), theirs.integrate_kde(theirs)),
            (
                ours.integrate_gaussian(points[:, 0], np.eye(d)),
                theirs.integrate_gaussian(points[:, 0], np.eye(d)),
            ),
        ):
            np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-9)
        if d == 1:
            found = ours.integrate_box_1d(-1.0, 0.5)
            np.testing.assert_allclose(found, theirs.integrate_box_1d(-1.0, 0.5))


SAMPLES = np.array([[3, 1, 2, 1, 3], [1, 1, 2, 2, 3], [5, 4, 5, 5, 0]])


def test_numbers_that_describe_samples() -> None:
    for axis in (0, 1, None):
        found = td.jit(lambda x, a=axis: stats.mode(x, a))(SAMPLES)
        wanted = scipy.stats.mode(SAMPLES, axis)
        np.testing.assert_array_equal(found.mode, wanted.mode)
        np.testing.assert_array_equal(found.count, wanted.count)
        kept = stats.mode(SAMPLES, axis, keepdims=True)
        assert (
            kept.mode.shape == scipy.stats.mode(SAMPLES, axis, keepdims=True)[0].shape
        )
        for method in ("average", "min", "max", "dense", "ordinal"):
            found = stats.rankdata(SAMPLES, method, axis=axis)
            wanted = scipy.stats.rankdata(SAMPLES, method, axis=axis)
            np.testing.assert_array_equal(found, wanted)
        x = SAMPLES.astype("float64")
        np.testing.assert_allclose(
            stats.sem(x, axis, ddof=0), scipy.stats.sem(x, axis, ddof=0), rtol=1e-12
        )


def test_every_distribution_of_jax_is_there() -> None:
    for name in dir(jax.scipy.stats):
        if name.startswith("_"):
            continue
        theirs = getattr(jax.scipy.stats, name)
        ours = getattr(stats, name)
        if isinstance(theirs, type(jax.scipy.stats)):
            public = {m for m in dir(theirs) if not m.startswith("_")}
            assert public <= set(dir(ours)), name


def test_dtypes() -> None:
    for dtype, wanted in (("float16", "float16"), ("int32", "float32")):
        x = tnp.ones(3, dtype)
        for f in (stats.norm.logpdf, stats.expon.cdf, stats.cauchy.ppf):
            assert f(x).dtype == td.jit(f)(x).dtype == wanted
        assert stats.poisson.logpmf(x, 2.0).dtype == wanted
        assert stats.gamma.cdf(x, 2.0).dtype == wanted


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: stats.gamma.pdf(1.0), TypeError, r"gamma\.pdf: no a"),
        (lambda: stats.norm.pdf(1.0, 0, 1, 2), TypeError, r"norm\.pdf: 3 parameters"),
        (lambda: stats.norm.cdf(1.0, 0, loc=1), TypeError, "loc given twice"),
        (lambda: stats.norm.cdf(1.0, mean=1), TypeError, "no parameter mean"),
        (lambda: stats.gamma.ppf(0.5, 1.0), NotImplementedError, "gamma has no ppf"),
        (lambda: stats.betabinom.cdf(1, 2, 1, 1), NotImplementedError, "has no cdf"),
        (lambda: stats.rankdata(SAMPLES, "no"), ValueError, "got 'no'"),
        (lambda: stats.gaussian_kde(tnp.ones(1)), ValueError, "two samples or more"),
        (
            lambda: stats.dirichlet.pdf(tnp.ones(5), tnp.ones(2)),
            ValueError,
            "shares of shape",
        ),
    ],
)
def test_errors(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        call()
    assert "test_stats.py" in str(caught.value)


IMPROPER = {
    "beta": ("cdf", (-1.0, 2.0)),
    "chi2": ("logpdf", (-1.0,)),
    "gamma": ("logcdf", (0.0,)),
    "gennorm": ("cdf", (0.0,)),
    "pareto": ("ppf", (-1.0,)),
    "truncnorm": ("pdf", (2.0, 1.0)),
    "vonmises": ("logpdf", (-1.0,)),
    "wrapcauchy": ("pdf", (1.0,)),
    "bernoulli": ("pmf", (1.5,)),
    "binom": ("cdf", (-1.0, 0.5)),
    "betabinom": ("logpmf", (3.0, -1.0, 1.0)),
    "geom": ("cdf", (0.0,)),
    "nbinom": ("pmf", (5.0, -0.5)),
    "poisson": ("pmf", (-1.0,)),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", IMPROPER)
def test_shapes_of_no_distribution(name: str) -> None:
    """Not a number, as in SciPy, inside of the support and beyond it."""
    method, shapes = IMPROPER[name]
    at = np.array([0.0, 0.5, 1.0, 3.0])
    found = getattr(getattr(stats, name), method)(at, *shapes)
    expected = getattr(getattr(scipy.stats, name), method)(at, *shapes)
    assert np.isnan(expected).all()
    assert np.isnan(np.asarray(found)).all()


def test_of_all_numbers_at_most_infinity() -> None:
    assert stats.nbinom.cdf(np.inf, 5.0, 0.3) == 1.0
    assert stats.poisson.cdf(np.inf, 5.0) == 1.0


@pytest.mark.parametrize(
    ("shape", "axis"), [((0,), 0), ((0, 3), 0), ((3, 0), 1), ((0, 3), None)]
)
def test_the_mode_of_nothing(shape: tuple[int, ...], axis: int | None) -> None:
    x = np.zeros(shape, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = scipy.stats.mode(x, axis=axis)
    for found in (stats.mode(x, axis), td.jit(lambda x: stats.mode(x, axis))(x)):
        np.testing.assert_array_equal(found.mode, wanted.mode)
        np.testing.assert_array_equal(found.count, wanted.count)

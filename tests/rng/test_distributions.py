"""Distributions give JAX's numbers; moments are right; parameters have derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
import scipy.stats

import treadle as td
import treadle.numpy as tnp
from tests.refused import refused
from treadle import rng

KEY, OTHER = rng.key(42), jax.random.key(42)
LOGITS = np.random.default_rng(0).normal(size=(6, 9)).astype(np.float32)
WEIGHTS = np.array([0.1, 0.4, 0.2, 0.3], np.float32)


# The bits of JAX as its users have it, who let it optimise.
AS_USED = {
    "xla_cpu_use_fusion_emitters": True,
    "xla_backend_optimization_level": 3,
    "xla_llvm_disable_expensive_passes": False,
}


def jax_bits(name: str, *args: Any) -> Any:
    """What a function of ``jax.random`` gives to the bit."""
    draw = getattr(jax.random, name)
    return jax.jit(lambda key: draw(key, *args), compiler_options=AS_USED)(OTHER)


def exact(ours: Any, theirs: Any) -> None:
    found, expected = np.asarray(ours), np.asarray(theirs)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def near(ours: Any, theirs: Any, rtol: float = 3e-6, atol: float = 1e-6) -> None:
    found, expected = np.asarray(ours), np.asarray(theirs)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    np.testing.assert_allclose(
        found.astype(np.float64), expected.astype(np.float64), rtol, atol
    )


def exact_where_halves_fuse(ours: Any, theirs: Any, atol: float = 2e-3) -> None:
    """XLA computes float16 with the multiply-add of CPUs that have one for it, which is
    where our numbers come from; elsewhere it rounds twice."""
    if ours.dtype == np.float16 and not _has_half_multiply_add():
        near(ours, theirs, 4e-3, atol)
    else:
        exact(ours, theirs)


def _has_half_multiply_add() -> bool:
    draw = np.random.default_rng(0).uniform(0.5, 1, (3, 4096))
    x, y, z = draw.astype(np.float16)
    once = x.astype(np.float64) * y + z
    compiled = jax.jit(lambda x, y, z: x * y + z, compiler_options=AS_USED)
    found = np.asarray(compiled(x, y, z))
    return bool((found == once.astype(np.float16)).all())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("shape", [(), (5,), (40, 7)])
def test_uniform_is_exact(dtype: str, shape: tuple[int, ...]) -> None:
    exact(rng.uniform(KEY, shape, dtype), jax_bits("uniform", shape, dtype))


def test_double_precision() -> None:
    with jax.enable_x64(True):
        exact(
            rng.uniform(KEY, (50,), "float64"),
            jax.random.uniform(OTHER, (50,), "float64"),
        )
        near(
            rng.normal(KEY, (50,), "float64"),
            jax.random.normal(OTHER, (50,), "float64"),
            1e-12,
        )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("limits", [(-3.0, 5.0), (0.1, 0.7), (1e-3, 1.0)])
def test_uniform_between(dtype: str, limits: tuple[float, float]) -> None:
    ours = rng.uniform(KEY, (9999,), dtype, *limits)
    exact_where_halves_fuse(ours, jax_bits("uniform", (9999,), dtype, *limits))


def test_uniform_between_arrays() -> None:
    low = np.arange(4, dtype=np.float32)
    exact(
        rng.uniform(KEY, (3, 4), minval=low, maxval=low + 1),
        jax.random.uniform(OTHER, (3, 4), minval=low, maxval=low + 1),
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_normal_is_exact(dtype: str) -> None:
    exact(rng.normal(KEY, (2**20,), dtype), jax_bits("normal", (2**20,), dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("limits", [(-2, 2), (-1, 3), (0.5, 0.7), (-20, 0)])
def test_truncated_normal_is_exact(dtype: str, limits: tuple[float, float]) -> None:
    ours = rng.truncated_normal(KEY, *limits, (2**16,), dtype)
    theirs = jax_bits("truncated_normal", *limits, (2**16,), dtype)
    # In the tails the inverse of erf is steep.
    exact_where_halves_fuse(ours, theirs, atol=0.05)


FORMULAS = ["exponential", "gumbel", "laplace", "logistic"]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", FORMULAS)
def test_formula_is_exact(name: str, dtype: str) -> None:
    ours = getattr(rng, name)(KEY, (2**16,), dtype)
    theirs = jax_bits(name, (2**16,), dtype)
    if dtype == "float16" and name in ("gumbel", "logistic"):
        # XLA's logarithm of float16 is not rounded correctly.
        near(ours, theirs, 2e-2, 1e-2)
    else:
        exact(ours, theirs)


@pytest.mark.parametrize("name", [*FORMULAS, "cauchy"])
def test_formula_in_double_precision(name: str) -> None:
    with jax.enable_x64(True):
        theirs = getattr(jax.random, name)(OTHER, (2**16,), "float64")
    near(getattr(rng, name)(KEY, (2**16,), "float64"), theirs, 1e-9, 1e-13)


def test_inside_a_program() -> None:
    def fused(key: rng.Key) -> Any:
        return 2 * rng.normal(key, (99,)) + 1, rng.gumbel(key, (20,)).sum()

    x, total = td.jit(fused)(KEY)
    y = np.asarray(rng.normal(KEY, (99,)))
    near(x, 2 * y + 1, 1e-6)
    near(total, np.asarray(rng.gumbel(KEY, (20,))).sum(dtype=np.float32), 1e-5)


def test_cauchy() -> None:
    near(rng.cauchy(KEY, (100,)), jax.random.cauchy(OTHER, (100,)), 1e-4)


def test_truncated_normal() -> None:
    near(
        rng.truncated_normal(KEY, -2.0, 2.0, (1000,)),
        jax.random.truncated_normal(OTHER, -2.0, 2.0, (1000,)),
    )
    x = rng.truncated_normal(KEY, np.float32([1, 5]), np.float32([1.5, 6]), (500, 2))
    assert (x > tnp.array([1.0, 5.0])).all() and (x < tnp.array([1.5, 6.0])).all()


@pytest.mark.parametrize(
    "low, high, dtype",
    [
        (0, 10, "int32"),
        (-5, 1000000, "int32"),
        (0, 2**31 - 1, "int32"),
        (-(2**31), 2**31 - 1, "int32"),
        (0, 256, "uint8"),
        (-128, 128, "int8"),
        (3, 3, "int32"),
        (5, 2, "int32"),
        (0, 1000, "int16"),
    ],
)
def test_randint_is_exact(low: int, high: int, dtype: str) -> None:
    exact(
        rng.randint(KEY, (200,), low, high, dtype),
        jax.random.randint(OTHER, (200,), low, high, dtype),
    )


def test_randint_of_arrays_and_traced_limits() -> None:
    high = np.arange(1, 9, dtype=np.int32)
    exact(
        rng.randint(KEY, (3, 8), 0, high),
        jax.random.randint(OTHER, (3, 8), 0, high),
    )
    found = td.jit(lambda n: rng.randint(KEY, (9,), 0, n))(7)
    exact(found, jax.random.randint(OTHER, (9,), 0, 7))


@pytest.mark.parametrize("n", [0, 1, 2, 10, 1000])
def test_permutation_is_exact(n: int) -> None:
    exact(rng.permutation(KEY, n), jax.random.permutation(OTHER, n))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("independent", [False, True])
def test_permutation_of_arrays(axis: int, independent: bool) -> None:
    x = np.arange(60).reshape(5, 12).astype(np.int32)
    exact(
        rng.permutation(KEY, x, axis, independent),
        jax.random.permutation(OTHER, x, axis, independent),
    )


def test_bernoulli_is_exact() -> None:
    p = np.linspace(0, 1, 50).astype(np.float32)
    exact(rng.bernoulli(KEY, p), jax.random.bernoulli(OTHER, p))
    exact(
        rng.bernoulli(KEY, 0.3, (7, 9)),
        jax.random.bernoulli(OTHER, 0.3, (7, 9)),
    )
    exact(rng.rademacher(KEY, (30,)), jax.random.rademacher(OTHER, (30,), "int32"))


def test_rare_events_are_jaxs() -> None:
    """`mode="high"` takes more digits."""
    for dtype in ("float32", "bfloat16"):
        theirs = jax_bits("gumbel", (2**16,), dtype, "high")
        exact(rng.gumbel(KEY, (2**16,), dtype, mode="high"), theirs)
    assert float(rng.gumbel(KEY, (2**16,), mode="low").max()) < 16.7
    ours = rng.bernoulli(KEY, 1e-4, (2**16,), mode="high")
    exact(ours, jax.random.bernoulli(OTHER, 1e-4, (2**16,), mode="high"))
    rare = {"shape": (2, 6), "axis": 1, "mode": "high"}
    for more in ({}, {"replace": False}):
        theirs = jax.random.categorical(OTHER, LOGITS, **rare, **more)
        exact(rng.categorical(KEY, LOGITS, **rare, **more), theirs)


def test_modes_that_there_are_not() -> None:
    said = "mode is 'low' or 'high', got 'middle'"
    refused(lambda: rng.gumbel(KEY, mode="middle"), ValueError, said)
    refused(lambda: rng.bernoulli(KEY, mode="middle"), ValueError, said)
    refused(lambda: rng.categorical(KEY, LOGITS, mode="middle"), ValueError, said)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_categorical_is_exact(axis: int) -> None:
    exact(
        rng.categorical(KEY, LOGITS, axis),
        jax.random.categorical(OTHER, LOGITS, axis),
    )


def test_more_draws_of_categories() -> None:
    exact(
        rng.categorical(KEY, LOGITS, shape=(5, 6)),
        jax.random.categorical(OTHER, LOGITS, shape=(5, 6)),
    )
    exact(
        rng.categorical(KEY, LOGITS[0], shape=(5,)),
        jax.random.categorical(OTHER, jnp.asarray(LOGITS[0]), shape=(5,)),
    )


@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("p", [None, WEIGHTS])
def test_choice_is_exact(replace: bool, p: Any) -> None:
    x = np.array([3, 1, 4, 5], np.float32)
    for a in (4, x):
        exact(
            rng.choice(KEY, a, (3,), replace, p),
            jax.random.choice(OTHER, a, (3,), replace, p),
        )


def test_choice_of_slices() -> None:
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    exact(
        rng.choice(KEY, x, (2, 5), axis=1),
        jax.random.choice(OTHER, x, (2, 5), axis=1),
    )
    with pytest.raises(ValueError, match="can't draw 5 of 3 elements without"):
        rng.choice(KEY, 3, (5,), replace=False)


def test_axes_that_are_not_there() -> None:
    key, x = rng.key(0), np.arange(6.0)
    with pytest.raises(np.exceptions.AxisError, match="permutation: axis 2"):
        rng.permutation(key, x, axis=2)
    with pytest.raises(np.exceptions.AxisError, match="choice: axis 1"):
        rng.choice(key, x, (2,), axis=1)
    with pytest.raises(TypeError, match="an array or an integer, got f32"):
        rng.permutation(key, np.float32(3))


def test_gamma() -> None:
    a = np.float32([0.1, 0.5, 1, 3, 40])
    near(rng.gamma(KEY, 2.5, (30,)), jax.random.gamma(OTHER, 2.5, (30,)))
    near(rng.gamma(KEY, a), jax.random.gamma(OTHER, a))
    near(rng.loggamma(KEY, 0.01, (20,)), jax.random.loggamma(OTHER, 0.01, (20,)))
    near(
        td.vmap(lambda k: rng.gamma(k, 2.0, (3,)))(rng.split(KEY, 4)),
        jax.vmap(lambda k: jax.random.gamma(k, 2.0, (3,)))(jax.random.split(OTHER, 4)),
    )


def test_what_is_made_of_gammas() -> None:
    near(rng.beta(KEY, 0.5, 2.0, (20,)), jax.random.beta(OTHER, 0.5, 2.0, (20,)))
    alpha = np.float32([[0.5, 1, 2], [1, 1, 1]])
    near(rng.dirichlet(KEY, alpha), jax.random.dirichlet(OTHER, alpha))
    near(
        rng.dirichlet(KEY, alpha[0], (4,)),
        jax.random.dirichlet(OTHER, alpha[0], (4,)),
    )


@pytest.mark.parametrize("rate", [0.0, 0.5, 3.0, 9.9, 12.0, 300.0])
def test_poisson_is_exact(rate: float) -> None:
    exact(rng.poisson(KEY, rate, (40,)), jax.random.poisson(OTHER, rate, (40,)))


SMOOTH: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "gamma": ((np.float32([0.3, 1.0, 2.5, 40.0, 300.0]),), {}),
    "loggamma": ((np.float32([0.3, 1.0, 2.5, 40.0]),), {}),
    "chisquare": ((3.0,), {"shape": (4,)}),
    "t": ((4.0,), {"shape": (4,)}),
    "beta": ((2.0, 0.5), {"shape": (4,)}),
    "f": ((3.0, 5.0), {"shape": (4,)}),
    "generalized_normal": ((1.7,), {"shape": (4,)}),
    "dirichlet": ((np.float32([0.5, 2.0, 3.0]),), {}),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n != "gamma")) for n in SMOOTH],
)
def test_derivatives_in_parameters_are_jaxs(name: str) -> None:
    args, options = SMOOTH[name]

    def loss(draw: Any, key: Any) -> Any:
        return lambda *args: (draw(key, *args, **options) ** 2).sum()

    numbers = tuple(range(len(args)))
    theirs = loss(getattr(jax.random, name), OTHER)
    wanted = jax.jit(jax.grad(theirs, numbers))(*args)
    ours = td.grad(loss(getattr(rng, name), KEY), numbers)
    for f, g, w in zip(ours(*args), td.jit(ours)(*args), wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=2e-5)
        np.testing.assert_allclose(g, w, rtol=2e-5)


def test_derivatives_of_gammas_that_underflow() -> None:
    """Their logarithm is (log(u) + log Γ(a + 1)) / a but for what underflows."""
    a = tnp.asarray(0.01)
    x = rng.loggamma(KEY, a, (5,))
    assert (x < -150).any()
    found = td.vmap(td.grad(lambda a, i: rng.loggamma(KEY, a, (5,))[i]), (None, 0))(
        a, tnp.arange(5)
    )
    wanted = (scipy.special.digamma(1.01) - np.asarray(x, "float64")) / 0.01
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


@pytest.mark.slow
def test_second_derivatives_of_gammas() -> None:
    def total(a: Any) -> Any:
        return rng.gamma(KEY, a, (3,), "float64").sum()

    a, step = tnp.asarray(2.0, "float64"), 1e-2
    places = scipy.stats.gamma.cdf(rng.gamma(KEY, a, (3,), "float64"), 2.0)

    def moved(a: float) -> float:
        return scipy.stats.gamma.ppf(places, a).sum()

    found = td.grad(td.grad(total))(a)
    wanted = (moved(2 + step) - 2 * moved(2) + moved(2 - step)) / step**2
    np.testing.assert_allclose(found, wanted, rtol=1e-3)


def test_moments() -> None:
    x = rng.normal(KEY, (200_000,))
    assert abs(x.mean().item()) < 0.01 and abs(x.std().item() - 1) < 0.01
    u = rng.uniform(KEY, (200_000,))
    assert abs(u.mean().item() - 0.5) < 0.005 and u.min() >= 0 and u.max() < 1
    assert abs(rng.exponential(KEY, (200_000,)).mean().item() - 1) < 0.01


def test_parameters_have_derivatives() -> None:
    def sample(mean: Any, deviation: Any) -> Any:
        return (mean + deviation * rng.normal(KEY, (10,))).sum()

    d_mean, d_deviation = td.grad(sample, (0, 1))(1.0, 2.0)
    assert d_mean.item() == 10
    near(d_deviation, rng.normal(KEY, (10,)).sum())

    def spread(module: Any, key: Any) -> Any:
        return lambda high: (module.uniform(key, (9,), minval=-1.0, maxval=high)).sum()

    near(td.grad(spread(rng, KEY))(2.0), jax.grad(spread(jax.random, OTHER))(2.0))

"""Random numbers of any shape: those that a program for one size draws."""

from __future__ import annotations

from types import ModuleType

import pytest

import treadle as td
import treadle.numpy as tnp
from tests.core.dynamic import agree, floats, ints, positive, rows, written
from treadle import rng

ARGS = {
    "x": floats("n m"),
    "u": floats("n"),
    "h": floats("n 4"),
    "p": positive("n m"),
    "q": positive("n"),
    "i": ints("n m", 1, 9),
}
KEY = "rng.key(3)"
DISTRIBUTIONS = (
    "bits uniform normal exponential laplace logistic gumbel cauchy rademacher maxwell"
)
SCALED = "chisquare generalized_normal lognormal pareto rayleigh t wald"

EXPRESSIONS = [
    *(f"rng.{name}({KEY}, x.shape)" for name in DISTRIBUTIONS.split()),
    f"rng.bits(rng.clone({KEY}), x.shape, 'uint64'), "
    f"rng.uniform({KEY}, x.shape, tnp.float16)",
    f"rng.normal(rng.fold_in({KEY}, 7), (x.shape[0], 3)) * x[:, :1]",
    f"rng.bernoulli({KEY}, p), rng.bernoulli({KEY}, 0.3, (4, *x.shape))",
    f"rng.randint({KEY}, x.shape, 0, 9), rng.randint({KEY}, x.shape, 0, x.shape[0])",
    f"rng.truncated_normal({KEY}, -1.0, 2.0, x.shape)",
    f"rng.split({KEY}, x.shape[0]), rng.key_data(rng.split({KEY}, 3)) + 0 * i[0, 0]",
    f"td.vmap(lambda k, y: rng.normal(k) * y)(rng.split({KEY}, x.shape[0]), x)",
    f"rng.gamma({KEY}, p * 3), rng.loggamma({KEY}, p), rng.beta({KEY}, p, p * 2)",
    f"rng.dirichlet({KEY}, p), rng.poisson({KEY}, p * 20)",
    *(
        f"rng.{name}({KEY}, p), rng.{name}({KEY}, q[0], x.shape)"
        for name in SCALED.split()
    ),
    f"rng.double_sided_maxwell({KEY}, x, p), rng.triangular({KEY}, x, x, x + p)",
    f"rng.weibull_min({KEY}, p, p), rng.f({KEY}, p * 5, p * 9)",
    f"rng.ball({KEY}, 3, shape=x.shape), rng.orthogonal({KEY}, 3, u.shape)",
    f"rng.binomial({KEY}, i, p), rng.geometric({KEY}, p / 9)",
    f"rng.multinomial({KEY}, i[:, 0], p)",
    f"rng.multivariate_normal({KEY}, h, tnp.eye(4))",
    f"rng.categorical({KEY}, h, 1, (3, *u.shape), False)",
    f"rng.categorical({KEY}, x), rng.categorical({KEY}, x, 1, (5, x.shape[0]))",
    f"rng.choice({KEY}, u, (4,)), rng.choice({KEY}, x.shape[0], (x.shape[1],))",
    f"rng.choice({KEY}, h, (3,), p=q / q.sum())",
    f"rng.choice({KEY}, 5, u.shape), rng.choice({KEY}, h, (1,), False)",
    f"rng.permutation({KEY}, u), rng.permutation({KEY}, x.shape[0]), "
    f"rng.permutation({KEY}, x, 1), rng.permutation({KEY}, x, 0, True)",
]
GUARDED = {
    EXPRESSIONS[-1]: "orders of more elements are sorted more often",
    EXPRESSIONS[-2]: "no more elements than there are",
}


@pytest.mark.parametrize("expression", rows(EXPRESSIONS))
def test_numbers_of_any_shape(expression: str) -> None:
    names = {"td": td, "tnp": tnp, "rng": rng}
    function, args = written(expression, ARGS, names)
    agree(function, args, guards=GUARDED.get(expression, ""))


def test_every_function_is_tried() -> None:
    text = " ".join(EXPRESSIONS)
    for name in dir(rng):
        value = getattr(rng, name)
        hidden = name.startswith("_") or isinstance(value, type | ModuleType)
        if not hidden and name != "wrap_key_data":
            assert f"rng.{name}(" in text, name

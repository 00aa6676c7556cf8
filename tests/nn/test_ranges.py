"""Numbers that make no sense are refused where they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import treadle.numpy as tnp
from treadle import nn, rng
from treadle.data import augment

KEY = rng.key(0)
X, ROWS, LABELS = tnp.ones(4), tnp.ones((4, 3)), tnp.arange(4) % 3
ONE = tnp.ones((2, 4, 4, 1))
OPTIONS: list[tuple[Callable[..., Any], str, tuple[Any, ...], tuple[Any, ...]]] = [
    # a function of the option's value, its name, what is refused, what is not
    (lambda v: nn.huber(X, X, v), "delta", (-1, 0, 0.0), (0.1,)),
    (lambda v: nn.quantile_error(X, X, v), "quantile", (-0.1, 1.1), (0, 1)),
    (lambda v: nn.gaussian_nll(X, X, X, eps=v), "eps", (-1e-9,), (0,)),
    (lambda v: nn.cross_entropy(ROWS, LABELS, v), "smoothing", (-0.1, 1.5), (0, 1)),
    (lambda v: nn.binary_cross_entropy(X, X, v), "smoothing", (-0.1, 1.5), (0, 1)),
    (lambda v: nn.focal(ROWS, LABELS, v), "gamma", (-1,), (0,)),
    (lambda v: nn.binary_focal(X, X, v), "gamma", (-1,), (0,)),
    (lambda v: nn.binary_focal(X, X, alpha=v), "alpha", (-0.1, 2), (None, 1)),
    (lambda v: nn.multi_margin(ROWS, LABELS, power=v), "power", (0, -1), (1,)),
    (lambda v: nn.triplet_margin(ROWS, ROWS, ROWS, order=v), "order", (0, -2), (1,)),
    (lambda v: nn.triplet_margin(ROWS, ROWS, ROWS, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.dice(ROWS, ROWS, alpha=v), "alpha", (-1,), (0,)),
    (lambda v: nn.dice(ROWS, ROWS, beta=v), "beta", (-1,), (0,)),
    (lambda v: nn.dice(ROWS, ROWS, smooth=v), "smooth", (-1,), (0,)),
    (lambda v: nn.cosine_similarity(ROWS, ROWS, eps=v), "eps", (-1,), (1e-3,)),
    (lambda v: nn.cosine_distance(ROWS, ROWS, eps=v), "eps", (-1,), (1e-3,)),
    (lambda v: nn.ntxent(ROWS, LABELS, v), "temperature", (0, -1), (1,)),
    (lambda v: nn.LayerNorm(3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.RMSNorm(3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.GroupNorm(1, 3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.BatchNorm(3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.BatchNorm(3, momentum=v), "momentum", (-1, 2), (None, 0, 1)),
    (lambda v: nn.InstanceNorm(3, eps=v), "eps", (-1,), (0,)),
    (lambda v: nn.InstanceNorm(3, momentum=v), "momentum", (-1, 2), (0, 1)),
    (lambda v: nn.Dropout(v), "rate", (-0.1, 1.1), (0, 1)),
    (lambda v: nn.AlphaDropout(v), "rate", (-0.1, 1.1), (0, 1)),
    (lambda v: nn.DropPath(v), "rate", (-0.1, 1.1), (0, 1)),
    (
        lambda v: nn.MultiHeadAttention(4, 2, dropout=v, key=KEY),
        "dropout",
        (-0.1, 1.1),
        (0, 1),
    ),
    (
        lambda v: nn.MixtureOfExperts(4, experts=2, capacity_factor=v, key=KEY),
        "capacity_factor",
        (0, -1.0),
        (None, 0.5),
    ),
    (
        lambda v: nn.MixtureOfExperts(4, experts=2, jitter=v, key=KEY),
        "jitter",
        (-1, 2),
        (0, 0.1),
    ),
    (lambda v: augment.mixup(KEY, ONE, ONE, v), "alpha", (-1, 0), (0.2,)),
    (lambda v: augment.cutmix(KEY, ONE, ONE, v), "alpha", (-1, 0), (1,)),
    (lambda v: augment.random_flip(KEY, ONE, v), "p", (-0.1, 1.1), (0, 1)),
]


@pytest.mark.parametrize(("use", "name", "wrong", "right"), OPTIONS)
def test_what_is_out_of_range_is_refused(
    use: Any, name: str, wrong: tuple[Any, ...], right: tuple[Any, ...]
) -> None:
    for value in right:
        use(value)
    for value in (*wrong, float("nan")):
        with pytest.raises(ValueError, match=rf"{name}\b.* got {value}") as caught:
            use(value)
        assert __file__ in str(caught.value), "the user's line"


def test_labels_that_are_no_labels() -> None:
    with pytest.raises(TypeError, match=r"one_hot takes integer labels, got f32\[4\]"):
        nn.one_hot(X, 3)
    with pytest.raises(ValueError, match="no MixtureOfExperts in this Linear"):
        nn.balance_loss(nn.Linear(3, 4, key=KEY))

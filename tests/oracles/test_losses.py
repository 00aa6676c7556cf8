"""Every loss against Optax's, or a formula in JAX: values and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.scipy import stats
from optax import losses

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import agree, random
from treadle import nn

X = 2 * random(4, 5)
Y = random(4, 5, seed=1)
SIGNS = np.sign(Y)
BITS = (Y > 0).astype(np.float32)
LABELS = np.array([0, 4, 2, 2], np.int32)
P = np.array(jax.nn.softmax(Y))
LOG_P, LOG_Q = np.log(P), np.array(jax.nn.log_softmax(X))
WHERE = random(4, 5, seed=2) > -0.5
WEIGHTS = np.array([0.5, 2.0, 1.0, 0.0, 3.0], np.float32)
MAPS = random(2, 3, 4, 5)
CLASSES = np.random.default_rng(3).integers(0, 4, (2, 3, 4))
MASKS = np.eye(5, dtype=np.float32)[CLASSES]
IMPOSSIBLE = np.where(WHERE, X, -np.inf).astype(np.float32)
POSSIBLE = np.where(WHERE, P, 0).astype(np.float32)


def one_hot(labels: Any) -> Any:
    return jax.nn.one_hot(labels, 5)


def weighted(x: Any, q: Any) -> Any:
    return -(q * WEIGHTS * jax.nn.log_softmax(x)).sum(-1)


def softmax_focal(x: Any, labels: Any) -> Any:
    p = jnp.take_along_axis(jax.nn.softmax(x), labels[:, None], -1)[:, 0]
    return -((1 - p) ** 1.5) * jnp.log(p)


def multi_margin(x: Any, labels: Any) -> Any:
    mine = jnp.take_along_axis(x, labels[:, None], -1)
    inside = jnp.maximum(0.7 - mine + x, 0) ** 2
    return jnp.where(one_hot(labels) > 0, 0, inside).sum(-1) / 5


def triplet_of_order_3(a: Any, p: Any, n: Any) -> Any:
    near, far = [((abs(a - y) ** 3).sum(-1) + 1e-6) ** (1 / 3) for y in (p, n)]
    return jnp.maximum(near - far + 0.3, 0)


TABLE: dict[str, tuple[Callable, Callable, tuple]] = {
    "squared_error": (nn.squared_error, losses.squared_error, (X, Y)),
    "absolute_error": (nn.absolute_error, lambda x, y: abs(x - y), (X, Y)),
    "huber": (
        lambda x, y: nn.huber(x, y, 0.7),
        lambda x, y: losses.huber_loss(x, y, delta=0.7),
        (X, Y),
    ),
    "log_cosh": (nn.log_cosh, losses.log_cosh, (50 * X, Y)),
    "quantile_error": (
        lambda x, y: nn.quantile_error(x, y, 0.8),
        lambda x, y: jnp.where(y > x, 0.8 * (y - x), 0.2 * (x - y)),
        (X, Y),
    ),
    "gaussian_nll": (
        lambda x, y, v: nn.gaussian_nll(x, y, v, full=True),
        lambda x, y, v: -stats.norm.logpdf(y, x, jnp.sqrt(v)),
        (X, Y, P),
    ),
    "cross_entropy": (
        nn.cross_entropy,
        losses.softmax_cross_entropy_with_integer_labels,
        (X, LABELS),
    ),
    "cross_entropy of probabilities": (
        nn.cross_entropy,
        losses.softmax_cross_entropy,
        (X, P),
    ),
    "cross_entropy where": (
        # In the labels, the derivative of Optax is NaN.
        lambda x: nn.cross_entropy(x, P, where=WHERE),
        lambda x: losses.softmax_cross_entropy(x, P, where=WHERE),
        (X,),
    ),
    "cross_entropy with impossible classes": (
        lambda x: nn.cross_entropy(x, POSSIBLE),
        lambda x: losses.safe_softmax_cross_entropy(x, POSSIBLE),
        (IMPOSSIBLE,),
    ),
    "cross_entropy with weights": (
        lambda x, y: nn.cross_entropy(x, y, class_weights=WEIGHTS),
        lambda x, y: weighted(x, one_hot(y)),
        (X, LABELS),
    ),
    "cross_entropy with weights, smooth": (
        lambda x, y: nn.cross_entropy(x, y, 0.1, class_weights=WEIGHTS),
        lambda x, y: weighted(x, losses.smooth_labels(one_hot(y), 0.1)),
        (X, LABELS),
    ),
    "cross_entropy of lists": (
        lambda x, y: nn.cross_entropy(x, y, where=WHERE),
        lambda x, y: losses.ranking_softmax_loss(x, y, where=WHERE, reduce_fn=None),
        (X, abs(Y)),
    ),
    "binary_cross_entropy": (
        nn.binary_cross_entropy,
        losses.sigmoid_binary_cross_entropy,
        (20 * X, P),
    ),
    "binary_cross_entropy, smooth": (
        lambda x, y: nn.binary_cross_entropy(x, y, 0.2),
        lambda x, y: losses.sigmoid_binary_cross_entropy(x, 0.8 * y + 0.1),
        (X, BITS),
    ),
    "binary_cross_entropy with weights": (
        lambda x, y: nn.binary_cross_entropy(x, y, positive_weight=WEIGHTS),
        lambda x, y: (
            -WEIGHTS * y * jax.nn.log_sigmoid(x) - (1 - y) * jax.nn.log_sigmoid(-x)
        ),
        (20 * X, P),
    ),
    "poly_cross_entropy": (
        nn.poly_cross_entropy,
        losses.poly_loss_cross_entropy,
        (X, P),
    ),
    "poly_cross_entropy of numbers": (
        lambda x, y: nn.poly_cross_entropy(x, y, -0.5),
        lambda x, y: losses.poly_loss_cross_entropy(x, one_hot(y), epsilon=-0.5),
        (X, LABELS),
    ),
    "poly_cross_entropy where": (
        lambda x: nn.poly_cross_entropy(x, P, where=WHERE),
        lambda x: losses.poly_loss_cross_entropy(x, P, where=WHERE),
        (X,),
    ),
    "focal": (lambda x, y: nn.focal(x, y, 1.5), softmax_focal, (X, LABELS)),
    "focal without focus": (
        lambda x, y: nn.focal(x, y, 0.0, class_weights=WEIGHTS),
        weighted,
        (X, P),
    ),
    "binary_focal": (
        # Not in the labels, whose derivative at 0 and 1 Optax leaves out.
        lambda x: nn.binary_focal(x, BITS),
        lambda x: losses.sigmoid_focal_loss(x, BITS),
        (X,),
    ),
    "binary_focal with weights": (
        lambda x, y: nn.binary_focal(x, y, 0.5, 0.25),
        lambda x, y: losses.sigmoid_focal_loss(x, y, gamma=0.5, alpha=0.25),
        (X, 0.8 * BITS + 0.1),
    ),
    "kl_divergence": (
        nn.kl_divergence,
        losses.kl_divergence_with_log_targets,
        (LOG_Q, LOG_P),
    ),
    "kl_divergence of probabilities": (
        lambda q, p: nn.kl_divergence(q, tnp.log(p)),
        losses.kl_divergence,
        (LOG_Q, P),
    ),
    "kl_divergence where": (
        lambda q, p: nn.kl_divergence(q, p, where=WHERE),
        lambda q, p: losses.kl_divergence_with_log_targets(q, p, where=WHERE),
        (LOG_Q, LOG_P),
    ),
    "generalized_kl_divergence": (
        lambda q, p: nn.generalized_kl_divergence(q, tnp.log(p)),
        losses.generalized_kl_divergence,
        (X, P),
    ),
    "hinge": (nn.hinge, losses.hinge_loss, (X, SIGNS)),
    "squared_hinge": (
        nn.squared_hinge,
        lambda x, y: losses.hinge_loss(x, y) ** 2,
        (X, SIGNS),
    ),
    "multiclass_hinge": (
        nn.multiclass_hinge,
        losses.multiclass_hinge_loss,
        (X, LABELS),
    ),
    "multi_margin": (
        lambda x, y: nn.multi_margin(x, y, 0.7, 2),
        multi_margin,
        (X, LABELS),
    ),
    "margin_ranking": (
        lambda x, y, s: nn.margin_ranking(x, y, s, 0.3),
        lambda x, y, s: jnp.maximum(-s * (x - y) + 0.3, 0),
        (X, Y, SIGNS),
    ),
    "triplet_margin": (nn.triplet_margin, losses.triplet_margin_loss, (X, Y, 2 * P)),
    "triplet_margin of order 3": (
        lambda a, p, n: nn.triplet_margin(a, p, n, 0.3, order=3.0),
        triplet_of_order_3,
        (X, Y, 2 * P),
    ),
    "cosine_similarity": (nn.cosine_similarity, losses.cosine_similarity, (X, Y)),
    "cosine_similarity where": (
        lambda x, y: nn.cosine_similarity(x, y, where=WHERE),
        lambda x, y: losses.cosine_similarity(x, y, where=WHERE),
        (X, Y),
    ),
    "cosine_distance": (nn.cosine_distance, losses.cosine_distance, (X, Y)),
    "dice": (
        lambda x, t: nn.dice(nn.softmax(x), t).mean(-1),
        losses.dice_loss,
        (MAPS, MASKS),
    ),
    "dice of Tversky": (
        lambda x, t: tnp.average(
            nn.dice(nn.softmax(x), t, alpha=0.3, beta=0.7, smooth=0.1)[:, 1:],
            axis=-1,
            weights=tnp.asarray(WEIGHTS[1:]).astype(x.dtype),
        ),
        lambda x, t: losses.dice_loss(
            x, t, alpha=0.3, beta=0.7, smooth=0.1, ignore_background=True,
            class_weights=WEIGHTS / WEIGHTS[1:].mean(),
        ),
        (MAPS, MASKS),
    ),
    "dice of bits": (
        lambda x, t: nn.dice(nn.sigmoid(x[..., None]), t[..., None])[:, 0],
        losses.binary_dice_loss,
        (MAPS, MASKS),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_losses_are_theirs(name: str) -> None:
    ours, theirs, args = TABLE[name]
    agree(ours, theirs, *args)


def test_ntxent_is_optax_mean_over_pairs() -> None:
    vectors, labels = random(7, 3), np.array([0, 1, 0, 2, 1, 0, 3])
    pairs = np.array([2, 1, 2, 0, 1, 2, 0])
    agree(
        lambda x: tnp.average(nn.ntxent(x, labels, 0.3), weights=pairs),
        lambda x: losses.ntxent(x, labels, 0.3),
        vectors,
    )


def test_generalized_dice_by_weights() -> None:
    def ours(x: Any) -> Any:
        weights = 1 / (MASKS.sum((0, 1, 2)) ** 2 + 1e-7)
        return tnp.average(nn.dice(nn.softmax(x), MASKS), axis=-1, weights=weights)

    def theirs(x: Any) -> Any:
        return losses.multiclass_generalized_dice_loss(x, MASKS)

    agree(lambda x: ours(x).mean(), theirs, MAPS)


LENGTHS = np.array([9, 6, 4, 9], np.int32), np.array([3, 3, 0, 2], np.int32)
SPELLED = np.array([[1, 2, 2], [3, 1, 3], [2, 2, 2], [4, 4, 1]], np.int32)


def test_ctc_is_optax() -> None:
    frames, letters = LENGTHS
    paddings = [
        (np.arange(n) >= ends[:, None]).astype(np.float32)
        for n, ends in ((9, frames), (3, letters))
    ]
    agree(
        lambda x: nn.ctc(x, SPELLED, frames, letters),
        lambda x: optax.ctc_loss(x, paddings[0], SPELLED, paddings[1]),
        3 * random(4, 9, 5),
    )


@pytest.mark.parametrize("name", TABLE)
def test_halves_are_computed_in_float32(name: str) -> None:
    ours, _, args = TABLE[name]
    halves = [
        tnp.asarray(a).astype(tnp.bfloat16) if a.dtype == np.float32 else a
        for a in args
    ]
    wide = [np.asarray(h, np.float32) if h.dtype == td.bfloat16 else h for h in halves]
    found, expected = ours(*halves), ours(*map(tnp.asarray, wide))
    assert found.dtype == td.bfloat16
    tolerance = 2e-2 if "dice" in name or "log" in name else 8e-3
    np.testing.assert_allclose(
        np.asarray(found, np.float32), expected, rtol=tolerance, atol=tolerance
    )

"""Losses against Optax, in values and gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import agree, random
from treadle import nn

LABELS = np.array([[0, 3, 2], [1, 1, 0]], np.int32)


def test_cross_entropy_of_integer_labels():
    agree(
        nn.cross_entropy,
        optax.softmax_cross_entropy_with_integer_labels,
        5 * random(2, 3, 4),
        LABELS,
    )


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_labels_of_any_integer_dtype(dtype):
    logits = tnp.asarray(random(2, 3, 4))
    found = nn.cross_entropy(logits, tnp.asarray(LABELS.astype(dtype)))
    assert found.tolist() == nn.cross_entropy(logits, tnp.asarray(LABELS)).tolist()


def test_cross_entropy_of_probabilities():
    labels = np.array(jax.nn.softmax(random(2, 3, 4, seed=1)))
    agree(nn.cross_entropy, optax.softmax_cross_entropy, 5 * random(2, 3, 4), labels)


@pytest.mark.parametrize("smoothing", [0.1, 1.0])
def test_smoothing(smoothing):
    def theirs(logits, labels):
        smooth = optax.smooth_labels(jax.nn.one_hot(labels, 4), smoothing)
        return optax.softmax_cross_entropy(logits, smooth)

    logits = random(2, 3, 4)
    agree(lambda x, y: nn.cross_entropy(x, y, smoothing), theirs, logits, LABELS)
    agree(
        lambda x: nn.cross_entropy(x, nn.one_hot(LABELS, 4), smoothing),
        lambda x: theirs(x, LABELS),
        logits,
    )


def test_cross_entropy_is_stable():
    logits = np.array([[1e4, -1e4], [0, -np.inf]], np.float32)
    labels = np.zeros(2, np.int32)
    agree(
        nn.cross_entropy,
        optax.softmax_cross_entropy_with_integer_labels,
        logits,
        labels,
    )


PAIRS = {
    "binary_cross_entropy": optax.sigmoid_binary_cross_entropy,
    "squared_error": optax.squared_error,
    "absolute_error": lambda x, y: jnp.abs(x - y),
    "huber": optax.huber_loss,
}


@pytest.mark.parametrize("name", PAIRS)
def test_elementwise(name):
    target = np.abs(random(3, 4, seed=1)) % 1
    agree(getattr(nn, name), PAIRS[name], 3 * random(3, 4), target)


def test_integer_targets():
    agree(
        lambda x: nn.binary_cross_entropy(x, np.array([0, 1])),
        lambda x: optax.sigmoid_binary_cross_entropy(x, jnp.array([0.0, 1.0])),
        random(2),
    )


def test_kl_divergence():
    logs = [np.array(jax.nn.log_softmax(random(3, 4, seed=s))) for s in (0, 1)]
    agree(nn.kl_divergence, lambda q, p: (jnp.exp(p) * (p - q)).sum(-1), *logs)


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"logits f32\[2,3,4\] and labels i32\[2\]"):
        nn.cross_entropy(tnp.ones((2, 3, 4)), tnp.zeros(2, tnp.int32))
    for name in PAIRS:
        with pytest.raises(ValueError, match=rf"{name} takes two arrays of one shape"):
            getattr(nn, name)(tnp.ones((3, 1)), tnp.ones(3))


def test_small_labels_of_many_classes():
    logits, labels = tnp.asarray(random(2, 300)), tnp.array([3, 250], "uint8")
    expected = nn.cross_entropy(logits, labels.astype("int32"))
    assert nn.cross_entropy(logits, labels).tolist() == expected.tolist()


def test_large_logits_lose_no_digits():
    logits = np.float32([[3e4, 3e4, 0], [3e4, 3e4 + 2, 0]])
    found = nn.cross_entropy(tnp.asarray(logits), tnp.array([0, 0]))
    exact = -jax.nn.log_softmax(logits)[:, 0]
    np.testing.assert_allclose(found, exact, 1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_labels_that_are_no_class(smoothing):
    logits, labels = tnp.asarray(random(4, 3)), tnp.array([1, -100, 3, -1])

    def loss(logits):
        losses = nn.cross_entropy(logits, labels, smoothing)
        return tnp.where(labels == 1, losses, 0).sum()

    found = nn.cross_entropy(logits, labels, smoothing)
    assert np.isnan(found).tolist() == [False, True, True, True]
    grads = np.asarray(td.grad(loss)(logits))
    assert grads[0].any() and not grads[1:].any()


def test_halves_have_losses_computed_in_float32():
    logits = tnp.zeros((1, 70000), tnp.float16)
    found = nn.cross_entropy(logits, tnp.array([5]))
    assert found.dtype == tnp.float16
    assert found.item() == pytest.approx(np.log(70000), rel=1e-3)


def test_divergence_from_what_has_impossible_classes():
    p, q = np.float32([[0, 0.5, 0.5]]), np.float32([[0.2, 0.3, 0.5]])
    with np.errstate(divide="ignore"):
        log_p, log_q = tnp.asarray(np.log(p)), tnp.asarray(np.log(q))
    expected = optax.losses.kl_divergence(np.log(q), p)
    assert nn.kl_divergence(log_q, log_p).item() == pytest.approx(expected.item())
    grads = td.grad(lambda x: nn.kl_divergence(x, log_p).sum())(log_q)
    np.testing.assert_allclose(grads, -p)

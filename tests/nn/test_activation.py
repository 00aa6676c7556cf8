"""Activations against JAX's, in values and gradients, far out and at the kinks."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import agree, close, random
from treadle import nn, rng

WHERE = np.arange(8) % 3 > 0


def within(library, np, name):
    """A function of the elements that count, with 0 for infinities."""

    def function(x):
        out = getattr(library, name)(x, -1, where=WHERE)
        return np.where(np.isfinite(out), out, 0)

    return function


PAIRS = {
    "relu": (nn.relu, jax.nn.relu),
    "relu6": (nn.relu6, jax.nn.relu6),
    "leaky_relu": (nn.leaky_relu, jax.nn.leaky_relu),
    "elu": (nn.elu, jax.nn.elu),
    "celu": (nn.celu, jax.nn.celu),
    "celu_alpha": (lambda x: nn.celu(x, 2.5), lambda x: jax.nn.celu(x, 2.5)),
    "hard_sigmoid": (nn.hard_sigmoid, jax.nn.hard_sigmoid),
    "hard_silu": (nn.hard_silu, jax.nn.hard_silu),
    "hard_tanh": (nn.hard_tanh, jax.nn.hard_tanh),
    "sparse_plus": (nn.sparse_plus, jax.nn.sparse_plus),
    "sparse_sigmoid": (nn.sparse_sigmoid, jax.nn.sparse_sigmoid),
    "squareplus": (nn.squareplus, jax.nn.squareplus),
    "squareplus_b": (
        lambda x: nn.squareplus(x, 1.0),
        lambda x: jax.nn.squareplus(x, 1.0),
    ),
    "selu": (nn.selu, jax.nn.selu),
    "gelu": (nn.gelu, jax.nn.gelu),
    "gelu_exact": (
        lambda x: nn.gelu(x, approximate=False),
        lambda x: jax.nn.gelu(x, approximate=False),
    ),
    "sigmoid": (nn.sigmoid, jax.nn.sigmoid),
    "log_sigmoid": (nn.log_sigmoid, jax.nn.log_sigmoid),
    "silu": (nn.silu, jax.nn.silu),
    "softplus": (nn.softplus, jax.nn.softplus),
    "softsign": (nn.softsign, jax.nn.soft_sign),
    "mish": (nn.mish, jax.nn.mish),
    "tanh": (nn.tanh, jnp.tanh),
    "glu": (nn.glu, jax.nn.glu),
    "swiglu": (nn.swiglu, lambda x: jax.nn.silu(x[..., :4]) * x[..., 4:]),
    "standardize": (nn.standardize, jax.nn.standardize),
    "log1mexp": (
        lambda x: nn.log1mexp(tnp.abs(x) + 1e-3),
        lambda x: jax.nn.log1mexp(jnp.abs(x) + 1e-3),
    ),
    "logmeanexp": (nn.logmeanexp, lambda x: jax.nn.logmeanexp(x, -1)),
    "softmax": (nn.softmax, jax.nn.softmax),
    "softmax_axis": (lambda x: nn.softmax(x, 0), lambda x: jax.nn.softmax(x, 0)),
    "log_softmax": (nn.log_softmax, jax.nn.log_softmax),
    "logsumexp": (nn.logsumexp, lambda x: jax.nn.logsumexp(x, -1)),
    **{
        f"{name}_where": (within(nn, tnp, name), within(jax.nn, jnp, name))
        for name in ("softmax", "log_softmax", "logsumexp", "logmeanexp", "standardize")
    },
    "standardize_given": (
        lambda x: nn.standardize(x, mean=0.5, variance=2.0),
        lambda x: jax.nn.standardize(x, mean=jnp.float32(0.5), variance=2.0),
    ),
    "logsumexp_keepdims": (
        lambda x: nn.logsumexp(x, 0, keepdims=True),
        lambda x: jax.nn.logsumexp(x, 0, keepdims=True),
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_agrees_with_jax(name):
    ours, theirs = PAIRS[name]
    agree(ours, theirs, np.concatenate([3 * random(5, 8), 40 * random(2, 8, seed=1)]))


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "elu", "selu"])
def test_kinks(name):
    """The derivative at 0 is that of the flat side, as JAX and PyTorch have it."""
    ours, theirs = PAIRS[name]
    x = np.array([0.0, -0.0, 6.0], np.float32)
    if name == "leaky_relu":  # JAX takes the slope of the right at 0
        x = x[2:]
    agree(ours, theirs, x)


def test_relu_keeps_nan_and_dtype():
    assert np.isnan(nn.relu(tnp.array([np.nan])).item())
    for dtype in (tnp.bfloat16, tnp.float16, tnp.float64, tnp.int32):
        assert nn.relu(tnp.ones(2, dtype)).dtype == dtype
        assert td.dtypes.is_integer(dtype) or nn.gelu(tnp.ones(2, dtype)).dtype == dtype


def test_softmax_of_extremes():
    x = np.array([[1e30, -1e30, 0], [-np.inf, 0, -np.inf]], np.float32)
    close(nn.softmax(tnp.asarray(x)), jax.nn.softmax(x))
    close(nn.log_softmax(tnp.asarray(x)), jax.nn.log_softmax(x))
    nothing = np.full((2, 3), -np.inf, np.float32)
    close(nn.logsumexp(tnp.asarray(nothing)), jax.nn.logsumexp(nothing, -1))


def test_softmax_of_no_elements_that_count():
    x, where = np.ones((2, 3), np.float32), np.array([[True], [False]])
    for name in ("softmax", "log_softmax", "logsumexp"):
        ours, theirs = getattr(nn, name), getattr(jax.nn, name)
        close(ours(tnp.asarray(x), -1, where=where), theirs(x, -1, where=where))
    slope = td.grad(lambda x: (nn.softmax(x, where=where) ** 2).sum())(x)
    close(slope, np.zeros((2, 3), np.float32))


def test_one_hot():
    labels = np.array([[0, 2], [5, -1]])
    for axis in (0, 1, 2):
        expected = jax.nn.one_hot(labels, 3, axis=axis)
        close(nn.one_hot(labels, 3, axis=axis), expected)
    close(nn.one_hot(tnp.asarray(labels), 3), jax.nn.one_hot(labels, 3))
    assert nn.one_hot(tnp.asarray(labels), 3, tnp.int8).dtype == tnp.int8


@pytest.mark.parametrize("name", ["glu", "swiglu", "geglu", "reglu"])
def test_gates_need_an_even_length(name):
    with pytest.raises(ValueError, match=rf"{name} halves.*f32\[2,3\] and axis -1"):
        getattr(nn, name)(tnp.ones((2, 3)))


def test_log1mexp_of_extremes():
    x = np.array([1e-30, 1e-6, 80.0, np.inf], np.float32)
    expected = np.log(-np.expm1(-x.astype(np.float64)))
    close(nn.log1mexp(tnp.asarray(x)), expected.astype(np.float32))
    assert td.grad(nn.log1mexp)(tnp.asarray(np.inf)).item() == 0


@pytest.mark.parametrize("hard", [False, True])
def test_a_random_choice_with_derivatives(hard):
    x, key = random(3, 4), jax.random.key(5)

    def theirs(x):
        soft = jax.nn.softmax((x + jax.random.gumbel(key, x.shape)) / 0.5, 0)
        rigid = jax.nn.one_hot(soft.argmax(0), 3, axis=0)
        return soft + jax.lax.stop_gradient(rigid - soft) if hard else soft

    def ours(x):
        return nn.gumbel_softmax(x, rng.key(5), 0.5, hard, axis=0)

    agree(ours, theirs, x)
    assert ours(tnp.asarray(x, tnp.bfloat16)).dtype == tnp.bfloat16


def test_choices_are_as_often_as_their_scores_say():
    odds = np.array([0.1, 0.2, 0.7], np.float32)
    x = tnp.broadcast_to(tnp.log(odds), (20_000, 3))
    found = nn.gumbel_softmax(x, rng.key(0), hard=True).mean(0)
    np.testing.assert_allclose(found, odds, atol=0.01)


@pytest.mark.parametrize("order", [1, 2, 3, np.inf])
def test_normalize(order):
    def theirs(x):
        return x / jnp.linalg.norm(x, order, axis=1, keepdims=True)

    agree(lambda x: nn.normalize(x, 1, order), theirs, random(3, 4, 2))


def test_short_vectors():
    x = tnp.array([[0.0, 0.0], [1e-20, 0.0]])
    assert nn.normalize(x, eps=1e-10).tolist() == [[0, 0], [pytest.approx(1e-10), 0]]
    grads = td.grad(lambda x: nn.normalize(x).sum())(tnp.zeros(2))
    assert np.isfinite(np.asarray(grads)).all()
    half = nn.normalize(tnp.full((70_000,), 8.0, tnp.float16))
    assert half.dtype == tnp.float16
    assert half[0].item() == pytest.approx(70_000**-0.5, rel=1e-2)


@pytest.mark.parametrize("name", ["relu", "relu6", "leaky_relu", "elu", "selu", "silu"])
@pytest.mark.parametrize("x", [-1.5, 2.5])
def test_python_numbers(name, x):
    close(getattr(nn, name)(x), getattr(jax.nn, name)(x))


def test_halves_are_summed_in_float32():
    x = tnp.zeros((2, 70000), tnp.float16)
    assert nn.softmax(x).dtype == tnp.float16
    assert nn.softmax(x).sum(-1, dtype=tnp.float32).tolist() == pytest.approx(
        [1] * 2, 0.01
    )
    for function in (nn.log_softmax, lambda x: -nn.logsumexp(x, keepdims=True)):
        assert function(x)[0, 0].item() == pytest.approx(-np.log(70000), rel=1e-3)


def test_nothing_to_choose_from():
    x = tnp.ones((3, 0))
    assert nn.softmax(x).shape == nn.log_softmax(x).shape == (3, 0)
    assert nn.logsumexp(x).tolist() == [-np.inf] * 3


def test_softmax_over_two_axes():
    x = random(2, 3, 4)
    agree(lambda x: nn.softmax(x, (0, 2)), lambda x: jax.nn.softmax(x, (0, 2)), x)


INTEGERS = "leaky_relu celu gelu quick_gelu hard_sigmoid hard_silu soft_shrink"


@pytest.mark.parametrize("name", [*INTEGERS.split(), "sparse_plus", "sparse_sigmoid"])
def test_integers_of_numpys_are_as_ours(name: str) -> None:
    f, x = getattr(nn, name), np.arange(-3, 4)
    found, wanted = f(x), f(tnp.array(x))
    assert found.dtype == wanted.dtype == np.float32
    close(found, wanted)

"""A sample of the names that the pages call the same, or another name of ours: called
with the same arguments, both do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import treadle.numpy as tnp
from tests.nn.oracle import random
from tests.parity.names import resolve, row
from treadle import tree

X, Y = 2 * random(4, 5), random(4, 5, seed=1)
P = np.array(jax.nn.softmax(Y))
SIGNS = np.sign(Y)
LABELS = np.array([0, 4, 2, 2])
IMAGE = random(2, 4, 6, 3)
HEADS = random(2, 5, 3, 4)


def plain(f: Any, *args: Any) -> Any:
    return f(*args)


def mean(f: Any, *args: Any) -> Any:
    """Of what PyTorch gives the mean of already."""
    return f(*args).mean()


def made(*options: Any) -> Callable[..., Any]:
    """Of what is made with options, and then called: layers, schedules."""
    return lambda f, *args: f(*options)(*args)


def steps(*options: Any) -> Callable[..., Any]:
    """The updates of three steps of a gradient transform."""

    def go(f: Any, params: Any, grads: Any) -> list[Any]:
        transform = f(*options)
        state, updates = transform.init(params), []
        for factor in (1.0, -0.3, 2.0):
            step, state = transform.update(factor * grads, state, params)
            updates.append(step)
        return updates

    return go


def of_function(f: Any, *args: Any) -> Any:
    """A transform of a function that is written alike everywhere."""
    return f(lambda x: (x**3 + 2 * x).sum())(*args)


def by_rows(f: Any, *args: Any) -> Any:
    return f(lambda x: x * x.sum())(*args)


def pushed(f: Any, x: Any, tangent: Any) -> Any:
    return f(lambda x: x**3, (x,), (tangent,))


def pulled(f: Any, x: Any, cotangent: Any) -> Any:
    value, back = f(lambda x: x**3, x)
    return value, back(cotangent)[0]


ELEMENTWISE = [
    "jax.nn.soft_sign",
    "jax.nn.swish",
    "jax.nn.hard_swish",
    "jax.nn.squareplus",
    "jax.lax.bessel_i0e",
    "flax.nnx.relu",
    "flax.nnx.gelu",
    "flax.nnx.silu",
    "flax.nnx.swish",
    "flax.nnx.leaky_relu",
    "flax.nnx.log_softmax",
    "flax.nnx.standardize",
    "flax.nnx.hard_tanh",
    "flax.nnx.hard_swish",
    "flax.nnx.celu",
    "flax.nnx.soft_sign",
    "torch.nn.functional.hardshrink",
    "torch.nn.functional.hardsigmoid",
    "torch.nn.functional.hardswish",
    "torch.nn.functional.hardtanh",
    "torch.nn.functional.logsigmoid",
    "torch.nn.functional.mish",
    "torch.nn.functional.softsign",
    "torch.nn.functional.softshrink",
    "torch.nn.functional.tanhshrink",
    "torch.nn.functional.leaky_relu",
    "torch.nn.functional.selu",
    "torch.nn.functional.relu6",
    "torch.nn.functional.softplus",
]
SAMPLE: dict[str, tuple[Callable, tuple]] = {
    **{name: (plain, (X,)) for name in ELEMENTWISE},
    "jax.lax.igamma": (plain, (abs(X), abs(Y))),
    "jax.lax.betainc": (plain, (abs(X), abs(Y), P)),
    "jax.lax.zeta": (plain, (1.1 + abs(X), 0.1 + abs(Y))),
    "jax.tree_util.tree_leaves": (plain, ([X, (Y, X)],)),
    "jax.tree_util.tree_map": (lambda f, x, y: f(lambda a, b: a - b, x, y), (X, Y)),
    "jax.flatten_util.ravel_pytree": (lambda f, x: f(x)[0], ([X, Y],)),
    "equinox.filter_jit": (by_rows, (X,)),
    "equinox.filter_vmap": (by_rows, (X,)),
    "equinox.filter_grad": (of_function, (X,)),
    "equinox.filter_value_and_grad": (of_function, (X,)),
    "equinox.filter_hessian": (of_function, (X[0],)),
    "equinox.filter_jacfwd": (by_rows, (X[0],)),
    "equinox.filter_jvp": (pushed, (X, Y)),
    "equinox.filter_vjp": (pulled, (X, Y)),
    "equinox.filter_checkpoint": (by_rows, (X,)),
    "equinox.apply_updates": (plain, ([X, Y], [Y, None])),
    "equinox.combine": (plain, ([X, None], [None, Y])),
    "equinox.tree_equal": (plain, ([X, Y], [X, Y])),
    "equinox.is_array": (plain, (X,)),
    "equinox.nn.Identity": (made(), (X,)),
    "equinox.nn.LayerNorm": (made(5), (X[0],)),
    "equinox.nn.RMSNorm": (made(5), (X[0],)),
    "equinox.nn.GroupNorm": (made(1, 5), (X[0],)),
    "flax.nnx.one_hot": (lambda f, x: f(x, 5), (LABELS,)),
    "flax.nnx.dot_product_attention": (plain, (HEADS, HEADS**2, 1 - HEADS)),
    "flax.nnx.grad": (of_function, (X,)),
    "flax.nnx.vmap": (by_rows, (X,)),
    "flax.nnx.cond": (lambda f, x: f(True, lambda x: 2 * x, lambda x: x, x), (X,)),
    "flax.nnx.fori_loop": (lambda f, x: f(0, 3, lambda i, x: x * x - i, x), (Y,)),
    "flax.nnx.while_loop": (
        lambda f, x: f(lambda x: x.sum() < 9, lambda x: x + 0.1, x),
        (X,),
    ),
    "torch.nn.functional.softmin": (lambda f, x: f(x, -1), (X,)),
    "torch.nn.functional.mse_loss": (mean, (X, Y)),
    "torch.nn.functional.l1_loss": (mean, (X, Y)),
    "torch.nn.functional.huber_loss": (mean, (X, Y)),
    "torch.nn.functional.smooth_l1_loss": (mean, (X, Y)),
    "torch.nn.functional.gaussian_nll_loss": (mean, (X, Y, P)),
    "torch.nn.functional.poisson_nll_loss": (mean, (X, P)),
    "torch.nn.functional.margin_ranking_loss": (mean, (X, Y, SIGNS)),
    "torch.nn.functional.triplet_margin_loss": (mean, (X, Y, P)),
    "torch.nn.functional.multi_margin_loss": (mean, (X, LABELS)),
    "torch.nn.functional.hinge_embedding_loss": (mean, (abs(X), SIGNS)),
    "torch.nn.functional.cosine_embedding_loss": (mean, (X, Y, SIGNS[:, 0])),
    "torch.nn.functional.nll_loss": (mean, (np.log(P), LABELS)),
    "torch.nn.functional.binary_cross_entropy_with_logits": (mean, (X, P)),
    "torch.nn.Identity": (made(), (X,)),
    "torch.nn.Flatten": (made(), (IMAGE,)),
    "torch.nn.Unflatten": (made(2, (2, 3)), (IMAGE,)),
    "torch.nn.LayerNorm": (made(5), (X,)),
    "torch.nn.init.calculate_gain": (lambda f: f("relu"), ()),
    "torch.nn.utils.get_total_norm": (plain, ([X, Y],)),
    "torch.func.grad": (of_function, (X,)),
    "torch.func.hessian": (of_function, (X[0],)),
    "torch.func.vmap": (by_rows, (X,)),
    "torch.func.jvp": (pushed, (X, Y)),
    "torch.func.vjp": (pulled, (X, Y)),
    "optax.sgd": (steps(0.1, 0.9), (X, Y)),
    "optax.adam": (steps(0.1), (X, Y)),
    "optax.adamw": (steps(0.1), (X, Y)),
    "optax.adabelief": (steps(0.1), (X, Y)),
    "optax.adagrad": (steps(0.1), (X, Y)),
    "optax.lamb": (steps(0.1), (X, Y)),
    "optax.lion": (steps(0.1), (X, Y)),
    "optax.rmsprop": (steps(0.1), (X, Y)),
    "optax.yogi": (steps(0.1), (X, Y)),
    "optax.clip_by_global_norm": (steps(1.0), (X, Y)),
    "optax.trace": (steps(0.9), (X, Y)),
    "optax.ema": (steps(0.9), (X, Y)),
    "optax.contrib.normalize": (steps(), (X, Y)),
    "optax.contrib.ademamix": (steps(0.1), (X, Y)),
    "optax.huber_loss": (plain, (X, Y)),
    "optax.hinge_loss": (plain, (X, SIGNS)),
    "optax.log_cosh": (plain, (X, Y)),
    "optax.cosine_distance": (plain, (X, Y)),
    "optax.softmax_cross_entropy": (plain, (X, P)),
    "optax.softmax_cross_entropy_with_integer_labels": (plain, (X, LABELS)),
    "optax.sigmoid_binary_cross_entropy": (plain, (X, P)),
    "optax.losses.ranking_softmax_loss": (mean, (X, P)),
    "optax.losses.kl_divergence_with_log_targets": (
        plain,
        (np.log(P), np.log(P[::-1])),
    ),
    "optax.linear_schedule": (made(1.0, 0.1, 10), (4,)),
    "optax.cosine_decay_schedule": (made(1.0, 10, 0.1), (4,)),
    "optax.exponential_decay": (made(1.0, 10, 0.5), (4,)),
    "optax.polynomial_schedule": (made(1.0, 0.1, 2.0, 10), (4,)),
    "optax.warmup_cosine_decay_schedule": (made(0.0, 1.0, 3, 10), (7,)),
    "optax.piecewise_constant_schedule": (made(1.0, {3: 0.5}), (4,)),
    "optax.tree.add_scale": (plain, ([X], 2.0, [Y])),
    "optax.tree.vdot": (plain, ([X, Y], [Y, Y])),
    "optax.tree.norm": (plain, ([X, Y],)),
    "optax.safe_norm": (lambda f, x: f(x, 0.0), (X,)),
    "optax.safe_root_mean_squares": (lambda f, x: f(x, 0.0), (X,)),
}


def called(name: str, arrays: Callable[[Any], Any], f: Any) -> list[np.ndarray]:
    call, args = SAMPLE[name]
    made_of = [_converted(arrays, x) for x in args]
    return [np.asarray(x) for x in _leaves(call(f, *made_of))]


def _converted(arrays: Callable[[Any], Any], x: Any) -> Any:
    if isinstance(x, list | tuple):
        return type(x)([_converted(arrays, part) for part in x])
    return arrays(x) if isinstance(x, np.ndarray) else x


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, torch.Tensor):
        return [x.detach().numpy()]
    if isinstance(x, list | tuple):
        return [leaf for part in x for leaf in _leaves(part)]
    return tree.leaves(x)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
@pytest.mark.parametrize("name", SAMPLE)
def test_it_is_what_the_page_says(name: str) -> None:
    judged = row(name)
    assert judged.verdict in ("same", "other name", "better")
    theirs = torch.tensor if name.startswith("torch") else jnp.asarray
    expected = called(name, theirs, resolve(name))
    found = called(name, tnp.asarray, resolve(judged.ours))
    assert len(found) == len(expected) > 0
    for mine, other in zip(found, expected, strict=True):
        assert mine.shape == other.shape
        np.testing.assert_allclose(mine, other, rtol=2e-5, atol=1e-6)

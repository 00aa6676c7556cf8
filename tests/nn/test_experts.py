"""Mixtures of experts against loops over tokens."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import nn, rng, tree

KEY = rng.key(0)


def make(**options):
    # Large weights, so that loads are uneven.
    draw = nn.init.normal(0.5)
    return nn.MixtureOfExperts(6, 5, experts=4, weight_init=draw, key=KEY, **options)


def by_hand(layer, x, capacity):
    """Tokens in their order, first choices first."""
    weights = {k: np.asarray(getattr(layer, k)) for k in ("up", "down")}
    gate = None if layer.gate is None else np.asarray(layer.gate)
    logits = x @ np.asarray(layer.router.weight)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    order = np.argsort(-p, -1, kind="stable")[:, : layer.top_k]
    taken, out = np.zeros(layer.experts, int), np.zeros_like(x)
    for choice in range(layer.top_k):
        for t, e in enumerate(order[:, choice]):
            taken[e] += 1
            if taken[e] > capacity:
                continue
            up = x[t] @ weights["up"][e]
            opened = up if gate is None else x[t] @ gate[e]
            hidden = np.asarray(jax.nn.silu(opened)) * (1 if gate is None else up)
            share = p[t, e] / (p[t, order[t]].sum() if layer.normalized else 1)
            out[t] += share * (hidden @ weights["down"][e])
    return out, taken


@pytest.mark.parametrize("top_k", [1, 3])
def test_experts(top_k):
    layer = make(gated=top_k > 1, top_k=top_k, normalized=top_k > 1)
    x = random(10, 6)
    expected, taken = by_hand(layer, x, 1000)
    close(nn.inference(layer)(x), expected, 1e-4)
    enough = layer.replace(capacity_factor=4.0, inference=True)
    close(enough(x), expected, 1e-4)
    for factor in (0.5, 0.83):
        limited = layer.replace(capacity_factor=factor, inference=True)
        capacity = int(np.ceil(factor * 10 * top_k / 4 - 1e-9))
        assert taken.max() > capacity
        close(td.jit(lambda m: m(x))(limited), by_hand(layer, x, capacity)[0], 1e-4)


def test_all_tokens_may_choose_one_expert():
    layer = nn.inference(make(top_k=1))
    x = np.tile(random(1, 6), (50, 1))
    expected, taken = by_hand(layer, x, 1000)
    assert sorted(taken) == [0, 0, 0, 50]
    close(layer(x), expected, 1e-4)


def test_operations_are_those_of_the_chosen_experts():
    x = random(512, 64)

    def flops(experts, top_k):
        layer = nn.MixtureOfExperts(64, 128, experts=experts, top_k=top_k, key=KEY)
        run = td.jit(lambda layer: nn.inference(layer)(x))
        return run.lower(layer).cost_analysis().flops

    chosen = 512 * 2 * 3 * 64 * 128
    assert flops(8, 1) / chosen < 1.6 and flops(32, 1) / chosen < 1.9
    assert 1.9 < flops(8, 2) / flops(8, 1) < 2.1


def test_gradients_with_a_capacity():
    """Where there is room for all, those without one."""
    layer, x = make(), tnp.asarray(random(3, 4, 6))

    def loss(layer, x):
        return (nn.inference(layer)(x) ** 2).sum()

    wanted = td.grad(loss, (0, 1))(layer, x)
    found = td.jit(td.grad(loss, (0, 1)))(layer.replace(capacity_factor=4.0), x)
    pairs = zip(tree.leaves(found), tree.leaves(wanted), strict=True)
    for a, b in pairs:
        close(a, b, 1e-4)


def test_balance():
    layer, x = make(top_k=2), random(10, 6)

    def formula(w):
        p = jax.nn.softmax(x @ w)
        _, chosen = jax.lax.top_k(p, 2)
        share = jax.nn.one_hot(chosen, 4).sum(1).mean(0)
        return 4 * (share * p.mean(0)).sum()

    def ours(layer):
        return nn.balance_loss([nn.stateful(layer)(x)[1]])

    value, grads = jax.jit(jax.value_and_grad(formula))(
        jnp.asarray(layer.router.weight)
    )
    close(ours(layer), value, 1e-5)
    close(td.jit(td.grad(ours))(layer).router.weight, grads, 1e-5)
    close(nn.balance_loss(layer), np.float32(0))
    nn.inference(layer)(x)
    with pytest.raises(RuntimeError, match="outside of a scope"):
        layer(x)


def test_jitter():
    layer, x = make(jitter=0.5), random(10, 6)
    outs = [nn.stateful(layer, key=rng.key(i))(x)[0] for i in (1, 2, 1)]
    assert float(abs(outs[0] - outs[1]).max()) > 1e-3
    close(outs[0], outs[2])
    close(nn.inference(layer)(x), nn.inference(make())(x))


def test_errors():
    with pytest.raises(ValueError, match="top_k=5 of experts=4"):
        make(top_k=5)
    with pytest.raises(ValueError, match="capacity_factor is more than 0"):
        make(capacity_factor=0)

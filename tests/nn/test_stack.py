"""Stacked layers: as a plain loop over them."""

from __future__ import annotations

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import nn, rng, tree

KEY = rng.key(0)
X = random(8, 4)


class Block(nn.Module):
    linear: nn.Linear
    norm: nn.BatchNorm
    drop: nn.Dropout
    calls: nn.State

    def __init__(self, key):
        self.linear = nn.Linear(4, 4, key=key)
        self.norm, self.drop = nn.BatchNorm(4), nn.Dropout(0.5)
        self.calls = nn.State(0)

    def __call__(self, x, power, scale=1.0, cache=None):
        if not self.drop.inference:
            self.calls.value = self.calls.value + 1
        y = self.drop(nn.relu(self.norm(self.linear(x)))) * scale
        x = x + nn.record("branch", y) ** power
        return x if cache is None else (x, {"sum": cache + x.sum()})


class Loop(nn.Module):
    """What a stack means."""

    layers: list

    def __call__(self, x, *args, each):
        extras = []
        for i, layer in enumerate(self.layers):
            x = layer(x, *args, **{k: v[i] for k, v in each.items()})
            if isinstance(x, tuple):
                x, extra = x
                extras.append(extra)
        if not extras:
            return x
        return x, tree.map(lambda *rows: tnp.stack(rows), *extras)


LOOP = Loop([Block(key) for key in rng.split(KEY, 3)])
SCALE = {"scale": tnp.array([1.0, -2.0, 0.5])}


def agree(found, expected, tolerance=2e-4):
    tree.map(lambda a, b: close(a, b, tolerance), found, expected)


@pytest.mark.parametrize("remat", [False, True])
@pytest.mark.parametrize("each", [SCALE, SCALE | {"cache": tnp.ones(3)}])
@pytest.mark.parametrize("transform", [lambda f: f, td.jit])
def test_as_a_loop(transform, each, remat):
    """Outputs, results of each layer, keys, state and gradients."""

    def run(model, x):
        output, after = nn.stateful(model, key=KEY)(x, 2, each=each)
        return (tree.leaves(output)[0] ** 2).sum(), (output, after)

    stack = nn.Stack(Block, 3, remat=remat, key=KEY)
    run = transform(td.grad(run, (0, 1), has_aux=True))
    (grads, of_x), (output, after) = run(stack, X)
    (by_hand, of_x_by_hand), (expected, state) = run(LOOP, X)
    agree((output, of_x), (expected, of_x_by_hand))
    # Of a bias before a norm it is zero: the rounding of a sum of large numbers.
    agree(grads.unstack(), by_hand.layers, 1e-3)
    agree(after.unstack(), state.layers)
    assert after.layers.calls.value.tolist() == [1, 1, 1]


def test_in_inference_and_without_jit():
    stack = nn.inference(nn.Stack.of(LOOP.layers))
    agree(stack(X, 1, each=SCALE), nn.inference(LOOP)(X, 1, each=SCALE))
    with td.disable_jit():
        (output, after) = nn.stateful(nn.training(stack), key=KEY)(X, 1, each=SCALE)
    expected, state = nn.stateful(LOOP, key=KEY)(X, 1, each=SCALE)
    agree((output, after.unstack()), (expected, state.layers))
    with pytest.raises(RuntimeError, match="written outside of a scope"):
        nn.training(stack)(X, 1)


def test_what_layers_give_is_captured():
    class Model(nn.Module):
        blocks: nn.Stack

        def __call__(self, x):
            return self.blocks(x, 1)

    stack = nn.inference(nn.Stack.of(LOOP.layers, remat=True))
    output, found = nn.capture(Model(stack))(X)
    x = X
    for i, layer in enumerate(stack.unstack()):
        close(found["blocks.layers.linear"][i], layer.linear(x))
        x = layer(x, 1)
        close(found["blocks.layers"][i], x)
    assert "blocks.layers.branch" in found
    close(output, x)


def test_made_and_of_layers():
    """Both ways give the same, there and back; the order of layers is kept."""
    made = nn.Stack(Block, 3, key=KEY)
    tree.map(np.testing.assert_array_equal, made, nn.Stack.of(LOOP.layers))
    tree.map(np.testing.assert_array_equal, made.unstack(), LOOP.layers)
    empty = nn.Stack(lambda key: nn.Dropout(0.5, inference=True), 3, key=KEY)
    close(empty(X), X)
    assert [layer.rate for layer in empty.unstack()] == [0.5] * 3


def test_one_trace_for_all_layers():
    """The work to compile does not grow with the number of layers."""

    def equations(n):
        stack = nn.Stack(lambda key: nn.Linear(4, 4, key=key), n, key=KEY)
        graph = td.trace(td.grad(lambda stack: stack(X).sum()))(stack)
        return str(graph).count("\n")

    assert equations(2) == equations(40)


def test_errors():
    with pytest.raises(ValueError, match="one layer or more, got length=0"):
        nn.Stack(Block, 0, key=KEY)
    k1, k2 = rng.split(KEY)
    with pytest.raises(
        ValueError, match=r"layer 1 differs from the first in its arrays"
    ):
        nn.Stack.of(
            [nn.Linear(4, 4, key=k1), nn.Linear(4, 4, param_dtype=tnp.bfloat16, key=k2)]
        )
    with pytest.raises(
        ValueError, match=r"layer 1 differs from the first at <root>: static"
    ):
        nn.Stack.of([nn.Dropout(0.5), nn.Dropout(0.1)])

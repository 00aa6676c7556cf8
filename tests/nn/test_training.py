"""Whole training steps: parameters, state and keys together, under jit and donated."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import random
from treadle import nn, optim, rng, tree


class Classifier(nn.Module):
    hidden: nn.Linear
    norm: nn.BatchNorm
    drop: nn.Dropout
    out: nn.Linear
    activation: Callable

    def __init__(self, width, *, key):
        k1, k2 = rng.split(key)
        self.hidden = nn.Linear(8, width, key=k1)
        self.norm = nn.BatchNorm(width)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(width, 3, key=k2)
        self.activation = nn.relu

    def __call__(self, x):
        x = self.activation(self.norm(self.hidden(x)))
        return self.out(self.drop(x))


X = random(64, 8)
Y = (X[:, 0] > 0).astype(np.int32) + (X[:, 1] > 0)


@pytest.mark.parametrize("accelerate", [lambda f: f, td.jit(donate=("model", "state"))])
def test_training(accelerate):
    optimizer = optim.adamw(1e-2, weight_decay=0.1)

    @accelerate
    def step(model, state, key, x, y):
        def loss(model):
            logits, model = nn.stateful(model, key=key)(x)
            return nn.cross_entropy(logits, y).mean(), model

        (value, model), grads = td.value_and_grad(loss, has_aux=True)(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    model = Classifier(32, key=rng.key(0))
    form = tree.structure(model)
    state = optimizer.init(model)
    losses = []
    for i in range(30):
        key = rng.fold_in(rng.key(1), i)
        model, state, value = step(model, state, key, tnp.asarray(X), tnp.asarray(Y))
        losses.append(float(value))
    assert losses[-1] < 0.4 * losses[0]
    assert tree.structure(model) == form
    # The running statistics are those of the data, not shrunk by the weight decay.
    hidden = np.asarray(model.hidden(tnp.asarray(X)))
    np.testing.assert_allclose(model.norm.mean.value, hidden.mean(0), atol=0.2)
    evaluate = td.jit(lambda model, x: nn.inference(model)(x))
    right = np.asarray(evaluate(model, tnp.asarray(X))).argmax(-1) == Y
    assert right.mean() > 0.9


def test_an_ensemble_trains_in_one_step():
    keys = rng.split(rng.key(0), 4)
    models = td.vmap(lambda key: nn.MLP((8, 16, 3), key=key))(keys)
    assert models.layers[0].weight.shape == (4, 8, 16)

    @td.jit
    def step(models):
        def loss(model):
            return nn.cross_entropy(model(tnp.asarray(X)), tnp.asarray(Y)).mean()

        values, grads = td.vmap(td.value_and_grad(loss))(models)
        return tree.map(lambda p, g: p - 0.3 * g, models, grads), values

    models, first = step(models)
    for _ in range(30):
        models, last = step(models)
    assert (np.asarray(last) < 0.7 * np.asarray(first)).all()
    assert len(set(np.asarray(last).tolist())) == 4


def test_layers_stacked_and_scanned():
    """One traced layer for many: the weights have a first axis that scan walks over."""
    keys = rng.split(rng.key(0), 5)
    stacked = td.vmap(lambda key: nn.Linear(8, 8, key=key))(keys)

    def deep(layers, x):
        return td.scan(lambda x, layer: (nn.tanh(layer(x)), None), x, layers)[0]

    x = expected = tnp.asarray(X)
    for i in range(5):
        expected = nn.tanh(tree.map(lambda w, i=i: w[i], stacked)(expected))
    np.testing.assert_allclose(td.jit(deep)(stacked, x), expected, atol=1e-5)
    grads = td.jit(td.grad(lambda m, x: deep(m, x).sum()))(stacked, x)
    assert grads.weight.shape == (5, 8, 8)


def test_a_model_of_which_nothing_is_trained_is_an_error():
    model = nn.Linear(2, 3, key=rng.key(0))

    def loss(model, other=None):
        return model(tnp.ones(2)).sum()

    for frozen in (nn.freeze(model), nn.State(tnp.ones(2))):
        with pytest.raises(
            TypeError, match=r"argument `model` of .*loss has nothing"
        ) as e:
            td.value_and_grad(loss)(frozen)
        assert __file__ in str(e.value) and "nn.unfreeze" in str(e.value)
    half = nn.freeze(model, "weight")
    assert td.grad(loss)(half).bias is not None
    grads = td.grad(loss, (0, 1))(model, nn.freeze(model))
    assert grads[1].weight is None, "beside one that is trained"
    assert td.grad(loss, allow_int=True)(nn.freeze(model)).bias is None

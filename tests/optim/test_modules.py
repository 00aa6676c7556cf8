"""Optimizers work on Modules as they are: state cells, keys and integers stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.refused import refused
from treadle import nn, optim, rng, tree


class Classifier(nn.Module):
    hidden: nn.Linear
    norm: nn.BatchNorm
    out: nn.Linear
    noise: rng.Key
    calls: td.Array
    activation: Callable

    def __init__(self, *, key: Any) -> None:
        k1, k2, k3 = rng.split(key, 3)
        self.hidden = nn.Linear(8, 16, key=k1)
        self.norm = nn.BatchNorm(16)
        self.out = nn.Linear(16, 3, key=k2)
        self.noise = k3
        self.calls = tnp.zeros((), td.int32)
        self.activation = nn.relu

    def __call__(self, x: Any) -> Any:
        return self.out(self.activation(self.norm(self.hidden(x))))


def _model() -> Classifier:
    return Classifier(key=rng.key(0))


def _data() -> tuple[Any, Any]:
    numbers = np.random.default_rng(0)
    x = numbers.normal(size=(64, 8)).astype(np.float32)
    return tnp.array(x), tnp.array((x[:, 0] > 0) + (x[:, 1] > 0), td.int32)


OPTIMIZERS = {
    "sgd": lambda: optim.sgd(0.1, momentum=0.9, nesterov=True),
    "adamw": lambda: optim.adamw(
        optim.warmup_cosine_decay_schedule(0.0, 0.02, 5, 40), mask=optim.matrices
    ),
    "lion": lambda: optim.lion(0.003),
    "chain": lambda: optim.chain(
        optim.clip_by_global_norm(1.0),
        optim.rmsprop(0.01),
        optim.average_parameters(0.9),
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_a_model(name: str) -> None:
    optimizer = OPTIMIZERS[name]()
    model = _model()
    state = optimizer.init(model)

    @td.jit(donate=("model", "state"))
    def step(model: Any, state: Any, x: Any, y: Any) -> Any:
        def loss(model: Any) -> Any:
            logits, model = nn.stateful(model)(x)
            return nn.cross_entropy(logits, y).mean(), model

        (value, model), grads = td.value_and_grad(loss, has_aux=True)(model)
        updates, state = optimizer.update(grads, state, model)
        return optim.apply_updates(model, updates), state, value

    values = []
    for _ in range(30):
        model, state, value = step(model, state, *_data())
        values.append(float(value))
    assert values[-1] < 0.5 * values[0]
    assert isinstance(model, Classifier)
    # The statistics moved by the model's own writes alone.
    other = _model()
    assert not np.array_equal(model.norm.mean.value, other.norm.mean.value)
    assert int(model.calls) == 0


def test_only_what_grad_reaches_has_moments() -> None:
    model = _model()
    state = optim.adamw(1e-3).init(model)
    mean = state[0].mean
    assert isinstance(mean, Classifier)
    assert tree.leaves((mean.noise, mean.norm.mean, mean.norm.var)) == []
    assert mean.calls is None
    assert mean.activation is nn.relu
    grads = td.grad(lambda m: nn.inference(m)(tnp.ones(8)).sum())(model)
    assert tree.structure(mean) == tree.structure(grads)


def test_updates_leave_the_rest_alone() -> None:
    model = _model()
    optimizer = optim.adamw(1e-2)
    grads = td.grad(lambda m: nn.inference(m)(tnp.ones(8)).sum())(model)
    updates, _ = optimizer.update(grads, optimizer.init(model), model)
    after = optim.apply_updates(model, updates)
    assert tree.structure(after) == tree.structure(model)
    assert after.calls is model.calls
    for a, b in zip(tree.leaves(after.noise), tree.leaves(model.noise), strict=True):
        assert a is b
    assert not np.array_equal(after.out.weight, model.out.weight)


def test_masks_and_labels_of_modules() -> None:
    model = _model()
    grads = tree.map(
        tnp.zeros_like, td.grad(lambda m: m.out(tnp.ones(16)).sum())(model)
    )
    optimizer = optim.adamw(1.0, weight_decay=0.5, mask=optim.matrices)
    updates, _ = optimizer.update(grads, optimizer.init(model), model)
    np.testing.assert_allclose(updates.out.weight, -0.5 * np.asarray(model.out.weight))
    np.testing.assert_array_equal(updates.norm.weight, np.zeros(16))

    def part(path: tree.Path, leaf: Any) -> str:
        return "head" if tree.key_name(path).startswith(".out") else "body"

    optimizer = optim.partition(
        {"head": optim.sgd(1.0), "body": optim.freeze()},
        lambda model: tree.map_with_path(part, model),
    )
    grads = td.grad(lambda m: nn.inference(m)(tnp.ones(8)).sum())(model)
    updates, _ = optimizer.update(grads, optimizer.init(model), model)
    assert updates.hidden.weight is None and updates.norm.weight is None
    np.testing.assert_allclose(updates.out.weight, -np.asarray(grads.out.weight))


MASKS: dict[str, Any] = {
    "pattern": "out.weight",
    "selector": tree.select("out") & ~tree.select("**.bias"),
    "class": tree.select(nn.Linear) & "out.weight",
    "test of path": lambda path, x: path == "out.weight",
    "function": lambda model: tree.select("out.weight")(model),
    "list": ["out.weight"],
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_are_what_select_takes(name: str) -> None:
    """Also for an optimizer that sees a part of the model."""
    model = _model()
    zero = tree.map(tnp.zeros_like, nn.partition(model)[0])
    decay = optim.add_decayed_weights(0.5, mask=MASKS[name])
    labels = optim.partition({"a": decay}, "a")
    for optimizer in (decay, labels):
        updates, _ = optimizer.update(zero, optimizer.init(model), model)
        found = [n for n, u in nn.parameters(updates).items() if np.any(u)]
        assert found == ["out.weight"]
        np.testing.assert_allclose(
            updates.out.weight, 0.5 * np.asarray(model.out.weight)
        )


def test_averages_of_modules() -> None:
    model = _model()
    optimizer = optim.chain(optim.sgd(0.1), optim.average_parameters(0.5))
    state = optimizer.init(model)
    grads = td.grad(lambda m: nn.inference(m)(tnp.ones(8)).sum())(model)
    updates, state = optimizer.update(grads, state, model)
    after = optim.apply_updates(model, updates)
    found = optim.averaged(after, state)
    expected = (np.asarray(model.out.weight) + np.asarray(after.out.weight)) / 2
    np.testing.assert_allclose(found.out.weight, expected, rtol=1e-5, atol=1e-6)
    assert nn.inference(found)(tnp.ones(8)).shape == (3,)


class Normed(nn.Module):
    """Statistics and a counter in cells, and a dtype in which sums are lost."""

    def __init__(self, dtype: Any) -> None:
        self.weight = tnp.zeros(2, dtype)
        self.mean, self.seen = nn.State(tnp.zeros(2, dtype)), nn.State(0)
        self.fixed = nn.State(tnp.array([0.1, 0.7], dtype))


@pytest.mark.parametrize("dtype", [td.float32, td.bfloat16])
def test_averages_of_statistics(dtype: Any) -> None:
    model = Normed(dtype)
    optimizer = optim.chain(optim.sgd(1.0), optim.average_parameters(0.75, state=True))
    plain = optim.chain(optim.sgd(1.0), optim.average_parameters(0.75))
    state, other = optimizer.init(model), plain.init(model)
    grads = tree.map(tnp.ones_like, nn.partition(model)[0])
    mean = expected = np.zeros(2, np.float32)
    for step in range(1, 9):
        mean = np.array([step, step**2], np.float32)
        seen = nn.State(step)
        model = model.replace(mean=nn.State(tnp.asarray(mean, dtype)), seen=seen)
        _, other = plain.update(grads, other, model)
        updates, state = td.jit(optimizer.update)(grads, state, model)
        model = optim.apply_updates(model, updates)
        expected = 0.75 * expected + 0.25 * mean
    found, latest = optim.averaged(model, state), optim.averaged(model, other)
    rounding = 1e-6 if dtype == td.float32 else 2**-8
    close = np.testing.assert_allclose
    close(np.float32(found.mean.value), expected, rtol=rounding)
    close(np.float32(latest.mean.value), mean)
    assert found.mean.value.dtype == dtype and int(found.seen.value) == 8
    same = np.asarray(found.fixed.value) == np.asarray(model.fixed.value)
    assert same.all()
    averages = tree.leaves(state[1].average)
    assert len(averages) == 3 and {x.dtype for x in averages} == {np.dtype("f4")}


def test_states_of_modules_show_their_size() -> None:
    state = optim.adam(1e-3).init(nn.Linear(4, 3, key=rng.key(0)))
    assert "mean=<Linear of 2 arrays, 15 numbers>" in repr(state)


@pytest.mark.parametrize("name", ["sgd", "adamw", "muon", "lion"])
def test_nothing_to_train_is_an_error(name: str) -> None:
    model = nn.freeze(_model())
    optimizer = optim.chain(optim.clip_by_global_norm(1.0), getattr(optim, name)(0.1))
    words = "there is nothing to train in this Classifier", "`nn.unfreeze`"
    refused(lambda: optimizer.init(model), ValueError, *words)
    refused(lambda: optimizer.init({"n": 3}), ValueError, "in this dict")
    refused(lambda: td.jit(optimizer.init)(model), ValueError, *words)
    optimizer.init({})
    # Of a group of two, all may be frozen.
    both = {"old": model, "new": _model()}
    parts = {"old": optim.sgd(0.1), "rest": getattr(optim, name)(0.1)}
    by_part = optim.partition(parts, optim.groups(old="old", rest="**"))
    assert tree.leaves(by_part.init(both))

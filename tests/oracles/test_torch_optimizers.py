"""Optimizers take the same way as PyTorch's, where the conventions coincide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import random
from tests.optim.trees import assert_close, gradients, parameters, run
from treadle import nn, optim, rng, tree

TORCH: dict[str, tuple[Callable, Callable]] = {
    "sgd nesterov": (
        lambda: optim.sgd(0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True),
    ),
    "sgd L2": (
        lambda: optim.chain(optim.add_decayed_weights(0.1), optim.sgd(0.1, 0.9)),
        lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.1),
    ),
    "adamw": (
        lambda: optim.adamw(0.01, weight_decay=0.1),
        lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    ),
    "adagrad": (
        lambda: optim.adagrad(0.1, initial_accumulator_value=0.0, eps=0.0),
        lambda p: torch.optim.Adagrad(p, 0.1, eps=1e-30),
    ),
    "adadelta": (
        lambda: optim.adadelta(0.5, 0.8, 1e-3),
        lambda p: torch.optim.Adadelta(p, 0.5, rho=0.8, eps=1e-3),
    ),
    "adamax": (
        lambda: optim.adamax(0.01, 0.8, 0.9),
        lambda p: torch.optim.Adamax(p, 0.01, betas=(0.8, 0.9)),
    ),
    "radam": (
        lambda: optim.radam(0.01, threshold=5.0 + 1e-6),
        lambda p: torch.optim.RAdam(p, 0.01),
    ),
    "rprop": (
        lambda: optim.rprop(0.01, 0.4, 1.3, 1e-3, 0.1),
        lambda p: torch.optim.Rprop(p, 0.01, etas=(0.4, 1.3), step_sizes=(1e-3, 0.1)),
    ),
    "rmsprop": (
        lambda: optim.rmsprop(0.01, decay=0.99, eps_in_sqrt=False, momentum=0.9),
        lambda p: torch.optim.RMSprop(p, 0.01, momentum=0.9),
    ),
}


@pytest.mark.parametrize("name", TORCH)
def test_same_way_as_torch(name: str) -> None:
    ours, theirs = TORCH[name]
    params = parameters()
    tensors = [
        torch.tensor(np.array(p), requires_grad=True) for p in tree.leaves(params)
    ]
    optimizer = theirs(tensors)
    for values, grads in zip(run(ours(), params), gradients(params), strict=True):
        for tensor, grad in zip(tensors, tree.leaves(grads), strict=True):
            tensor.grad = torch.tensor(np.array(grad))
        optimizer.step()
        assert_close(tree.leaves(values), [t.detach().numpy() for t in tensors])


def test_bounded_rows_of_an_embedding_as_in_torch() -> None:
    """PyTorch's layer shortens the rows that are looked up, before each step."""
    rows, tokens = random(6, 4, seed=1) * 2, np.array([[0, 1, 2], [3, 4, 5]])
    targets = random(2, 3, 4, seed=2)
    theirs = torch.nn.Embedding(6, 4, max_norm=1.5)
    theirs.weight.data = torch.tensor(rows)
    descend = torch.optim.SGD(theirs.parameters(), 0.4, momentum=0.9)
    shortened = theirs(torch.tensor(tokens))
    ours = nn.Embedding(6, 4, key=rng.key(0)).replace(
        weight=tnp.array(theirs.weight.detach().numpy())
    )
    bound = optim.keep_params_max_norm(1.5, mask="weight")
    optimizer = optim.chain(optim.sgd(0.4, 0.9), bound)
    state = optimizer.init(ours)
    for _ in range(6):
        loss = ((shortened - torch.tensor(targets)) ** 2).sum()
        descend.zero_grad()
        loss.backward()
        descend.step()
        shortened = theirs(torch.tensor(tokens))
        grads = td.grad(lambda m: ((m(tokens) - targets) ** 2).sum())(ours)
        updates, state = optimizer.update(grads, state, ours)
        ours = optim.apply_updates(ours, updates)
        np.testing.assert_allclose(
            ours.weight, theirs.weight.detach().numpy(), 1e-5, 1e-6
        )
    lengths = np.linalg.norm(ours.weight, axis=-1)
    assert (lengths > 1.499).any() and (lengths < 1.5 + 1e-6).all()


def test_averages_of_weights_and_statistics() -> None:
    """As PyTorch's moving average with `use_buffers`, which begins with the first
    update that it sees."""
    theirs = torch.nn.BatchNorm1d(3)
    swa = torch.optim.swa_utils
    average = swa.AveragedModel(
        theirs, multi_avg_fn=swa.get_ema_multi_avg_fn(0.75), use_buffers=True
    )
    descent = torch.optim.SGD(theirs.parameters(), 0.3)
    average.update_parameters(theirs)

    model = nn.BatchNorm(3)
    optimizer = optim.chain(optim.sgd(0.3), optim.average_parameters(0.75, state=True))
    state = optimizer.init(model)
    batches = random(6, 8, 3, seed=3) * 2 + 1
    targets = random(8, 3, seed=4)

    def loss(model: nn.BatchNorm, x: np.ndarray) -> tuple[td.Array, nn.BatchNorm]:
        outputs, model = nn.stateful(model)(x)
        return ((outputs - targets) ** 2).mean(), model

    for x in batches:
        descent.zero_grad()
        ((theirs(torch.tensor(x)) - torch.tensor(targets)) ** 2).mean().backward()
        descent.step()
        average.update_parameters(theirs)
        grads, model = td.grad(loss, has_aux=True)(model, x)
        updates, state = optimizer.update(grads, state, model)
        model = optim.apply_updates(model, updates)
    found, expected = optim.averaged(model, state), average.module
    for ours, torchs in (
        (found.weight, expected.weight.detach()),
        (found.bias, expected.bias.detach()),
        (found.mean.value, expected.running_mean),
        (found.var.value, expected.running_var),
    ):
        np.testing.assert_allclose(ours, torchs.numpy(), rtol=2e-5, atol=1e-6)
    assert not np.allclose(found.mean.value, model.mean.value, rtol=1e-2)

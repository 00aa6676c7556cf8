"""Optimizers take the same way as PyTorch's, where the conventions coincide."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from tests.optim.trees import assert_close, gradients, parameters, run
from treadle import optim, tree

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

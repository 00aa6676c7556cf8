"""Layers with weights copied from PyTorch's: values and gradients of the input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import nn, rng

KEY = rng.key(0)


def copied(x):
    return tnp.asarray(x.detach().numpy().copy())


def transposed(x):
    return tnp.asarray(np.ascontiguousarray(x.detach().numpy().T))


def compare(ours, theirs, x, to_theirs=lambda x: x, to_ours=lambda x: x):
    """Both on the same input; layouts are changed by the given functions."""
    given = torch.tensor(to_theirs(x).copy(), requires_grad=True)
    expected = theirs(given)
    expected.square().sum().backward()
    array = tnp.asarray(x)
    close(ours(array), to_ours(expected.detach().numpy()), 1e-4)
    grads = td.jit(td.grad(lambda x: tnp.square(ours(x)).sum()))(array)
    close(grads, to_ours(given.grad.numpy()), 1e-3)


def test_linear():
    theirs = torch.nn.Linear(3, 4)
    ours = nn.Linear(3, 4, key=KEY)
    ours = ours.replace(weight=transposed(theirs.weight), bias=copied(theirs.bias))
    compare(ours, theirs, random(2, 3))


@pytest.mark.parametrize(
    "options", [{"padding": 1}, {"stride": 2}, {"groups": 2}, {"dilation": 2}]
)
def test_conv(options):
    theirs = torch.nn.Conv2d(4, 6, 3, **options)
    ours = nn.Conv2d(4, 6, 3, **{"padding": 0, **options}, key=KEY).replace(
        weight=tnp.asarray(theirs.weight.detach().numpy().transpose(2, 3, 1, 0).copy()),
        bias=copied(theirs.bias),
    )
    compare(
        ours,
        theirs,
        random(2, 8, 7, 4),
        lambda x: np.moveaxis(x, -1, 1),
        lambda x: np.moveaxis(x, 1, -1),
    )


def test_norms():
    compare(nn.LayerNorm(6), torch.nn.LayerNorm(6), random(2, 6))
    compare(nn.RMSNorm(6, eps=1e-5), torch.nn.RMSNorm(6, eps=1e-5), random(2, 6))


def test_batch_norm():
    theirs, ours = torch.nn.BatchNorm1d(5), nn.BatchNorm(5)
    x = random(8, 5)
    compare(lambda x: nn.stateful(ours)(x)[0], theirs, x)
    _, ours = nn.stateful(ours)(tnp.asarray(x))
    close(ours.mean.value, theirs.running_mean.numpy())
    close(ours.var.value, theirs.running_var.numpy())
    compare(nn.inference(ours), theirs.eval(), x)


def test_multi_head_attention():
    theirs = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    torch.nn.init.normal_(theirs.in_proj_bias)
    ours = nn.MultiHeadAttention(8, 2, key=KEY)
    weights = theirs.in_proj_weight.chunk(3)
    biases = theirs.in_proj_bias.chunk(3)
    parts = {
        name: getattr(ours, name).replace(weight=transposed(w), bias=copied(b))
        for name, w, b in zip(("query", "key", "value"), weights, biases, strict=True)
    }
    out = ours.out.replace(
        weight=transposed(theirs.out_proj.weight), bias=copied(theirs.out_proj.bias)
    )
    mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
    compare(
        lambda x: ours.replace(**parts, out=out)(x, causal=True),
        lambda x: theirs(x, x, x, attn_mask=mask)[0],
        random(2, 5, 8),
    )


def test_embedding():
    theirs = torch.nn.Embedding(7, 3)
    ours = nn.Embedding(7, 3, key=KEY).replace(weight=copied(theirs.weight))
    tokens = np.array([[0, 6], [3, 3]])
    close(ours(tnp.asarray(tokens)), theirs(torch.tensor(tokens)).detach().numpy())

"""The language model of LSTMs, against PyTorch's layers with the same weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import treadle as td
from tests.nn.oracle import close, random
from treadle import models, nn, rng, weights

TOKENS = np.random.default_rng(0).integers(0, 20, (3, 7))
LENGTHS = np.array([7, 2, 5])


class Theirs(torch.nn.Module):
    def __init__(self, tied):
        super().__init__()
        self.tokens = torch.nn.Embedding(20, 6)
        self.lstm = torch.nn.LSTM(6, 6, 2, batch_first=True)
        self.head = torch.nn.Linear(6, 20, bias=not tied)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        return self.head(self.lstm(self.tokens(tokens))[0])


def arrays(state, tied):
    """Theirs by our names. They have two biases, of which the sum counts."""
    found = {"tokens.weight": state["tokens.weight"]}
    for i in range(2):
        cell = f"layers.layers.{i}.cell"
        for part in ("ih", "hh"):
            found[f"{cell}.weight_{part}"] = state[f"lstm.weight_{part}_l{i}"].T
        found[f"{cell}.bias"] = state[f"lstm.bias_ih_l{i}"]
    if not tied:
        found["head.weight"] = state["head.weight"].T
        found["head.bias"] = state["head.bias"]
    return {name: x.detach().numpy().copy() for name, x in found.items()}


@pytest.mark.parametrize("tied", [False, True])
def test_outputs_and_gradients(tied):
    torch.manual_seed(0)
    theirs = Theirs(tied)
    with torch.no_grad():
        theirs.lstm.bias_hh_l0.zero_()
        theirs.lstm.bias_hh_l1.zero_()
    ours = models.LSTMLM(20, 6, 2, tied=tied, key=rng.key(0))
    ours = weights.into(ours, arrays(dict(theirs.named_parameters()), tied))
    scores = random(3, 7, 20, seed=1)
    expected = theirs(torch.tensor(TOKENS))
    close(nn.inference(ours)(TOKENS), expected.detach().numpy(), 1e-5)
    (expected * torch.tensor(scores)).sum().backward()
    grads = td.jit(td.grad(lambda m: (m(TOKENS) * scores).sum()))(nn.inference(ours))
    wanted = {name: p.grad for name, p in theirs.named_parameters()}
    for name, value in arrays(wanted, tied).items():
        close(weights.of(grads)[name], value, 1e-4)
    # Padding changes nothing before it.
    padded = nn.inference(ours)(TOKENS, LENGTHS)
    for i, n in enumerate(LENGTHS):
        close(padded[i, :n], expected[i, :n].detach().numpy(), 1e-5)


def test_it_trains_in_one_trace_for_all_lengths():
    model = models.LSTMLM(20, 6, 2, dropout=0.1, key=rng.key(0))
    traced = []

    def loss(model, tokens, key):
        traced.append(tokens.shape)
        logits, _ = nn.stateful(model, key=key)(tokens)
        return nn.cross_entropy(logits[:, :-1], tokens[:, 1:]).mean()

    axes = {"tokens": ("batch", "length")}
    step = td.jit(td.value_and_grad(loss), dynamic=axes)
    for batch, length in ((3, 9), (1, 5), (4, 16), (2, 2)):
        tokens = np.random.default_rng(length).integers(0, 20, (batch, length))
        value, grads = step(model, tokens, rng.key(0))
        assert np.isfinite(value)
        assert np.abs(grads.layers.layers[0].cell.weight_ih).max() > 0
    assert len(traced) == 1

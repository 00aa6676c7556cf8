"""Folders of T5 that transformers wrote: ours computes the same."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers as hf

import treadle as td
from tests.nn.oracle import close, random
from tests.oracles.models.test_huggingface import (
    LENGTHS,
    RANDOM,
    T5,
    TARGET_LENGTHS,
    TARGET_MASK,
    TARGETS,
    TOKENS,
    compare,
    made,
    of_texts,
)
from treadle import models, nn, weights


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
        {"feed_forward_proj": "gated-silu"},
    ],
)
def test_t5(options, tmp_path):
    compare(
        made(hf.T5ForConditionalGeneration, T5 | options),
        tmp_path,
        lambda ours: (
            ours(TOKENS, TARGETS, LENGTHS, TARGET_LENGTHS) * TARGET_MASK[..., None]
        ),
        lambda theirs: of_texts(theirs).logits * torch.tensor(TARGET_MASK)[..., None],
    )


def t5_with_a_head(folder, **options):
    """As files of version 1.1 are: their model, of which the file is in a folder."""
    options = T5 | options | {"tie_word_embeddings": False}
    theirs = made(hf.T5ForConditionalGeneration, options)
    theirs.save_pretrained(folder)
    head = random(50, 24, seed=2)
    weights.save(folder, weights.load(folder) | {"lm_head.weight": head})
    path = folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"tie_word_embeddings": False}))
    theirs.lm_head.weight = torch.nn.Parameter(torch.tensor(head))
    return theirs


def test_t5_with_a_head_of_its_own(tmp_path):
    theirs = t5_with_a_head(tmp_path)
    expected = of_texts(theirs).logits.detach().numpy()
    found = models.from_huggingface(tmp_path)(TOKENS, TARGETS, LENGTHS)
    close(found * TARGET_MASK[..., None], expected * TARGET_MASK[..., None], 1e-5)


def test_t5_trains_in_one_trace_for_all_lengths():
    model = models.T5(50, 16, 2, 2, key=td.rng.key(0))
    traced = []

    def loss(model, tokens, targets, lengths, key):
        traced.append(tokens.shape)
        call = nn.stateful(model, key=key)
        logits, _ = call(tokens, targets[:, :-1], lengths)
        return nn.cross_entropy(logits, targets[:, 1:]).mean()

    axes = {"tokens": ("batch", "length"), "targets": ("batch", "other length")}
    axes["lengths"] = ("batch",)
    step = td.jit(td.value_and_grad(loss), dynamic=axes)
    for batch, length, other in ((3, 9, 5), (1, 5, 12), (4, 16, 16), (2, 3, 3)):
        tokens = RANDOM.integers(0, 50, (batch, length))
        targets = RANDOM.integers(0, 50, (batch, other))
        lengths = length - np.arange(batch) % length
        value, grads = step(model, tokens, targets, lengths, td.rng.key(0))
        assert np.isfinite(value)
        assert np.abs(grads.encoder.layers[0].attention.position_bias.weight).max() > 0
    assert len(traced) == 1

"""Blocks of transformers: dropout, dtypes, caches, other parts."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import treadle as td
import treadle.numpy as tnp
from tests.nn.oracle import close, random
from treadle import nn, rng, tree

KEY = rng.key(0)
X, CONTEXT = random(2, 6, 8), random(2, 4, 8, seed=1)
rotary = partial(nn.MultiHeadAttention, kv_heads=1, rotary=nn.RotaryEmbedding(4))


def test_an_encoder_goes_on_with_caches():
    model = nn.TransformerEncoder(2, 8, 2, attention=rotary, norm=nn.RMSNorm, key=KEY)
    whole = model(X, causal=True)
    cached = nn.with_cache(model, 2, 6)
    for first, last in [(0, 4), (4, 5), (5, 6)]:
        out, cached = nn.stateful(cached)(X[:, first:last])
        close(out, whole[:, first:last], 1e-5)


@pytest.mark.parametrize("stacked", [False, True])
def test_a_decoder_goes_on_with_caches(stacked):
    """Keys and values of the context are those of the first call."""
    model = nn.TransformerDecoder(2, 8, 2, attention=rotary, key=KEY)
    if stacked:
        model = nn.Stack.of(model.layers)
    lengths = [4, 2]
    whole = model(X, CONTEXT, context_lengths=lengths)
    cached = nn.with_cache(model, 2, 7)
    for first, last in [(0, 1), (1, 5), (5, 6)]:
        context = tnp.where(first, tnp.nan, CONTEXT)
        out, cached = nn.stateful(cached)(
            X[:, first:last], context, context_lengths=lengths
        )
        close(out, whole[:, first:last], 1e-5)
    padded = np.array(CONTEXT)
    padded[1, 2:] = 99
    close(model(X, padded, context_lengths=lengths), whole, 1e-6)
    with pytest.raises(ValueError, match=r"another context than f32\[2,5,8\]"):
        nn.stateful(cached)(X[:, 5:], random(2, 5, 8), context_lengths=lengths)


def test_a_further_token_computes_nothing_of_the_context():
    def flops(length, cached):
        context = random(2, length, 8)
        step = td.jit(lambda model, x: nn.stateful(model)(x, context))
        return step.lower(cached, X[:, 1:2]).cost_analysis().flops

    model = nn.TransformerDecoder(2, 8, 2, key=KEY)
    begun = {
        n: nn.stateful(nn.with_cache(model, 2, 6))(X[:, :1], random(2, n, 8))[1]
        for n in (100, 200)
    }
    more = (flops(200, begun[200]) - flops(100, begun[100])) / 100
    # Of each of two layers and examples, scores and sums, and little for softmax.
    assert 4 * (32 + 8) > more / 2 > 4 * 16
    empty = nn.with_cache(model, 2, 6)
    assert flops(200, empty) - flops(200, begun[200]) > 2 * 2 * 200 * 2 * 2 * 8 * 8 - 1


def test_dropout_is_for_training():
    block = nn.TransformerDecoderBlock(8, 2, dropout=0.5, drop_path=0.5, key=KEY)
    plain = nn.TransformerDecoderBlock(8, 2, key=KEY)
    close(nn.inference(block)(X, CONTEXT), plain(X, CONTEXT))
    outs = [nn.stateful(block, key=rng.key(i))(X, CONTEXT)[0] for i in (1, 2, 1)]
    assert float(abs(outs[0] - outs[1]).max()) > 0.1
    close(outs[0], outs[2])
    dropped = nn.TransformerEncoderBlock(8, 2, drop_path=1.0, key=KEY)
    close(nn.stateful(dropped, key=KEY)(X)[0], X)


@pytest.mark.parametrize("option", ["dtype", "param_dtype"])
def test_dtypes_reach_all_parts(option):
    options = {option: tnp.bfloat16}
    attention = partial(nn.MultiHeadAttention, qk_norm=nn.RMSNorm)
    models = [
        nn.TransformerEncoder(2, 8, 2, attention=attention, key=KEY, **options),
        nn.TransformerDecoder(1, 8, 2, mlp=nn.GatedMLP, key=KEY, **options),
        nn.MLPMixerBlock(6, 8, key=KEY, **options),
    ]
    args = [(X,), (X, CONTEXT), (X,)]
    made = {"dtype": tnp.float32, "param_dtype": tnp.bfloat16}[option]
    for model, xs in zip(models, args, strict=True):
        assert {x.dtype for x in tree.leaves(model)} == {np.dtype(made)}
        halves = [tnp.asarray(x).astype(tnp.bfloat16) for x in xs]
        assert model(*halves).dtype == tnp.bfloat16


def test_experts_are_a_network():
    mlp = partial(nn.MixtureOfExperts, experts=3)
    model = nn.TransformerEncoder(2, 8, 2, 12, mlp=mlp, dropout=0.1, key=KEY)

    def loss(model):
        output, after = nn.stateful(model, key=rng.key(1))(X, causal=True)
        return (output**2).mean() + nn.balance_loss(after), nn.balance_loss(after)

    (_, balance), grads = td.jit(td.value_and_grad(loss, has_aux=True))(model)
    assert float(balance) >= 2 * 2 * 0.999
    assert all(abs(layer.mlp.router.weight).max() > 0 for layer in grads.layers)


def test_a_mixer_has_its_length():
    with pytest.raises(ValueError, match=r"MLPMixerBlock takes.*length=5, width=8"):
        nn.MLPMixerBlock(5, 8, key=KEY)(X)

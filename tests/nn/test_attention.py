"""Attention against JAX's."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import treadle.numpy as tnp
from tests.nn.oracle import agree, agree_layer, close, random
from treadle import nn, rng


def inputs(queries=5, keys=5, lead=(2,)):
    lengths = (queries, keys, keys)
    return [random(*lead, n, 3, 4, seed=i) for i, n in enumerate(lengths)]


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    agree(
        lambda q, k, v: nn.attention(q, k, v, causal=causal),
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, is_causal=causal),
        *inputs(),
    )


def test_masks():
    mask = np.random.default_rng(0).random((2, 1, 5, 7)) < 0.6
    mask[..., 0] = True
    agree(
        lambda q, k, v: nn.attention(q, k, v, mask),
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, mask=mask),
        *inputs(5, 7),
    )
    both = mask & np.tri(5, 7, 2, bool)
    q, k, v = map(tnp.asarray, inputs(5, 7))
    close(nn.attention(q, k, v, mask, causal=True), nn.attention(q, k, v, both))


def test_a_query_that_sees_nothing_gets_no_nan():
    q, k, v = map(tnp.asarray, inputs())
    out = nn.attention(q, k, v, tnp.zeros((5, 5), tnp.bool_))
    close(out[:, 0], v.mean(1))


def test_leading_axes():
    q, k, v = map(tnp.asarray, inputs(lead=(2, 3)))
    out = nn.attention(q, k, v, causal=True)
    close(out[1, 2], nn.attention(q[1, 2], k[1, 2], v[1, 2], causal=True))


def test_multi_head_attention():
    layer = nn.MultiHeadAttention(12, 3, key=rng.key(0))

    def formula(w_q, b_q, w_k, b_k, w_v, b_v, w_out, b_out, x):
        parts = (x @ w_q + b_q, x @ w_k + b_k, x @ w_v + b_v)
        heads = [y.reshape(*y.shape[:-1], 3, 4) for y in parts]
        out = jax.nn.dot_product_attention(*heads, is_causal=True)
        return out.reshape(x.shape) @ w_out + b_out

    class Causal(nn.Module):
        layer: nn.MultiHeadAttention

        def __call__(self, x):
            return self.layer(x, causal=True)

    agree_layer(Causal(layer), formula, random(2, 6, 12), tolerance=1e-4)


def test_cross_attention():
    layer = nn.MultiHeadAttention(12, 3, key=rng.key(0))

    def formula(w_q, b_q, w_k, b_k, w_v, b_v, w_out, b_out, x, context):
        parts = (x @ w_q + b_q, context @ w_k + b_k, context @ w_v + b_v)
        heads = [y.reshape(*y.shape[:-1], 3, 4) for y in parts]
        out = jax.nn.dot_product_attention(*heads)
        return out.reshape(x.shape) @ w_out + b_out

    class Cross(nn.Module):
        layer: nn.MultiHeadAttention

        def __call__(self, x, context):
            return self.layer(x, context=context)

    x, context = random(2, 6, 12), random(2, 9, 12, seed=1)
    agree_layer(Cross(layer), formula, x, context, tolerance=1e-4)
    close(layer(x, context=x), layer(x))
    with pytest.raises(ValueError, match="width"):
        layer(x, context=random(2, 9, 11))


def test_errors():
    with pytest.raises(ValueError, match="width of 10 can't be split in 4 heads"):
        nn.MultiHeadAttention(10, 4, key=rng.key(0))
    q, k, v = map(tnp.asarray, inputs())
    with pytest.raises(ValueError, match=r"got f32\[2,5,3,4\], f32\[2,5,3,4\], f32\[5"):
        nn.attention(q, k, v[0])
    layer = nn.MultiHeadAttention(8, 2, key=rng.key(0))
    with pytest.raises(ValueError, match=r"MultiHeadAttention takes.*width=8"):
        layer(tnp.ones((2, 3, 4)))


def test_masks_of_floats_are_added():
    bias = random(3, 5, 7, seed=3)
    bias[:, :, 5:] = -np.inf
    agree(
        lambda q, k, v: nn.attention(q, k, v, tnp.asarray(bias)),
        lambda q, k, v: jax.nn.dot_product_attention(q, k, v, bias=bias[None]),
        *inputs(5, 7),
    )
    q, k, v = map(tnp.asarray, inputs(5, 5))
    close(
        nn.attention(q, k, v, tnp.zeros((5, 5)), causal=True),
        nn.attention(q, k, v, causal=True),
    )


def test_masks_that_do_not_fit():
    q, k, v = map(tnp.asarray, inputs(5, 7))
    for shape in [(4, 7), (1, 2, 3, 5, 7)]:
        with pytest.raises(ValueError, match=r"attention: a mask bool.*\(2, 3, 5, 7\)"):
            nn.attention(q, k, v, tnp.ones(shape, bool))


def test_values_of_another_depth():
    q, k, v = map(tnp.asarray, inputs(5, 7))
    wide = tnp.concatenate([v, 2 * v], -1)
    out = nn.attention(q, k, v)
    close(nn.attention(q, k, wide), tnp.concatenate([out, 2 * out], -1))


def test_no_keys():
    q, k, v = map(tnp.asarray, inputs(5, 0))
    assert nn.attention(q, k, v).tolist() == tnp.zeros((2, 5, 3, 4)).tolist()

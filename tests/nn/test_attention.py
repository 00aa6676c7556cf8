"""Attention against JAX's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import treadle as td
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
    for name in ("lengths", "query_lengths"):
        with pytest.raises(ValueError, match=rf"{name} are integers.*\(2,\), got i.*3"):
            nn.attention(q, k, v, **{name: [1, 2, 3]})


def test_values_of_another_depth():
    q, k, v = map(tnp.asarray, inputs(5, 7))
    wide = tnp.concatenate([v, 2 * v], -1)
    out = nn.attention(q, k, v)
    close(nn.attention(q, k, wide), tnp.concatenate([out, 2 * out], -1))


def test_no_keys():
    q, k, v = map(tnp.asarray, inputs(5, 0))
    assert nn.attention(q, k, v).tolist() == tnp.zeros((2, 5, 3, 4)).tolist()


def jax_attention(**options):
    return lambda q, k, v: jax.nn.dot_product_attention(q, k, v, **options)


def our_attention(**options):
    return lambda q, k, v: nn.attention(q, k, v, **options)


def test_keys_and_values_with_fewer_heads():
    q, k = random(2, 5, 6, 4), random(2, 7, 3, 4, seed=1)
    mask = np.random.default_rng(0).random((2, 6, 5, 7)) < 0.6
    options = {"mask": mask, "scale": 0.3}
    agree(our_attention(**options), jax_attention(**options), q, k, 2 * k + 1)
    one = tnp.asarray(k[:, :, :1])
    close(nn.attention(q, one, one), nn.attention(q, *[tnp.repeat(one, 6, 2)] * 2))
    with pytest.raises(ValueError, match="multiple"):
        nn.attention(q, *[tnp.ones((2, 7, 4, 4))] * 2)


def test_fewer_heads_are_not_copied():
    """No step reads or writes as much as keys of all heads would be."""
    q, k = tnp.ones((2, 64, 8, 16)), tnp.ones((2, 64, 1, 16))
    report = td.jit(nn.attention).explain(q, k, k)
    copies = [line for line in str(report).splitlines() if "transpose" in line]
    assert len(copies) <= 2, report  # the query, and the result


@pytest.mark.parametrize("window, causal", [((3, 1), False), (1, True)])
def test_windows(window, causal):
    agree(
        our_attention(window=window, causal=causal),
        jax_attention(local_window_size=window, is_causal=causal),
        *inputs(6, 6),
    )


def test_lengths():
    theirs = np.array([2, 5], np.int32)
    options = {"key_value_seq_lengths": theirs}
    queries = np.array([4, 1], np.int32)
    agree(
        our_attention(lengths=theirs, query_lengths=queries, causal=True),
        jax_attention(query_seq_lengths=queries, is_causal=True, **options),
        *inputs(5, 5),
    )


def test_soft_cap():
    def capped(q, k, v):
        scores = 0.5 * jnp.tanh(jnp.einsum("nqhd,nkhd->nhqk", q, k) / 2 / 0.5)
        return jnp.einsum("nhqk,nkhd->nqhd", jax.nn.softmax(scores), v)

    agree(our_attention(soft_cap=0.5), capped, *inputs())


def test_scores_of_halves_are_float32():
    """Scores that differ by less than a half can tell."""
    q, k = tnp.ones((1, 1, 2), tnp.bfloat16), tnp.asarray([[[256, 0]], [[256, 1]]])
    v = tnp.asarray([[[0.0]], [[1.0]]], tnp.bfloat16)
    out = nn.attention(q, k.astype(tnp.bfloat16), v, scale=1.0)
    assert out.dtype == tnp.bfloat16
    close(out.astype(tnp.float32), np.float32([[[1 / (1 + np.exp(-1))]]]), 4e-3)


def test_dropout():
    q, k, v = map(tnp.asarray, inputs(40, 50))
    run = our_attention(dropout=0.25, dropout_key=rng.key(3))
    dropped = run(q, k, tnp.ones_like(v))
    assert abs(float(dropped.mean()) - 1) < 0.01
    assert float(dropped.std()) > 0.01
    close(dropped, run(q, k, tnp.ones_like(v)), 1e-6)
    layer = nn.MultiHeadAttention(12, 3, dropout=0.5, key=rng.key(0))
    x = random(2, 6, 12)
    first, _ = nn.stateful(layer, key=rng.key(1))(x)
    second, _ = nn.stateful(layer, key=rng.key(2))(x)
    assert float(abs(first - second).max()) > 1e-3
    close(layer(x, key=rng.key(1)), layer(x, key=rng.key(1)))
    close(nn.inference(layer)(x), layer.replace(dropout=0.0)(x))
    with pytest.raises(RuntimeError, match="needs a random key"):
        layer(x)


def test_mask_helpers():
    assert nn.causal_mask(3, 5).tolist() == np.tri(3, 5, 2, dtype=bool).tolist()
    near = nn.window_mask(5, window=(2, 1))
    assert near.tolist() == (np.tri(5, 5, 1) * np.tri(5, 5, 2).T).astype(bool).tolist()
    real = nn.padding_mask([[1, 3]], 4)
    assert (real.shape, real.sum((-1, -2, -3)).tolist()) == ((1, 2, 1, 1, 4), [[1, 3]])
    bias = tnp.asarray(random(5, 5))
    both = nn.combine_masks(bias, near, None, nn.causal_mask(5), bias)
    seen = np.tril(np.asarray(near))
    close(tnp.where(seen, both, 0), tnp.where(seen, 2 * bias, 0))
    assert float(tnp.where(seen, -1e38, both).max()) < -1e37
    assert nn.combine_masks(None) is None
    assert nn.combine_masks(near).tolist() == near.tolist()
    for window in (-1, (1,), "near", (1.5, 2)):
        with pytest.raises(ValueError, match="a window of attention is the number"):
            nn.window_mask(3, window=window)


def test_options_that_do_not_fit():
    make = nn.MultiHeadAttention
    with pytest.raises(ValueError, match="6 heads can't share 4 heads"):
        make(12, 6, kv_heads=4, key=rng.key(0))
    with pytest.raises(ValueError, match="dropout is from 0 to 1"):
        make(12, 6, dropout=2.0, key=rng.key(0))
    assert make(10, 4, head_size=3, key=rng.key(0))(tnp.ones((2, 10))).shape == (2, 10)
    layer = make(8, 2, bias=False, out_bias=True, key=rng.key(0))
    assert layer.query.bias is None and layer.out.bias is not None

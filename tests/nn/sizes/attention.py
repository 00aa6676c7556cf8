"""Attention, caches, and places of any number."""

from __future__ import annotations

from typing import Any

import treadle.numpy as tnp
from tests.core.dynamic import floats, ints
from treadle import nn, rng

ARGS = {
    "qh": floats("n t 4 4"),
    "kh": floats("n k 2 4"),
    "tl": ints("n", 1, 2),
    "tok": floats("n 1 8"),
}
KEY = rng.key(0)
LAYERS: dict[str, Any] = {
    "grouped": nn.MultiHeadAttention(
        8,
        4,
        kv_heads=2,
        qk_norm=nn.RMSNorm,
        rotary=nn.RotaryEmbedding(2),
        window=(2, 0),
        soft_cap=2.0,
        key=KEY,
    ),
    "relative": nn.MultiHeadAttention(
        8, 2, position_bias=nn.RelativePositionBias(2, key=KEY), key=KEY
    ),
    "rotary": nn.RotaryEmbedding(4, interleaved=True),
    "places": nn.PositionalEmbedding(32, 8, key=KEY),
    "waves": nn.SinusoidalEmbedding(8),
    "relative_bias": nn.RelativePositionBias(2, buckets=6, max_distance=5, key=KEY),
    "alibi": nn.ALiBi(3),
    "cache": nn.KVCache(2, 4, 1, 4),
}


def in_pieces(layer: Any, x: Any, lengths: Any, token: Any) -> Any:
    """A prompt, and a token after it."""
    cache = layer.new_cache(x.shape[:1], x.shape[1] + 1)
    prompt, cache = layer.extend(x, cache, lengths=lengths)
    return prompt, layer.extend(token, cache)[0]


def biased(layer: Any, x: Any) -> Any:
    places = tnp.arange(x.shape[1])
    return layer(places, places)[:1] + x[:, None, :, :1]


NAMES = {"in_pieces": in_pieces, "biased": biased}
EXPRESSIONS = [
    "nn.attention(qh, kh, kh, lengths=tl, query_lengths=tl)",
    "nn.attention(qh, qh, qh, window=2), nn.attention(qh, qh, qh, nn.ALiBi(4)("
    "tnp.arange(qh.shape[1]), tnp.arange(qh.shape[1])))",
    "relative(s)",
    "in_pieces(grouped, s, tl, tok)",
    "rotary(qh), places(s), waves(s), nn.sinusoidal(z, 4, interleaved=True)",
    "biased(relative_bias, s), biased(alibi, s)",
    "s + (nn.causal_mask(s.shape[1]) & nn.window_mask(s.shape[1], window=2) & "
    "nn.padding_mask(tl, s.shape[1])[:, 0]).sum(-1)[..., None]",
    "s + nn.combine_masks(nn.causal_mask(s.shape[1]) * 1.0, s[:, :, :1]).mean()",
]
SIZES = {"in_pieces(grouped, s, tl, tok)": ((3, 5), (1, 1), (8, 3))}
NOT_LAYERS = (
    "ContextCache LinearScaling Llama3Scaling YarnScaling alibi_slopes with_cache"
)

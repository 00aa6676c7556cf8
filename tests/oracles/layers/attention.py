"""Rows: attention, and what tells it where tokens stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import Gemma2Config, LlamaConfig, Qwen3Config, T5Config
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.gemma2.modeling_gemma2 import Gemma2Attention
from transformers.models.gptj import modeling_gptj as gptj
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3.modeling_qwen3 import Qwen3Attention
from transformers.models.t5.modeling_t5 import T5Attention

from tests.oracles.layers.references import Torch
from tests.oracles.layers.rows import Row, Taken, named, random, transposed
from treadle import nn, rng

KEY = rng.key(0)
NO_ROW = {"ContextCache", "KVCache"}
"""Tested with the layer that has one: `tests/nn/test_kv_cache.py`."""

SIZES = {"hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2}
LLAMA = LlamaConfig(
    **SIZES,
    attn_implementation="eager",
    rope_parameters={
        "rope_type": "llama3",
        "rope_theta": 100.0,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16,
    },
)
QWEN = Qwen3Config(**SIZES, head_dim=6, attn_implementation="eager")
GEMMA = Gemma2Config(
    **SIZES,
    head_dim=6,
    query_pre_attn_scalar=9,
    attn_logit_softcapping=0.5,
    attn_implementation="eager",
)
T5_SIZES = {
    "d_model": 8,
    "d_kv": 3,
    "num_heads": 2,
    "dropout_rate": 0.0,
    "relative_attention_num_buckets": 6,
    "relative_attention_max_distance": 5,
}
T5, T5_DECODER = (T5Config(**T5_SIZES, is_decoder=d) for d in (False, True))


def seeded(module: torch.nn.Module) -> torch.nn.Module:
    """With drawn parameters: some start as zeros or ones."""
    torch.manual_seed(0)
    for p in module.parameters():
        torch.nn.init.normal_(p, 0.0, 0.5)
    return module.eval()


def fused(name: str, i: int) -> Taken:
    """Of projections to query, key and value in one, the i-th."""
    return lambda values: np.split(values[name], 3)[i].T


def projections(names: str, biases: bool = False) -> dict[str, Taken]:
    """Four projections that are apart there, too."""
    ours = zip(("query", "key", "value", "out"), names.split(), strict=True)
    found: dict[str, Taken] = {}
    for mine, theirs in ours:
        found[f"{mine}.weight"] = transposed(f"{theirs}.weight")
        if biases:
            found[f"{mine}.bias"] = named(f"{theirs}.bias")
    return found


HUGGING = projections("q_proj k_proj v_proj o_proj")


def unseen(n: int, window: int | None = None) -> torch.Tensor:
    """What is added to scores: -inf for keys that are ahead, or too far back."""
    back = torch.arange(n)[:, None] - torch.arange(n)
    hidden = back < 0 if window is None else (back < 0) | (back >= window)
    return torch.zeros(n, n).masked_fill(hidden, float("-inf"))


def rotated(config: Any, rotary: Any, window: int | None = None) -> Callable[..., Any]:
    """How an attention of transformers is called that gets its angles from outside."""

    def call(module: Any, x: torch.Tensor) -> torch.Tensor:
        angles = rotary(config)(x, torch.arange(x.shape[1])[None])
        return module(x, angles, unseen(x.shape[1], window)[None, None])[0]

    return call


def torch_rows() -> list[Row]:
    def own() -> torch.nn.Module:
        return seeded(torch.nn.MultiheadAttention(8, 2, batch_first=True))

    def across() -> torch.nn.Module:
        return seeded(
            torch.nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)
        )

    def padded(module: Any, x: Any, context: Any, lengths: Any) -> Any:
        padding = torch.arange(context.shape[1]) >= lengths[:, None]
        return module(x, context, context, key_padding_mask=padding)[0]

    out = {
        "out.weight": transposed("out_proj.weight"),
        "out.bias": named("out_proj.bias"),
    }
    parts = ("query", "key", "value")
    return [
        Row(
            "MultiHeadAttention",
            lambda: nn.MultiHeadAttention(8, 2, key=KEY),
            lambda: Torch(own(), lambda m, x: m(x, x, x, attn_mask=unseen(5))[0]),
            (random(3, 5, 8),),
            {
                **{
                    f"{p}.weight": fused("in_proj_weight", i)
                    for i, p in enumerate(parts)
                },
                **{f"{p}.bias": fused("in_proj_bias", i) for i, p in enumerate(parts)},
                **out,
            },
            call=lambda layer, x: layer(x, causal=True),
        ),
        Row(
            "MultiHeadAttention across, of some lengths",
            lambda: nn.MultiHeadAttention(8, 2, context_width=6, key=KEY),
            lambda: Torch(across(), padded),
            (random(3, 5, 8), random(3, 4, 6), np.array([4, 1, 3], np.int32)),
            {
                **{f"{p}.weight": transposed(f"{p[0]}_proj_weight") for p in parts},
                **{f"{p}.bias": fused("in_proj_bias", i) for i, p in enumerate(parts)},
                **out,
            },
            call=lambda layer, x, c, n: layer(x, c, lengths=n),
        ),
    ]


SCALING = nn.Llama3Scaling(8.0, 1.0, 4.0, 16)
ROWS = [
    *torch_rows(),
    Row(
        "MultiHeadAttention as Llama's",
        lambda: nn.MultiHeadAttention(
            8,
            4,
            kv_heads=2,
            bias=False,
            rotary=nn.RotaryEmbedding(2, base=100.0, scaling=SCALING),
            key=KEY,
        ),
        lambda: Torch(
            seeded(llama.LlamaAttention(LLAMA, 0)),
            rotated(LLAMA, llama.LlamaRotaryEmbedding),
        ),
        (random(3, 5, 8),),
        HUGGING,
        call=lambda layer, x: layer(x, causal=True),
    ),
    Row(
        "MultiHeadAttention as Qwen's",
        lambda: nn.MultiHeadAttention(
            8,
            4,
            kv_heads=2,
            head_size=6,
            bias=False,
            qk_norm=nn.RMSNorm,
            rotary=nn.RotaryEmbedding(6),
            key=KEY,
        ),
        lambda: Torch(
            seeded(Qwen3Attention(QWEN, 0)), rotated(QWEN, llama.LlamaRotaryEmbedding)
        ),
        (random(3, 5, 8),),
        {
            **HUGGING,
            "query_norm.weight": named("q_norm.weight"),
            "key_norm.weight": named("k_norm.weight"),
        },
        call=lambda layer, x: layer(x, causal=True),
        tolerance=5e-5,
    ),
    Row(
        "MultiHeadAttention as Gemma's",
        lambda: nn.MultiHeadAttention(
            8,
            4,
            kv_heads=2,
            head_size=6,
            bias=False,
            rotary=nn.RotaryEmbedding(6),
            window=(2, 0),
            scale=1 / 3,
            soft_cap=0.5,
            key=KEY,
        ),
        lambda: Torch(
            seeded(Gemma2Attention(GEMMA, 0)),
            rotated(GEMMA, llama.LlamaRotaryEmbedding, window=3),
        ),
        (random(3, 5, 8),),
        HUGGING,
        call=lambda layer, x: layer(x, causal=True),
    ),
    Row(
        "MultiHeadAttention as T5's",
        lambda: nn.MultiHeadAttention(
            8,
            2,
            head_size=3,
            bias=False,
            scale=1.0,
            position_bias=nn.RelativePositionBias(
                2, buckets=6, max_distance=5, key=KEY
            ),
            key=KEY,
        ),
        lambda: Torch(
            seeded(T5Attention(T5, has_relative_attention_bias=True)),
            lambda m, x: m(x)[0],
        ),
        (random(3, 9, 8),),
        {
            **projections("q k v o"),
            "position_bias.weight": named("relative_attention_bias.weight"),
        },
    ),
]


def relative_bias(module: Any, x: torch.Tensor) -> torch.Tensor:
    return x + module.compute_bias(x.shape[-2], x.shape[-1])


def alibi(_: Any, x: torch.Tensor) -> torch.Tensor:
    """Bloom's grow with the key's place, ours fall with the distance."""
    n = x.shape[-1]
    slopes = build_alibi_tensor(torch.ones(1, n), 6, torch.float32)[:, 0, 1]
    distance = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    return x - slopes[:, None, None] * distance


def places_added(layer: Any, x: Any) -> Any:
    """To scores, so that there is an input of floats."""
    return x + layer(np.arange(x.shape[-2]), np.arange(x.shape[-1])).astype(x.dtype)


def interleaved(_: Any, x: torch.Tensor) -> torch.Tensor:
    waves = gptj.create_sinusoidal_positions(x.shape[1], 4)[None]
    sin, cos = torch.split(waves, 2, -1)
    turned = gptj.apply_rotary_pos_emb(x[..., :4], sin, cos)
    return torch.cat([turned, x[..., 4:]], -1)


class Nothing(torch.nn.Module):
    """No parameters: what there is to compute, a function does."""


ROWS += [
    Row(
        "RelativePositionBias",
        lambda: nn.RelativePositionBias(
            2, buckets=6, max_distance=5, bidirectional=False, key=KEY
        ),
        lambda: Torch(
            seeded(T5Attention(T5_DECODER, has_relative_attention_bias=True)),
            relative_bias,
        ),
        (random(3, 2, 9, 9),),
        {"weight": named("relative_attention_bias.weight")},
        call=places_added,
    ),
    Row(
        "ALiBi",
        lambda: nn.ALiBi(6),
        lambda: Torch(Nothing(), alibi),
        (random(3, 6, 5, 5),),
        call=places_added,
    ),
    Row(
        "RotaryEmbedding, interleaved, of some elements",
        lambda: nn.RotaryEmbedding(4, interleaved=True),
        lambda: Torch(Nothing(), interleaved),
        (random(3, 5, 2, 6),),
    ),
    Row(
        "SinusoidalEmbedding",
        lambda: nn.SinusoidalEmbedding(6),
        lambda: Torch(
            Nothing(), lambda _, x: x + gptj.create_sinusoidal_positions(5, 6)
        ),
        (random(3, 5, 6),),
    ),
    Row(
        "PositionalEmbedding",
        lambda: nn.PositionalEmbedding(7, 6, key=KEY),
        lambda: Torch(
            torch.nn.Embedding(7, 6), lambda m, x: x + m(torch.arange(x.shape[1]))
        ),
        (random(3, 5, 6),),
        {"weight": named("weight")},
    ),
]

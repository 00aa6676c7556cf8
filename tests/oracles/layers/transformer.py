"""Rows: blocks of transformers, their stacks, and what their networks are made of."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, MixtralConfig
from transformers.models.llama import modeling_llama as llama
from transformers.models.mixtral import modeling_mixtral as mixtral

from tests.oracles.layers.attention import fused, seeded, unseen
from tests.oracles.layers.references import Torch
from tests.oracles.layers.rows import Row, Taken, named, random, transposed
from treadle import nn, rng

KEY = rng.key(0)
exact_gelu = partial(nn.gelu, approximate=False)
SIZES = {"d_model": 8, "nhead": 2, "dim_feedforward": 12, "dropout": 0.0}
LLAMA = LlamaConfig(
    hidden_size=8,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=12,
    attn_implementation="eager",
)
MIXTRAL = MixtralConfig(
    hidden_size=8,
    intermediate_size=12,
    num_local_experts=4,
    num_experts_per_tok=2,
    router_jitter_noise=0.0,
    experts_implementation="eager",
)


def affine(ours: str, theirs: str) -> dict[str, Taken]:
    return {
        f"{ours}.weight": transposed(f"{theirs}.weight"),
        f"{ours}.bias": named(f"{theirs}.bias"),
    }


def normed(ours: str, theirs: str) -> dict[str, Taken]:
    return {f"{ours}.{x}": named(f"{theirs}.{x}") for x in ("weight", "bias")}


def attended(ours: str, theirs: str) -> dict[str, Taken]:
    found = affine(f"{ours}.out", f"{theirs}.out_proj")
    for i, part in enumerate(("query", "key", "value")):
        found[f"{ours}.{part}.weight"] = fused(f"{theirs}.in_proj_weight", i)
        found[f"{ours}.{part}.bias"] = fused_bias(f"{theirs}.in_proj_bias", i)
    return found


def fused_bias(name: str, i: int) -> Taken:
    return lambda values: np.split(values[name], 3)[i]


def encoder_block(ours: str = "", theirs: str = "") -> dict[str, Taken]:
    return {
        **normed(f"{ours}attention_norm", f"{theirs}norm1"),
        **attended(f"{ours}attention", f"{theirs}self_attn"),
        **normed(f"{ours}mlp_norm", f"{theirs}norm2"),
        **affine(f"{ours}mlp.up", f"{theirs}linear1"),
        **affine(f"{ours}mlp.down", f"{theirs}linear2"),
    }


def decoder_block(ours: str = "", theirs: str = "") -> dict[str, Taken]:
    return {
        **encoder_block(ours, theirs),
        **normed(f"{ours}context_norm", f"{theirs}norm2"),
        **attended(f"{ours}context_attention", f"{theirs}multihead_attn"),
        **normed(f"{ours}mlp_norm", f"{theirs}norm3"),
    }


def torch_layer(kind: Any, **options: Any) -> torch.nn.Module:
    return kind(**SIZES, batch_first=True, **options)


ENCODER, DECODER = torch.nn.TransformerEncoderLayer, torch.nn.TransformerDecoderLayer


def encode_padded(module: Any, x: Any, lengths: Any) -> Any:
    padding = torch.arange(x.shape[1]) >= lengths[:, None]
    return module(x, src_key_padding_mask=padding)


def decode(module: Any, x: Any, context: Any) -> Any:
    return module(x, context, tgt_mask=unseen(x.shape[1]))


def layers(depth: int, block: Callable[[str, str], dict[str, Taken]]) -> Any:
    parts = [block(f"layers.{i}.", f"layers.{i}.") for i in range(depth)]
    whole = {k: v for part in parts for k, v in part.items()}
    return {**whole, **normed("norm", "norm")}


LENGTHS = np.array([5, 1, 3], np.int32)
X, CONTEXT = random(3, 5, 8), random(3, 4, 8, seed=1)


def torch_rows() -> list[Row]:
    return [
        Row(
            "TransformerEncoderBlock post-norm, of some lengths",
            lambda: nn.TransformerEncoderBlock(
                8, 2, 12, pre_norm=False, mlp=with_activation(nn.relu), key=KEY
            ),
            lambda: Torch(training(torch_layer(ENCODER)), encode_padded),
            (X, LENGTHS),
            encoder_block(),
            call=lambda layer, x, n: layer(x, lengths=n),
        ),
        Row(
            "TransformerDecoderBlock",
            lambda: nn.TransformerDecoderBlock(
                8, 2, 12, mlp=with_activation(exact_gelu), key=KEY
            ),
            lambda: Torch(
                seeded(torch_layer(DECODER, activation="gelu", norm_first=True)), decode
            ),
            (X, CONTEXT),
            decoder_block(),
        ),
        Row(
            "TransformerEncoder causal",
            lambda: nn.TransformerEncoder(
                2, 8, 2, 12, mlp=with_activation(exact_gelu), key=KEY
            ),
            lambda: Torch(
                seeded(
                    torch.nn.TransformerEncoder(
                        torch_layer(ENCODER, activation="gelu", norm_first=True),
                        2,
                        torch.nn.LayerNorm(8),
                        enable_nested_tensor=False,
                    )
                ),
                lambda m, x: m(x, mask=unseen(x.shape[1])),
            ),
            (X,),
            layers(2, encoder_block),
            call=lambda layer, x: layer(x, causal=True),
            tolerance=5e-5,
        ),
        Row(
            "TransformerDecoder",
            lambda: nn.TransformerDecoder(
                2, 8, 2, 12, mlp=with_activation(nn.relu), key=KEY
            ),
            lambda: Torch(
                seeded(
                    torch.nn.TransformerDecoder(
                        torch_layer(DECODER, norm_first=True), 2, torch.nn.LayerNorm(8)
                    )
                ),
                decode,
            ),
            (X, CONTEXT),
            layers(2, decoder_block),
            tolerance=5e-5,
        ),
    ]


def with_activation(activation: Any) -> Any:
    return partial(nn.FeedForward, activation=activation)


def training(module: torch.nn.Module) -> torch.nn.Module:
    """Torch's fast path for evaluation gives zeros where there is padding."""
    seeded(module)
    module.eval = lambda: module  # type: ignore[method-assign]
    return module.train()


def llama_block(module: Any, x: torch.Tensor) -> torch.Tensor:
    angles = llama.LlamaRotaryEmbedding(LLAMA)(x, torch.arange(x.shape[1])[None])
    return module(x, unseen(x.shape[1])[None, None], position_embeddings=angles)


def llama_weights() -> dict[str, Taken]:
    mine = "attention.query attention.key attention.value attention.out"
    names = "self_attn.q_proj self_attn.k_proj self_attn.v_proj self_attn.o_proj"
    mine, names = f"{mine} mlp.gate mlp.up mlp.down", f"{names} mlp.gate_proj"
    names = f"{names} mlp.up_proj mlp.down_proj"
    pairs = zip(mine.split(), names.split(), strict=True)
    return {
        "attention_norm.weight": named("input_layernorm.weight"),
        "mlp_norm.weight": named("post_attention_layernorm.weight"),
        **{f"{m}.weight": transposed(f"{n}.weight") for m, n in pairs},
    }


class Mixture(torch.nn.Module):
    """Mixtral's, which remembers the loss for even loads."""

    balance: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.block = mixtral.MixtralSparseMoeBlock(MIXTRAL)
        self.register_buffer("balance", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits = self.block.gate(x.reshape(-1, 8))[0]
        loss = mixtral.load_balancing_loss_func((logits,), 4, 2)
        self.balance = loss.detach()
        return self.block(x)


def expert_weights(name: str, part: slice) -> Taken:
    return lambda values: np.swapaxes(values[f"block.experts.{name}"][:, part], 1, 2)


class Mixer(torch.nn.Module):
    """As the paper writes it."""

    def __init__(self) -> None:
        super().__init__()
        linear = torch.nn.Linear
        self.norm1, self.norm2 = torch.nn.LayerNorm(8), torch.nn.LayerNorm(8)
        gelu = torch.nn.GELU
        self.places = torch.nn.Sequential(linear(5, 6), gelu(), linear(6, 5))
        self.features = torch.nn.Sequential(linear(8, 12), gelu(), linear(12, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.places(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.features(self.norm2(x))


ROWS = [
    *torch_rows(),
    Row(
        "TransformerEncoderBlock as Llama's",
        lambda: nn.TransformerEncoderBlock(
            8,
            4,
            12,
            norm=nn.RMSNorm,
            attention=partial(
                nn.MultiHeadAttention,
                kv_heads=2,
                bias=False,
                rotary=nn.RotaryEmbedding(2),
            ),
            mlp=nn.GatedMLP,
            key=KEY,
        ),
        lambda: Torch(seeded(llama.LlamaDecoderLayer(LLAMA, 0)), llama_block),
        (X,),
        llama_weights(),
        call=lambda layer, x: layer(x, causal=True),
        tolerance=5e-5,
    ),
    Row(
        "GatedMLP",
        lambda: nn.GatedMLP(8, 12, key=KEY),
        lambda: Torch(seeded(llama.LlamaMLP(LLAMA))),
        (X,),
        {f"{n}.weight": transposed(f"{n}_proj.weight") for n in ("gate", "up", "down")},
    ),
    Row(
        "FeedForward",
        lambda: nn.FeedForward(8, 12, activation=nn.relu, key=KEY),
        lambda: Torch(
            torch.nn.Sequential(
                torch.nn.Linear(8, 12), torch.nn.ReLU(), torch.nn.Linear(12, 8)
            )
        ),
        (X,),
        {**affine("up", "0"), **affine("down", "2")},
    ),
    Row(
        "MixtureOfExperts",
        lambda: nn.MixtureOfExperts(8, 12, experts=4, key=KEY),
        lambda: Torch(seeded(Mixture())),
        (X,),
        {
            "router.weight": transposed("block.gate.weight"),
            "gate": expert_weights("gate_up_proj", slice(12)),
            "up": expert_weights("gate_up_proj", slice(12, None)),
            "down": expert_weights("down_proj", slice(None)),
            "balance.value": named("balance"),
        },
        tolerance=5e-5,
    ),
    Row(
        "MLPMixerBlock",
        lambda: nn.MLPMixerBlock(5, 8, 6, 12, mlp=with_activation(exact_gelu), key=KEY),
        lambda: Torch(seeded(Mixer())),
        (X,),
        {
            **normed("place_norm", "norm1"),
            **affine("place_mlp.up", "places.0"),
            **affine("place_mlp.down", "places.2"),
            **normed("mlp_norm", "norm2"),
            **affine("mlp.up", "features.0"),
            **affine("mlp.down", "features.2"),
        },
    ),
]

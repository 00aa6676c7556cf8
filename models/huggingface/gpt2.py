"""Hugging Face's GPT-2: options and names. Its weights are (in, out), as ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle import nn, rng
from treadle.models.gpt2 import GPT2
from treadle.models.huggingface.config import Config
from treadle.weights import TORCH, Rule

PREFIX = "transformer."
_PARTS = ("query", "key", "value")


def make(config: Config, values: Mapping[str, Any], key: rng.Key) -> nn.Module:
    """The model, with a head of its own if the file has one."""
    config.require(
        add_cross_attention=False,
        scale_attn_by_inverse_layer_idx=False,
        scale_attn_weights=True,
    )
    tied = config.get("tie_word_embeddings", True) or "lm_head.weight" not in values
    return GPT2(
        config["vocab_size"],
        config["n_embd"],
        config["n_layer"],
        config["n_head"],
        hidden=config.get("n_inner"),
        positions=config["n_positions"],
        tied=tied,
        activation=config.activation("activation_function"),
        eps=config["layer_norm_epsilon"],
        dropout=config["resid_pdrop"],
        key=key,
    )


def names(model: nn.Module) -> list[Rule]:
    """What the arrays of a model are called there."""
    tied = isinstance(model, GPT2) and model.head is None
    return [
        Rule("wte.weight", "tokens.weight"),
        Rule("wpe.weight", "positions.weight"),
        Rule("lm_head.weight", None, same_as="wte.weight")
        if tied
        else Rule("lm_head.weight", "head.weight", TORCH),
        # Masks, in the oldest files.
        Rule("h.{i}.attn.bias", None),
        Rule("h.{i}.attn.masked_bias", None),
        Rule("h.{i}.ln_1.{leaf}", "layers.{i}.attention_norm.{leaf}"),
        Rule(
            "h.{i}.attn.c_attn.{leaf}",
            tuple(f"layers.{{i}}.attention.{p}.{{leaf}}" for p in _PARTS),
        ),
        Rule("h.{i}.attn.c_proj.{leaf}", "layers.{i}.attention.out.{leaf}"),
        Rule("h.{i}.ln_2.{leaf}", "layers.{i}.norm.{leaf}"),
        Rule("h.{i}.mlp.c_fc.{leaf}", "layers.{i}.feed_forward.up.{leaf}"),
        Rule("h.{i}.mlp.c_proj.{leaf}", "layers.{i}.feed_forward.down.{leaf}"),
        Rule("ln_f.{leaf}", "norm.{leaf}"),
    ]

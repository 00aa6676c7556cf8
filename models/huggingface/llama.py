"""Hugging Face's Llama: options and names."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from treadle import nn, rng
from treadle.models.huggingface.config import Config
from treadle.models.llama import Llama
from treadle.weights import TORCH, Rule

PREFIX = "model."


def make(config: Config, values: Mapping[str, Any], key: rng.Key) -> nn.Module:
    """The model, with a head of its own if the file has one."""
    heads = config["num_attention_heads"]
    size = config.get("head_dim", config["hidden_size"] // heads)
    return Llama(
        config["vocab_size"],
        config["hidden_size"],
        config["num_hidden_layers"],
        heads,
        config["intermediate_size"],
        kv_heads=config.get("num_key_value_heads", heads),
        rotary=rotary(config, size),
        tied="lm_head.weight" not in values or config.get("tie_word_embeddings", False),
        attention_bias=config.get("attention_bias", False),
        bias=config.get("mlp_bias", False),
        activation=config.activation("hidden_act"),
        eps=config["rms_norm_eps"],
        key=key,
    )


def rotary(config: Config, size: int) -> nn.RotaryEmbedding:
    """The rotary positions, slower for longer texts where the config says so.

    Raises:
      ValueError: for a kind that is not known.
    """
    # Before transformers 5, the base stood beside the options of scaling.
    options = config.get("rope_parameters", config.get("rope_scaling", {}))
    base = options.get("rope_theta", config.get("rope_theta", 10000.0))
    kind = options.get("rope_type", options.get("type", "default"))
    if kind not in _SCALINGS:
        raise ValueError(
            f"{config.path}: the rope_type is {kind!r}; known are "
            f"{', '.join(_SCALINGS)}"
        )
    return nn.RotaryEmbedding(size, base=base, scaling=_SCALINGS[kind](options))


def _yarn(options: Mapping[str, Any]) -> nn.YarnScaling:
    factor, attention = options["factor"], options.get("attention_factor")
    over, under = options.get("mscale"), options.get("mscale_all_dim")
    if attention is None and over and under:
        more = 0.1 * math.log(max(factor, 1))
        attention = (1 + over * more) / (1 + under * more)
    return nn.YarnScaling(
        factor,
        options["original_max_position_embeddings"],
        options.get("beta_fast") or 32.0,
        options.get("beta_slow") or 1.0,
        attention,
        options.get("truncate", True),
    )


_SCALINGS: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "default": lambda options: None,
    "linear": lambda options: nn.LinearScaling(options["factor"]),
    "llama3": lambda options: nn.Llama3Scaling(
        options["factor"],
        options["low_freq_factor"],
        options["high_freq_factor"],
        options["original_max_position_embeddings"],
    ),
    "yarn": _yarn,
}


def names(model: nn.Module) -> list[Rule]:
    """What the arrays of a model are called there."""
    tied = isinstance(model, Llama) and model.head is None
    words = "embed_tokens.weight"
    head = (
        Rule("lm_head.weight", None, same_as=words)
        if tied
        else Rule("lm_head.weight", "head.weight", TORCH)
    )
    return [
        Rule(words, "tokens.weight"),
        head,
        # In older files.
        Rule("layers.{i}.self_attn.rotary_emb.inv_freq", None),
        *(
            Rule(f"{theirs}.{{leaf}}", f"{ours}.{{leaf}}", TORCH)
            for theirs, ours in {
                "layers.{i}.self_attn.q_proj": "layers.{i}.attention.query",
                "layers.{i}.self_attn.k_proj": "layers.{i}.attention.key",
                "layers.{i}.self_attn.v_proj": "layers.{i}.attention.value",
                "layers.{i}.self_attn.o_proj": "layers.{i}.attention.out",
                "layers.{i}.mlp.gate_proj": "layers.{i}.mlp.gate",
                "layers.{i}.mlp.up_proj": "layers.{i}.mlp.up",
                "layers.{i}.mlp.down_proj": "layers.{i}.mlp.down",
                "layers.{i}.input_layernorm": "layers.{i}.attention_norm",
                "layers.{i}.post_attention_layernorm": "layers.{i}.mlp_norm",
                "norm": "norm",
            }.items()
        ),
    ]

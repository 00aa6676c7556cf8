"""Hugging Face's T5: options and names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from treadle import nn, rng
from treadle.models.huggingface.config import Config
from treadle.models.t5 import T5
from treadle.weights import TORCH, Rule

PREFIX = ""


def make(config: Config, values: Mapping[str, Any], key: rng.Key) -> nn.Module:
    """The model; in version 1.1 it has a head of its own."""
    tied = config.get("tie_word_embeddings", True) or "lm_head.weight" not in values
    return T5(
        config["vocab_size"],
        config["d_model"],
        config["num_layers"],
        config["num_heads"],
        decoder_depth=config.get("num_decoder_layers"),
        hidden=config["d_ff"],
        head_size=config["d_kv"],
        buckets=config["relative_attention_num_buckets"],
        max_distance=config.get("relative_attention_max_distance", 128),
        mlp=_mlp(config),
        tied=tied,
        scaled=config.get(
            "scale_decoder_outputs", config.get("tie_word_embeddings", True)
        ),
        eps=config["layer_norm_epsilon"],
        dropout=config["dropout_rate"],
        key=key,
    )


def _mlp(config: Config) -> Any:
    """What makes the feed-forward parts. Their "gated-gelu" is that of tanh."""
    name = config.get("feed_forward_proj", "relu")
    gated = name.startswith("gated-")
    name = "gelu_new" if name == "gated-gelu" else name.removeprefix("gated-")
    activation = config.activation("feed_forward_proj", name)
    return partial(nn.GatedMLP if gated else nn.FeedForward, activation=activation)


_PARTS = {"q": "query", "k": "key", "v": "value", "o": "out"}
_BIAS = "relative_attention_bias.weight"


def names(model: nn.Module) -> list[Rule]:
    """What the arrays of a model are called there."""
    tied = isinstance(model, T5) and model.decoder.head is None
    head = (
        Rule("lm_head.weight", None, same_as="shared.weight")
        if tied
        else Rule("lm_head.weight", "decoder.head.weight", TORCH)
    )
    gated = isinstance(model, T5) and isinstance(
        model.encoder.layers[0].mlp, nn.GatedMLP
    )
    mlp = {"wi_0": "gate", "wi_1": "up"} if gated else {"wi": "up"}
    mlp["wo"] = "down"
    rules = [
        Rule("shared.weight", "encoder.tokens.weight"),
        Rule("{side}.embed_tokens.weight", None, same_as="shared.weight"),
        head,
        # In older files, of no use.
        Rule(f"decoder.block.0.layer.1.EncDecAttention.{_BIAS}", None),
        Rule("{side}.final_layer_norm.weight", "{side}.norm.weight"),
    ]
    for side, last in (("encoder", 1), ("decoder", 2)):
        theirs, ours = f"{side}.block.{{i}}.layer", f"{side}.layers.{{i}}"
        attentions = {"0.SelfAttention": "attention"}
        norms = {"0": "attention_norm", str(last): "mlp_norm"}
        if side == "decoder":
            attentions["1.EncDecAttention"] = "context_attention"
            norms["1"] = "context_norm"
        rules.append(
            Rule(
                f"{side}.block.0.layer.0.SelfAttention.{_BIAS}",
                f"{side}.layers.0.attention.position_bias.weight",
            )
        )
        rules += [
            Rule(f"{theirs}.{a}.{p}.weight", f"{ours}.{b}.{q}.weight", TORCH)
            for a, b in attentions.items()
            for p, q in _PARTS.items()
        ]
        rules += [
            Rule(f"{theirs}.{a}.layer_norm.weight", f"{ours}.{b}.weight")
            for a, b in norms.items()
        ]
        rules += [
            Rule(
                f"{theirs}.{last}.DenseReluDense.{a}.weight",
                f"{ours}.mlp.{b}.weight",
                TORCH,
            )
            for a, b in mlp.items()
        ]
    return rules

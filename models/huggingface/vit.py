"""Hugging Face's ViT: options and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle import nn, rng
from treadle.models.huggingface.config import Config
from treadle.models.vit import ViT
from treadle.weights import TORCH, Layout, Rule

PREFIX = "vit."
# One for the whole batch there.
_FIRST = Layout(lambda x: x.reshape(x.shape[-1:]), lambda x: x[None, None])
_PLACES = Layout(lambda x: x.reshape(x.shape[-2:]), lambda x: x[None])


def make(config: Config, values: Mapping[str, Any], key: rng.Key) -> nn.Module:
    """The model, with classes and a pooler as far as the file has them."""
    config.require(pooler_act="tanh")
    head = values.get("classifier.weight")
    return ViT(
        config["image_size"],
        config["patch_size"],
        config["hidden_size"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
        None if head is None else head.shape[0],
        channels=config["num_channels"],
        hidden=config["intermediate_size"],
        pooler="pooler.dense.weight" in values,
        attention_bias=config.get("qkv_bias", True),
        activation=config.activation("hidden_act"),
        eps=config["layer_norm_eps"],
        dropout=config["hidden_dropout_prob"],
        key=key,
    )


def names(model: nn.Module) -> list[Rule]:
    """What the arrays of a model are called there."""
    theirs, ours = "encoder.layer.{i}", "layers.{i}"
    return [
        Rule("embeddings.cls_token", "first", _FIRST),
        Rule("embeddings.position_embeddings", "positions", _PLACES),
        Rule("embeddings.patch_embeddings.projection.{leaf}", "patches.{leaf}", TORCH),
        *(
            Rule(f"{a}.{{leaf}}", f"{b}.{{leaf}}", TORCH)
            for a, b in {
                **{
                    f"{theirs}.attention.attention.{part}": f"{ours}.attention.{part}"
                    for part in ("query", "key", "value")
                },
                f"{theirs}.attention.output.dense": f"{ours}.attention.out",
                f"{theirs}.layernorm_before": f"{ours}.attention_norm",
                f"{theirs}.layernorm_after": f"{ours}.norm",
                f"{theirs}.intermediate.dense": f"{ours}.feed_forward.up",
                f"{theirs}.output.dense": f"{ours}.feed_forward.down",
                "layernorm": "norm",
                "pooler.dense": "pooler",
                "classifier": "head",
            }.items()
        ),
    ]

"""Hugging Face's ConvNeXt: options and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle import nn, rng
from treadle.models.convnext import ConvNeXt
from treadle.models.huggingface.config import Config
from treadle.weights import TORCH, Rule

PREFIX = "convnext."


def make(config: Config, values: Mapping[str, Any], key: rng.Key) -> nn.Module:
    """The model, with classes if the file has them."""
    head = values.get("classifier.weight")
    return ConvNeXt(
        config["hidden_sizes"],
        config["depths"],
        None if head is None else head.shape[0],
        channels=config["num_channels"],
        patch=config["patch_size"],
        activation=config.activation("hidden_act"),
        scale=config["layer_scale_init_value"],
        drop_path=config.get("drop_path_rate", 0.0),
        eps=config["layer_norm_eps"],
        key=key,
    )


def names(model: ConvNeXt) -> list[Rule]:
    """What the arrays of a model are called there."""
    theirs, ours = "encoder.stages.{i}.layers.{j}", "stages.{i}.{j}"
    rules = [Rule(f"{theirs}.layer_scale_parameter", f"{ours}.scale")]
    # The first stage has no halving: theirs are counted from 1.
    for i in range(1, len(model.stages)):
        for j, part in enumerate(("norm", "conv")):
            rules.append(
                Rule(
                    f"encoder.stages.{i}.downsampling_layer.{j}.{{leaf}}",
                    f"halvings.{i - 1}.{part}.{{leaf}}",
                    TORCH,
                )
            )
    return rules + [
        Rule(f"{a}.{{leaf}}", f"{b}.{{leaf}}", TORCH)
        for a, b in {
            "embeddings.patch_embeddings": "stem",
            "embeddings.layernorm": "stem_norm",
            f"{theirs}.dwconv": f"{ours}.conv",
            f"{theirs}.layernorm": f"{ours}.norm",
            f"{theirs}.pwconv1": f"{ours}.up",
            f"{theirs}.pwconv2": f"{ours}.down",
            "layernorm": "norm",
            "classifier": "head",
        }.items()
    ]

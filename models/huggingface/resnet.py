"""Hugging Face's ResNet: options and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle import nn, rng
from treadle.models.huggingface.config import Config
from treadle.models.resnet import ResNet
from treadle.weights import TORCH, Rule

PREFIX = "resnet."


def make(config: Config, values: Mapping[str, Any], key: rng.Key) -> nn.Module:
    """The model, with classes if the file has them."""
    head = values.get("classifier.1.weight")
    return ResNet(
        config["hidden_sizes"],
        config["depths"],
        None if head is None else head.shape[0],
        block=config["layer_type"],
        stem=config["embedding_size"],
        channels=config["num_channels"],
        activation=config.activation("hidden_act"),
        stride_stage=config["downsample_in_first_stage"],
        stride_first=config.get("downsample_in_bottleneck", False),
        key=key,
    )


def names(model: nn.Module) -> list[Rule]:
    """What the arrays of a model are called there."""
    theirs, ours = "encoder.stages.{i}.layers.{j}", "stages.{i}.{j}"
    rules = [
        Rule("{*part}.num_batches_tracked", None),
        Rule("classifier.1.{leaf}", "head.{leaf}", TORCH),
    ]
    for a, b in {
        "embedder.embedder": "stem",
        f"{theirs}.shortcut": f"{ours}.shortcut",
        f"{theirs}.layer.{{k}}": f"{ours}.layers.{{k}}",
    }.items():
        rules += [
            Rule(f"{a}.normalization.running_mean", f"{b}.norm.mean.value"),
            Rule(f"{a}.normalization.running_var", f"{b}.norm.var.value"),
            Rule(f"{a}.normalization.{{leaf}}", f"{b}.norm.{{leaf}}"),
            Rule(f"{a}.convolution.{{leaf}}", f"{b}.conv.{{leaf}}", TORCH),
        ]
    return rules

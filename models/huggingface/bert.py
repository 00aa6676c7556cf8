"""Hugging Face's BERT: options and names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from treadle import nn, rng
from treadle.models.bert import Bert, BertClassifier, BertMaskedLM
from treadle.models.huggingface.config import Config
from treadle.weights import TORCH, Rule

PREFIX = "bert."


def make(config: Config, values: Mapping[str, Any], key: rng.Key) -> nn.Module:
    """The model whose arrays the file has: with its head, if there is one."""
    config.require(
        is_decoder=False, add_cross_attention=False, position_embedding_type="absolute"
    )
    bert_key, head_key = rng.split(key)
    activation = config.activation("hidden_act")
    bert = Bert(
        config["vocab_size"],
        config["hidden_size"],
        config["num_hidden_layers"],
        config["num_attention_heads"],
        hidden=config["intermediate_size"],
        positions=config["max_position_embeddings"],
        segments=config["type_vocab_size"],
        pooler="pooler.dense.weight" in values,
        activation=activation,
        eps=config["layer_norm_eps"],
        dropout=config["hidden_dropout_prob"],
        key=bert_key,
    )
    if "cls.predictions.bias" in values:
        return BertMaskedLM(bert, activation=activation, key=head_key)
    if "classifier.weight" in values:
        rate = config.get("classifier_dropout", config["hidden_dropout_prob"])
        classes = values["classifier.weight"].shape[0]
        return BertClassifier(bert, classes, dropout=rate, key=head_key)
    return bert


def names(model: nn.Module) -> list[Rule]:
    """What the arrays of a model are called there."""
    bert = "" if isinstance(model, Bert) else "bert."
    layer = "encoder.layer.{i}"
    rules = [
        Rule("embeddings.word_embeddings.weight", f"{bert}tokens.weight"),
        Rule("embeddings.position_embeddings.weight", f"{bert}positions.weight"),
        Rule("embeddings.token_type_embeddings.weight", f"{bert}segments.weight"),
        Rule("embeddings.position_ids", None),
    ]
    for theirs, ours in {
        "embeddings.LayerNorm": f"{bert}norm",
        **{
            f"{layer}.attention.self.{part}": f"{bert}layers.{{i}}.attention.{part}"
            for part in ("query", "key", "value")
        },
        f"{layer}.attention.output.dense": f"{bert}layers.{{i}}.attention.out",
        f"{layer}.attention.output.LayerNorm": f"{bert}layers.{{i}}.attention_norm",
        f"{layer}.intermediate.dense": f"{bert}layers.{{i}}.feed_forward.up",
        f"{layer}.output.dense": f"{bert}layers.{{i}}.feed_forward.down",
        f"{layer}.output.LayerNorm": f"{bert}layers.{{i}}.norm",
        "pooler.dense": f"{bert}pooler",
        "cls.predictions.transform.dense": "transform",
        "cls.predictions.transform.LayerNorm": "norm",
        "classifier": "head",
    }.items():
        if theirs.endswith("LayerNorm"):
            rules.append(Rule(f"{theirs}.weight", f"{ours}.weight"))
            rules.append(Rule(f"{theirs}.bias", f"{ours}.bias"))
            # What TensorFlow called them, in the oldest files.
            rules.append(Rule(f"{theirs}.gamma", f"{ours}.weight"))
            rules.append(Rule(f"{theirs}.beta", f"{ours}.bias"))
        else:
            rules.append(Rule(f"{theirs}.{{leaf}}", f"{ours}.{{leaf}}", TORCH))
    words = "embeddings.word_embeddings.weight"
    return [
        *rules,
        Rule("cls.predictions.bias", "bias"),
        Rule("cls.predictions.decoder.weight", None, same_as=words),
        Rule("cls.predictions.decoder.bias", None, same_as="cls.predictions.bias"),
        Rule("cls.seq_relationship.{leaf}", None),
    ]

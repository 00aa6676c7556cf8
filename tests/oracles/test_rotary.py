"""Rotations for long contexts and slopes, against transformers'."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.bloom.modeling_bloom import build_alibi_tensor

from treadle import nn


@pytest.mark.parametrize("heads", [1, 4, 6, 8, 12])
def test_alibi_slopes(heads: int) -> None:
    """Bloom's bias is the slope at the second place."""
    wanted = build_alibi_tensor(torch.ones(1, 2), heads, torch.float32)[:, 0, 1]
    np.testing.assert_allclose(nn.alibi_slopes(heads), wanted.numpy(), 1e-6)


@pytest.mark.parametrize("factor", [1.0, 2.5, 16.0])
def test_linear(factor: float) -> None:
    parameters = {"rope_type": "linear", "rope_theta": 500.0, "factor": factor}
    config = LlamaConfig(
        hidden_size=64, num_attention_heads=2, rope_parameters=parameters
    )
    expected, _ = ROPE_INIT_FUNCTIONS["linear"](config, "cpu")
    layer = nn.RotaryEmbedding(32, base=500.0, scaling=nn.LinearScaling(factor))
    np.testing.assert_allclose(layer.frequencies(), expected.numpy(), 1e-6)


@pytest.mark.parametrize("size", [4, 16, 64])
@pytest.mark.parametrize(
    ("options", "theirs"),
    [
        ({}, {}),
        ({"factor": 16.0, "length": 4096}, {}),
        ({"fast": 20.0, "slow": 2.0}, {"beta_fast": 20.0, "beta_slow": 2.0}),
        ({"attention": 0.7, "rounded": False}, {"attention_factor": 0.7}),
        ({"factor": 0.5}, {}),
    ],
)
def test_yarn(options: dict[str, Any], theirs: dict[str, Any], size: int) -> None:
    options = {"factor": 4.0, "length": 64} | options
    scaling = nn.YarnScaling(**options)
    parameters = {"rope_type": "yarn", "rope_theta": 500.0, **theirs}
    parameters["factor"] = scaling.factor
    parameters["original_max_position_embeddings"] = scaling.length
    parameters["truncate"] = scaling.rounded
    config = LlamaConfig(
        hidden_size=2 * size,
        num_attention_heads=2,
        max_position_embeddings=8192,
        rope_parameters=parameters,
    )
    expected, magnitude = ROPE_INIT_FUNCTIONS["yarn"](config, "cpu")
    found = nn.RotaryEmbedding(size, base=500.0, scaling=scaling).frequencies()
    np.testing.assert_allclose(found, expected.numpy(), 1e-5)
    np.testing.assert_allclose(scaling.magnitude, magnitude, 1e-6)

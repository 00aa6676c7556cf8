"""Rotations for long contexts, against transformers' frequencies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from treadle import nn


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

"""Adapters on batches and lengths of any size."""

from __future__ import annotations

from typing import Any

from treadle import nn, rng

KEY = rng.key(0)
LAYERS: dict[str, Any] = {
    "adapter": nn.Adapter(8, 3, key=KEY),
    "lora": nn.LoRA(nn.Linear(8, 5, key=KEY), 2, key=KEY),
    "lora_table": nn.LoRA(nn.Embedding(5, 8, key=KEY), 2, key=KEY),
    "lora_conv": nn.LoRA(nn.Conv2d(3, 4, 3, key=KEY), 2, key=KEY),
}
EXPRESSIONS = ["adapter(s), lora(s), lora_table(i)", "lora_conv(im)"]
NOT_LAYERS = "lora merge_lora"

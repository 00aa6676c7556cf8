"""Linear layers, tables, and layers around others."""

from __future__ import annotations

from typing import Any

from tests.core.dynamic import floats, ints
from treadle import nn, rng

KEY = rng.key(0)
ARGS = {
    "rows": floats("n 6"),
    "heads": floats("n t 2 4"),
    "words": ints("n t", 0, 5),
    "flat": ints("t", 0, 5),
}
LAYERS: dict[str, Any] = {
    "pairs": nn.Bilinear(6, 6, 3, key=KEY),
    "general": nn.LinearGeneral((2, 4), (3, 2), key=KEY),
    "einsum": nn.Einsum("...hd,hdo->...oh", (2, 4, 3), key=KEY),
    "padded": nn.Embedding(5, 4, padding_index=0, key=KEY),
    "bag": nn.EmbeddingBag(5, 4, padding_index=0, key=KEY),
    "largest": nn.EmbeddingBag(5, 4, mode="max", key=KEY),
    "residual": nn.Residual(nn.Identity(), nn.Lambda(lambda x: 2 * x)),
    "identity": nn.Identity(),
    "function": nn.Lambda(nn.relu),
}
EXPRESSIONS = [
    "pairs(rows, rows * 2), residual(rows), identity(rows), function(rows)",
    "general(heads), einsum(heads)",
    "padded(words), bag(words), largest(words), largest(words, mask=words > 2)",
    "bag(flat, offsets=tnp.array([0, 1, 1])), largest(flat, offsets=tnp.array([0, 1]))",
]

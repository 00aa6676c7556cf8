"""Vectors for tokens."""

from __future__ import annotations

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check, init
from treadle.nn.module import Module


class Embedding(Module):
    """A table with one vector per token.

    Shapes: ``(...) of integers -> (..., features)``; the weight is (entries, features).

    Args:
      init: draws the table; by default from the normal distribution.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> table = nn.Embedding(100, 8, key=rng.key(0))
    >>> table(tnp.array([[1, 5, 99]])).shape
    (1, 3, 8)
    """

    entries: int
    features: int
    weight: td.Array

    def __init__(
        self,
        entries: int,
        features: int,
        *,
        init: init.Initializer = init.standard_normal,
        key: rng.Key,
    ) -> None:
        self.entries, self.features = entries, features
        self.weight = init(key, (entries, features))

    def __call__(self, tokens: tnp.ArrayLike) -> td.Array:
        tokens = check.as_array(tokens)
        if not td.dtypes.is_integer(tokens.dtype):
            raise TypeError(
                f"Embedding takes integer tokens, got {td.typeof(tokens)}"
                f"{at(user_source())}"
            )
        return self.weight[tokens]

    def attend(self, x: tnp.ArrayLike) -> td.Array:
        """How well vectors agree with each entry: logits of a model whose output shares
        the table. Shapes: ``(..., features) -> (..., entries)``."""
        x = check.last_axis("Embedding.attend", x, self.features, "features")
        return x @ self.weight.T

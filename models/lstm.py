"""A language model of recurrent layers (Zaremba 2014)."""

from __future__ import annotations

from functools import partial
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng


class LSTMLM(nn.Module):
    """Tells which token comes next, at each place of a text.

    Shapes: tokens ``(batch, length)`` of integers ``-> (batch, length, entries)``,
    logits. A jitted model has one program for all lengths.

    Args:
      entries: the number of tokens that there are.
      depth: the number of layers.
      tied: whether logits are made by the table of tokens (Press and Wolf 2017).
      dropout: the rate before, between and behind the layers.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    Of a call, `lengths`, (batch), is how many tokens each text has; those behind them
    are padding. With a cache (`nn.with_cache`), which is the state of its layers, it is
    called with new tokens alone, as `generate` does.

    >>> from treadle import models, nn, rng
    >>> lstm = nn.inference(models.LSTMLM(100, 16, 2, key=rng.key(0)))
    >>> lstm([[5, 6, 7]]).shape
    (1, 3, 100)
    """

    tokens: nn.Embedding
    layers: nn.StackedRNN
    head: nn.Linear | None
    dropout: nn.Dropout
    cache: nn.State | None

    def __init__(
        self,
        entries: int,
        width: int,
        depth: int,
        *,
        tied: bool = False,
        dropout: float = 0.0,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        token_key, layers_key, head_key = rng.split(key, 3)
        draw = nn.init.normal(width**-0.5)
        self.tokens = nn.Embedding(
            entries, width, weight_init=draw, key=token_key, **dtypes
        )
        self.layers = nn.StackedRNN.make(
            partial(nn.LSTMCell, **dtypes),
            (width,) * (depth + 1),
            dropout=dropout,
            key=layers_key,
        )
        self.head = None if tied else nn.Linear(width, entries, key=head_key, **dtypes)
        self.dropout, self.cache = nn.Dropout(dropout), None

    def new_cache(self, batch: tuple[int, ...], length: int, dtype: Any) -> Any:
        """The state of the layers before the first token: zeros, for any length."""
        return tuple(layer.cell.initial(batch) for layer in self.layers.layers)

    def __call__(
        self, tokens: tnp.ArrayLike, lengths: tnp.ArrayLike | None = None
    ) -> td.Array:
        x = self.dropout(self.tokens(tokens))
        before = None if self.cache is None else self.cache.value
        x, after = self.layers(x, before, lengths=lengths)
        if self.cache is not None:
            self.cache.value = after
        x = self.dropout(x)
        return self.tokens.attend(x) if self.head is None else self.head(x)

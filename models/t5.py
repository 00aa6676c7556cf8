"""T5: an encoder of texts, and a decoder that writes others (Raffel 2020)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng

_init = nn.init.lecun_normal
_mlp = partial(nn.FeedForward, activation=nn.relu)


def _attention(
    width: int,
    heads: int,
    *,
    position_bias: nn.RelativePositionBias,
    context_width: int | None = None,
    head_size: int,
    key: rng.Key,
    **options: Any,
) -> nn.MultiHeadAttention:
    """Scores are not divided by the root of the head's size; the queries' weights are
    smaller instead. Attention to a context has no places."""
    layer = nn.MultiHeadAttention(
        width,
        heads,
        head_size=head_size,
        context_width=context_width,
        bias=False,
        scale=1.0,
        position_bias=position_bias if context_width is None else None,
        weight_init=_init,
        key=key,
        **options,
    )
    smaller = layer.query.replace(weight=layer.query.weight * head_size**-0.5)
    return layer.replace(query=smaller)


def _blocks(
    block: Callable[..., Any],
    width: int,
    depth: int,
    heads: int,
    hidden: int,
    *,
    head_size: int,
    bias: nn.RelativePositionBias,
    mlp: Callable[..., Any],
    eps: float,
    dropout: float,
    dtypes: dict[str, Any],
    key: rng.Key,
) -> list[Any]:
    """Layers that share what they add to scores for distances."""
    make = partial(
        block,
        norm=partial(nn.RMSNorm, eps=eps),
        attention=partial(_attention, head_size=head_size, position_bias=bias),
        mlp=partial(mlp, bias=False, weight_init=_init),
        dropout=dropout,
        **dtypes,
    )
    return [make(width, heads, hidden, key=k) for k in rng.split(key, depth)]


class T5Encoder(nn.Module):
    """Vectors for the tokens of a text, of which each knows all others.

    Shapes: tokens ``(batch, length)`` of integers ``-> (batch, length, width)``.
    `lengths`, (batch), is how many tokens each text has. A `T5` makes one.
    """

    tokens: nn.Embedding
    layers: list[nn.TransformerEncoderBlock]
    norm: nn.RMSNorm
    dropout: nn.Dropout

    def __call__(
        self, tokens: tnp.ArrayLike, lengths: tnp.ArrayLike | None = None
    ) -> td.Array:
        x = self.dropout(self.tokens(tokens))
        for layer in self.layers:
            x = layer(x, lengths=lengths)
        return self.dropout(self.norm(x))


class T5Decoder(nn.Module):
    """Tells which token comes next, at each place of a text that belongs to another.

    Shapes: tokens ``(batch, length)`` of integers, and the `context`, ``(batch, other
    length, width)``, that the encoder has made of the other text, ``-> (batch, length,
    entries)``, logits. `lengths` and `context_lengths`, (batch), are how many tokens
    there are of each. A `T5` makes one; `generate` takes it.
    """

    tokens: nn.Embedding
    layers: list[nn.TransformerDecoderBlock]
    norm: nn.RMSNorm
    head: nn.Linear | None
    dropout: nn.Dropout
    scaled: bool

    def __call__(
        self,
        tokens: tnp.ArrayLike,
        lengths: tnp.ArrayLike | None = None,
        *,
        context: tnp.ArrayLike,
        context_lengths: tnp.ArrayLike | None = None,
    ) -> td.Array:
        x, context = self.dropout(self.tokens(tokens)), tnp.asarray(context)
        for layer in self.layers:
            x = layer(x, context, lengths=lengths, context_lengths=context_lengths)
        x = self.dropout(self.norm(x))
        if self.scaled:
            x = x * self.tokens.features**-0.5
        return self.tokens.attend(x) if self.head is None else self.head(x)


class T5(nn.Module):
    """Tells which token comes next in a text that belongs to another: a translation, an
    answer, a summary.

    Shapes: tokens ``(batch, length)`` and targets ``(batch, other length)`` of integers
    ``-> (batch, other length, entries)``, logits. Targets begin with the token for the
    start, by which a text is told from nothing. A jitted model has one program for all
    lengths.

    Args:
      entries: the number of tokens that there are.
      depth: the number of layers; `decoder_depth` of the decoder, by default as many.
      hidden: the width inside of the feed-forward parts; by default ``4 * width``.
      head_size: by default ``width // heads``.
      buckets, max_distance: of the `nn.RelativePositionBias` of encoder and decoder.
      mlp: makes the feed-forward parts: by default with ReLU;
        ``partial(nn.GatedMLP, activation=nn.gelu)`` in T5 1.1.
      tied: whether logits are made by the table of tokens; without, by a `head`.
      scaled: whether vectors are divided by the root of the width before, as in the
        first T5; by default if tied.
      dtype: in which the layers compute; by default that of their parameters.
      param_dtype: in which the parameters are made.

    Of a call, `lengths` and `target_lengths`, (batch), are how many tokens each text
    has; those behind them are padding.

    >>> from treadle import models, nn, rng
    >>> t5 = nn.inference(models.T5(100, 16, 2, 4, key=rng.key(0)))
    >>> tokens = [[5, 6, 7]]
    >>> t5(tokens, [[0, 8, 9, 4]]).shape
    (1, 4, 100)
    >>> context = t5.encoder(tokens)
    >>> models.generate(t5.decoder, [[0]], 6, eos=1, context=context).tokens.shape
    (1, 6)
    """

    encoder: T5Encoder
    decoder: T5Decoder

    def __init__(
        self,
        entries: int,
        width: int,
        depth: int,
        heads: int,
        *,
        decoder_depth: int | None = None,
        hidden: int | None = None,
        head_size: int | None = None,
        buckets: int = 32,
        max_distance: int = 128,
        mlp: Callable[..., Any] = _mlp,
        tied: bool = True,
        scaled: bool | None = None,
        eps: float = 1e-6,
        dropout: float = 0.1,
        dtype: Any = None,
        param_dtype: Any = tnp.float32,
        key: rng.Key,
    ) -> None:
        dtypes: Any = {"dtype": dtype, "param_dtype": param_dtype}
        keys = rng.split(key, 4)

        def blocks(block: Any, depth: int, bidirectional: bool, key: rng.Key) -> Any:
            bias_key, layers_key = rng.split(key)
            bias = nn.RelativePositionBias(
                heads,
                buckets=buckets,
                max_distance=max_distance,
                bidirectional=bidirectional,
                weight_init=nn.init.normal(width**-0.5),
                key=bias_key,
                **dtypes,
            )
            return _blocks(
                block,
                width,
                depth,
                heads,
                4 * width if hidden is None else hidden,
                head_size=width // heads if head_size is None else head_size,
                bias=bias,
                mlp=mlp,
                eps=eps,
                dropout=dropout,
                dtypes=dtypes,
                key=layers_key,
            )

        tokens = nn.Embedding(entries, width, key=keys[0], **dtypes)
        self.encoder = T5Encoder(
            tokens,
            blocks(nn.TransformerEncoderBlock, depth, True, keys[1]),
            nn.RMSNorm(width, eps=eps, **dtypes),
            nn.Dropout(dropout),
        )
        depth = depth if decoder_depth is None else decoder_depth
        head = nn.Linear(
            width, entries, bias=False, weight_init=_init, key=keys[3], **dtypes
        )
        self.decoder = T5Decoder(
            tokens,
            blocks(nn.TransformerDecoderBlock, depth, False, keys[2]),
            nn.RMSNorm(width, eps=eps, **dtypes),
            None if tied else head,
            nn.Dropout(dropout),
            tied if scaled is None else scaled,
        )

    def __call__(
        self,
        tokens: tnp.ArrayLike,
        targets: tnp.ArrayLike,
        lengths: tnp.ArrayLike | None = None,
        target_lengths: tnp.ArrayLike | None = None,
    ) -> td.Array:
        context = self.encoder(tokens, lengths)
        return self.decoder(
            targets, target_lengths, context=context, context_lengths=lengths
        )

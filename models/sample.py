"""The next token: the likeliest one, or one that is drawn."""

from __future__ import annotations

from operator import index

import treadle as td
import treadle.numpy as tnp
from treadle import nn, rng
from treadle.errors import at, user_source


class Sampling(nn.Module):
    """How tokens are chosen: drawn, by options of `generate`; without a key, the
    likeliest."""

    key: rng.Key | None
    temperature: td.Array
    top_p: td.Array | None
    top_k: int | None

    def __init__(
        self,
        key: rng.Key | None = None,
        temperature: tnp.ArrayLike | None = None,
        top_k: int | None = None,
        top_p: tnp.ArrayLike | None = None,
    ) -> None:
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        given = [name for name, value in options.items() if value is not None]
        if given and key is None:
            raise ValueError(
                f"generate: {', '.join(given)} without a key to draw tokens"
                f"{at(user_source())}\nGive `key=rng.key(seed)`, or leave them out for "
                "the likeliest tokens."
            )
        self.key, self.top_k = key, None if top_k is None else count("top_k", top_k)
        self.temperature = tnp.asarray(1.0 if temperature is None else temperature)
        self.top_p = None if top_p is None else tnp.asarray(top_p)

    def next(self, logits: td.Array, made: int | td.Array) -> td.Array:
        """The tokens (batch) after logits (batch, entries); `made` have been before.

        >>> Sampling().next(tnp.array([[0.0, 2.0, 1.0]]), 0)
        Array([1], dtype=int32)
        """
        if self.key is None:
            return logits.argmax(-1)
        key = rng.fold_in(self.key, made)
        logits = logits.astype(tnp.float32) / self.temperature
        if self.top_k is None and self.top_p is None:
            return rng.categorical(key, logits)
        entries = logits.shape[-1]
        best, tokens = tnp.top_k(logits, min(self.top_k or entries, entries))
        if self.top_p is not None:
            shares = nn.softmax(best)
            before = tnp.cumsum(shares, -1) - shares
            # Where rounding makes the sum before the first one more than nothing, it
            # stays, too.
            kept = (before < self.top_p) | (tnp.arange(best.shape[-1]) == 0)
            best = tnp.where(kept, best, -tnp.inf)
        place = rng.categorical(key, best)
        return tnp.take_along_axis(tokens, place[:, None], -1)[:, 0]


def count(name: str, value: int) -> int:
    """
    Raises:
      ValueError: unless it is 1 or more.
    """
    if index(value) < 1:
        raise ValueError(
            f"generate: {name} is 1 or more, got {value!r}{at(user_source())}"
        )
    return index(value)

"""Beam search: texts that are likely as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import treadle as td
import treadle.numpy as tnp
from treadle import nn, tree
from treadle.models.decoding import (
    Inputs,
    advance,
    batch_axes,
    is_end,
    joined,
    split,
    start,
)


class Beams(NamedTuple):
    """What a loop carries: the number of tokens made; of texts that go on, and of the
    best that are over, tokens (batch, beams, steps) and scores (batch, beams), best
    first; how long those are (batch, beams); for which examples they may get better
    (batch); caches, whose batch is batch * beams."""

    made: td.Array
    tokens: td.Array
    scores: td.Array
    over_tokens: td.Array
    over_scores: td.Array
    over_lengths: td.Array
    open: td.Array
    caches: list[Any]


def search(
    model: Any,
    tokens: td.Array,
    lengths: td.Array,
    inputs: Inputs,
    penalty: tnp.ArrayLike,
    *,
    beams: int,
    steps: int,
    ends: tuple[int, ...],
) -> tuple[td.Array, td.Array, td.Array]:
    """Tokens (batch, steps), lengths and scores (batch) of the best texts.

    It is the search of transformers (with ``early_stopping=False``): candidates are the
    best continuations of all beams. Those that end are over if they are among the first
    `beams`; their score is divided by ``length**penalty``. The others go on.
    """
    step = _Step(beams, penalty, steps, ends, batch_axes(model))
    logits, caches = start(model, tokens, lengths, tokens.shape[1] + steps - 1, inputs)
    caches = step.along_batch(step.repeated, caches)
    inputs = tree.map(step.repeated, inputs)
    caches, kept = split(caches)
    none = step.none(tokens.shape[0])

    def going(found: Beams) -> td.Array:
        return (found.made < steps) & found.open.any()

    def body(found: Beams) -> Beams:
        last = tnp.take(found.tokens, found.made - 1, -1).reshape(-1)
        logits, caches = advance(model, joined(found.caches, kept), last, inputs)
        return step(found, logits, split(caches)[0])

    first = step(none, step.repeated(logits), caches)
    found = td.while_loop(going, body, first)
    return found.over_tokens[:, 0], found.over_lengths[:, 0], found.over_scores[:, 0]


class _Step(NamedTuple):
    """A step of `search`: its options, and which axis of each cache is the batch."""

    beams: int
    penalty: tnp.ArrayLike
    steps: int
    ends: tuple[int, ...]
    batch_axes: list[int]

    def repeated(self, x: td.Array, axis: int = 0) -> td.Array:
        """(batch, ...) for each beam: (batch * beams, ...)."""
        return tnp.repeat(x, self.beams, axis)

    def along_batch(
        self, function: Callable[[td.Array, int], td.Array], caches: list[Any]
    ) -> list[Any]:
        """A function of an array and its axis of the batch, on all that caches hold."""
        return [
            tree.map(lambda x, axis=axis: function(x, axis), cache)
            for cache, axis in zip(caches, self.batch_axes, strict=True)
        ]

    def none(self, batch: int) -> Beams:
        """Before the first token. All beams are equal, so the first alone counts."""
        shape = (batch, self.beams)
        filled = tnp.full((*shape, self.steps), self.ends[0] if self.ends else 0)
        one = tnp.where(tnp.arange(self.beams) == 0, 0.0, -1e9)
        return Beams(
            tnp.asarray(0, tnp.int32),
            filled,
            tnp.broadcast_to(one, shape),
            filled,
            tnp.full(shape, -tnp.inf),
            tnp.zeros(shape, tnp.int32),
            tnp.ones(batch, bool),
            [],
        )

    def __call__(self, found: Beams, logits: td.Array, caches: list[Any]) -> Beams:
        """A further token; logits are (batch * beams, entries)."""
        batch, entries = found.open.shape[0], logits.shape[-1]
        chances = nn.log_softmax(logits.astype(tnp.float32))
        chances = chances.reshape(batch, self.beams, entries) + found.scores[..., None]
        # So many that enough go on even if all others end.
        kept = max(2, 1 + len(self.ends)) * self.beams
        scores, places = tnp.top_k(chances.reshape(batch, self.beams * entries), kept)
        parent, token = places // entries, places % entries
        tokens = _picked(found.tokens, parent).at[:, :, found.made].set(token)
        count = found.made + 1
        ended = is_end(token, self.ends) | (count == self.steps)

        scores_on, on = tnp.top_k(tnp.where(ended, scores - 1e9, scores), self.beams)
        size = count.astype(tnp.float32) ** self.penalty
        counts = ended & (tnp.arange(kept) < self.beams) & found.open[:, None]
        over = tnp.where(counts, scores / size, -tnp.inf)
        over_scores, best = tnp.top_k(
            tnp.concatenate([found.over_scores, over], 1), self.beams
        )
        over_tokens = tnp.concatenate([found.over_tokens, tokens], 1)
        lengths = tnp.broadcast_to(count, over.shape)
        over_lengths = tnp.concatenate([found.over_lengths, lengths], 1)
        return Beams(
            count,
            _picked(tokens, on),
            scores_on,
            _picked(over_tokens, best),
            over_scores,
            _picked(over_lengths, best),
            found.open & (scores_on[:, 0] / size > over_scores[:, -1]),
            self._reordered(caches, _picked(parent, on)),
        )

    def _reordered(self, caches: list[Any], parent: td.Array) -> list[Any]:
        """The caches of the beams (batch, beams) that go on."""
        first = tnp.arange(parent.shape[0]) * self.beams
        rows = (first[:, None] + parent).reshape(-1)
        return self.along_batch(lambda x, axis: tnp.take(x, rows, axis), caches)


def _picked(x: td.Array, places: td.Array) -> td.Array:
    """Of (batch, candidates, ...), those at places (batch, count)."""
    return x[tnp.arange(x.shape[0])[:, None], places]

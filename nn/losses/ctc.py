"""Connectionist temporal classification: labels without their places in time."""

from __future__ import annotations

from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.functions.activation import log_softmax

# The logarithm of 0: sums of it stay finite, so that derivatives do.
_NEVER = -1e30


def ctc(
    logits: tnp.ArrayLike,
    labels: tnp.ArrayLike,
    logit_lengths: tnp.ArrayLike | None = None,
    label_lengths: tnp.ArrayLike | None = None,
    *,
    blank: int = 0,
) -> td.Array:
    """The negative log-probability that frames spell labels, however long each takes.

    Every frame names a class or the blank; equal neighbours are one, then blanks are
    dropped. Summed over all ways of spelling, by the forward algorithm in logarithms.

    Shapes: logits (..., frames, classes), labels (..., length) of integers, lengths
    (...); the result (...).

    Args:
      logit_lengths: how many frames count; all by default.
      label_lengths: how many labels count; all by default.
      blank: the number of the class that is no label.

    Too few frames for the labels give infinity, with gradients of 0.

    Graves et al., *Connectionist Temporal Classification: Labelling Unsegmented
    Sequence Data with Recurrent Neural Networks*, 2006.

    Raises:
      ValueError: if the shapes don't fit.

    >>> import treadle.numpy as tnp
    >>> frames = tnp.log(tnp.array([[0.2, 0.8], [0.5, 0.5]]))
    >>> tnp.exp(-ctc(frames, tnp.array([1])))  # ways: 1 1, 1 blank, blank 1
    Array(0.9, dtype=float32)
    """
    logits, labels = check.as_array(logits), check.as_array(labels)
    lead = logits.shape[:-2]
    if logits.ndim < 2 or labels.shape[:-1] != lead or labels.ndim != logits.ndim - 1:
        raise ValueError(
            "ctc takes logits (..., frames, classes) and labels (..., length); got "
            f"{td.typeof(logits)} and {td.typeof(labels)}{at(user_source())}"
        )
    frames, length = logits.shape[-2], labels.shape[-1]
    ends = _lengths("logit_lengths", logit_lengths, lead, frames)
    count = _lengths("label_lengths", label_lengths, lead, length)
    blanks, emitted = _scores(check.wide(logits), labels, blank)
    total = _forward(blanks, emitted, labels, ends, count)
    return check.narrow(tnp.where(total > _NEVER / 2, -total, tnp.inf), logits)


def _lengths(name: str, lengths: Any, lead: tuple, most: Any) -> td.Array:
    if lengths is None:
        return tnp.full(lead, most, tnp.int32)
    lengths = tnp.asarray(lengths)
    if lengths.shape == lead:
        return lengths
    raise ValueError(
        f"ctc: {name} has one number for each sequence, an array of shape {lead}; got "
        f"{td.typeof(lengths)}{at(user_source())}"
    )


def _scores(wide: Any, labels: Any, blank: int) -> tuple[Any, Any]:
    """The log-probabilities of the blank (frames, ..., 1) and of the labels
    (frames, ..., length) in each frame."""
    log_p = tnp.maximum(log_softmax(wide), _NEVER)
    emitted = tnp.take_along_axis(log_p, labels[..., None, :], -1)
    blanks = log_p[..., blank : blank + 1]
    return tnp.moveaxis(blanks, -2, 0), tnp.moveaxis(emitted, -2, 0)


def _forward(blanks: Any, emitted: Any, labels: Any, ends: Any, count: Any) -> Any:
    """The log-probability of all ways.

    Of each number n of labels that are spelled, `rest` (..., length + 1) ends in a
    blank, and `last` (..., length) in label n + 1.
    """
    never = tnp.full((*labels.shape[:-1], 1), _NEVER, emitted.dtype)
    twice = labels[..., 1:] == labels[..., :-1]
    # Between two equal labels there must be a blank.
    twice = tnp.concatenate([tnp.zeros(never.shape, bool), twice], -1)
    start = tnp.zeros(never.shape, emitted.dtype)
    rest = tnp.concatenate([start, tnp.full(labels.shape, _NEVER, emitted.dtype)], -1)
    last = tnp.full(labels.shape, _NEVER, emitted.dtype)
    ends = ends[..., None]

    def step(carry: tuple, frame: tuple) -> tuple[tuple, None]:
        rest, last, t = carry
        empty, label = frame
        before = tnp.concatenate([never, last], -1)
        moved = tnp.where(twice, _NEVER, before[..., :-1])
        came = tnp.logaddexp(tnp.logaddexp(last, rest[..., :-1]), moved)
        going = t < ends
        new_rest = tnp.where(going, empty + tnp.logaddexp(rest, before), rest)
        new_last = tnp.where(going, label + came, last)
        return (new_rest, new_last, t + 1), None

    (rest, last, _), _ = td.scan(step, (rest, last, 0), (blanks, emitted))
    ways = tnp.logaddexp(rest, tnp.concatenate([never, last], -1))
    spelled = tnp.arange(ways.shape[-1]) == count[..., None]
    return tnp.where(spelled, ways, 0).sum(-1)

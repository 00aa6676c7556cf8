"""Dropout."""

from __future__ import annotations

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.nn import check
from treadle.nn.module import Module
from treadle.nn.state import draw_key


class Dropout(Module):
    """Zeroes a share of the elements at random, and scales up the others, so that the
    mean stays (Srivastava 2014). In inference (`nn.inference`) it does nothing.

    The key is drawn from the `nn.stateful` scope, unless one is passed.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> output, _ = nn.stateful(nn.Dropout(0.5), key=rng.key(0))(tnp.ones(1000))
    >>> set(output.tolist()) == {0.0, 2.0}
    True
    """

    rate: float
    inference: bool

    def __init__(self, rate: float, *, inference: bool = False) -> None:
        if not 0 <= rate <= 1:
            raise ValueError(f"Dropout: a rate is from 0 to 1, got {rate!r}")
        self.rate, self.inference = rate, inference

    def __call__(self, x: tnp.ArrayLike, *, key: rng.Key | None = None) -> td.Array:
        x = check.as_array(x)
        if self.inference or self.rate == 0:
            return x
        if self.rate == 1:
            return tnp.zeros_like(x)
        kept = 1 - self.rate
        chosen = rng.bernoulli(
            draw_key("Dropout") if key is None else key, kept, x.shape
        )
        return tnp.where(chosen, x * (1 / kept), 0)

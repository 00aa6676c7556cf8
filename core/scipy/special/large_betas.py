"""The incomplete beta function of large parameters, near its steepest place.

There the continued fraction takes about as many terms as the square root of the
parameters is large. The integral itself is one of nearly a normal density over a few
deviations: Gauss and Legendre's rule with as many nodes as there are here has all
digits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import treadle.numpy as tnp
from treadle.np.operands import as_array
from treadle.scipy.special.gammas import stirling
from treadle.scipy.special.large_gammas import apart

LEAST = 2e3
"""Parameters from which on the rule is used."""
_NEAR = 36.0
"""How many deviations x may be from the mean: farther, next to nothing is left."""
_VANISHED = 38.0
"""The exponent at which nothing is left beside the value at x."""
_NODES, _WEIGHTS = (tuple(map(float, x)) for x in np.polynomial.legendre.leggauss(40))


def is_near(a: Any, b: Any, x: Any) -> Any:
    """Whether `lower` is for these, of which a and b are positive and finite."""
    start = _beyond_mean(a, b, x)
    near = start * start * (a + b) < _NEAR**2 * (a / (a + b)) * (b / (a + b))
    return (tnp.minimum(a, b) > LEAST) & near


def _beyond_mean(a: Any, b: Any, x: Any) -> Any:
    """How far x is above the mean, with the digits that 1 - x has beside a mean near
    1."""
    return (b * x - a * (1 - x)) / (a + b)


def lower(a: Any, b: Any, x: Any) -> Any:
    """The integral from 0 to x."""
    total = a + b
    p, q = a / total, b / total
    width = tnp.sqrt(p) * tnp.sqrt(q) / tnp.sqrt(total)
    start = _beyond_mean(a, b, x)
    below = start < 0
    # From x away from the mean, until the exponent -z²/2 is less by so much.
    z = tnp.abs(start) / width
    span = 2 * _VANISHED / (tnp.sqrt(z * z + 2 * _VANISHED) + z)
    step = tnp.where(below, -span, span) * width
    nodes = as_array(np.array(_NODES, x.dtype) * 0.5 + 0.5)
    d = start[..., None] + step[..., None] * nodes
    a_, b_, p_, q_ = (v[..., None] for v in (a, b, p, q))
    exponent = -a_ * apart(d / p_, (p_ + d) / p_) - b_ * apart(-d / q_, (q_ - d) / q_)
    values = tnp.exp(exponent) / ((p_ + d) * (q_ - d))
    rest = tnp.sum(values * as_array(np.array(_WEIGHTS, x.dtype)), axis=-1)
    # Of √(a b / 2π (a + b)), the density at the mean, by the width: √(p q).
    size = 0.5 / math.sqrt(2 * math.pi) * span * p * q
    size = size * tnp.exp(stirling(total) - stirling(a) - stirling(b))
    return tnp.where(below, size * rest, 1 - size * rest)

"""Discrete distributions: coins, categories, choices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import ml_dtypes

import treadle.numpy as tnp
from treadle import Array, dtypes, is_array, typeof
from treadle.dims import plain
from treadle.dtypes import DTypeLike
from treadle.errors import at, user_source
from treadle.np.operands import one_axis
from treadle.rng.continuous import gumbel, mode_of
from treadle.rng.key import Key, as_shape, check_key
from treadle.rng.permute import permutation
from treadle.rng.uniform import fitting_shape, randint, uniform


def bernoulli(
    key: Key,
    p: Any = 0.5,
    shape: Sequence[int] | None = None,
    mode: str | None = None,
) -> Array:
    """Booleans, true with probability p.

    p broadcasts to `shape`, which is its own by default.

    Args:
      mode: "low", the default: probabilities of float32 are multiples of 2⁻²³; "high":
        of 2⁻⁴⁶, for what is rarer.

    Raises:
      ValueError: for another mode.

    >>> from treadle import rng
    >>> rng.bernoulli(rng.key(0), 1e-9, (1000,), mode="high").any()
    Array(False, dtype=bool)
    """
    check_key("bernoulli", key)
    dtype = dtypes.to_float(typeof(p).dtype)
    shape = fitting_shape("bernoulli", shape, p)
    if mode_of("bernoulli", mode) == "low":
        return uniform(key, shape, dtype) < p
    first, second = uniform(key, (2, *shape), dtype)
    return second * dtype.type(2.0 ** -ml_dtypes.finfo(dtype).nmant) < p - first


def rademacher(
    key: Key, shape: Sequence[int] = (), dtype: DTypeLike = tnp.int32
) -> Array:
    """-1 or 1, with equal probability."""
    check_key("rademacher", key)
    coins = bernoulli(key, 0.5, as_shape("rademacher", shape))
    return (2 * coins.astype(tnp.int32) - 1).astype(dtype)


def categorical(
    key: Key,
    logits: Any,
    axis: int = -1,
    shape: Sequence[int] | None = None,
    replace: bool = True,
    mode: str | None = None,
) -> Array:
    """Numbers of categories, drawn with probabilities ``softmax(logits)``
    (int32, as those of `argmax`).

    Args:
      logits: log probabilities up to a constant; the categories lie along `axis`.
      shape: that of the result: leading axes for more draws, then the other axes of
        `logits`, which are the default.
      replace: whether the draws along the leading axes may be of the same category.
      mode: "low" or "high": of how many digits the noise is (`gumbel`), which decides
        how rare a category can be that is drawn.

    Raises:
      ValueError: for an axis or a shape that `logits` has not, or another mode.

    >>> from treadle import rng
    >>> rng.categorical(rng.key(0), tnp.zeros((4, 10)), mode="high").shape
    (4,)
    """
    check_key("categorical", key)
    logits = tnp.asarray(logits)
    n = typeof(logits).ndim
    if not -n <= axis < n:
        raise ValueError(
            f"categorical: axis {axis} is out of range for logits of shape "
            f"{logits.shape}{at(user_source())}"
        )
    axis %= n
    rest = (*logits.shape[:axis], *logits.shape[axis + 1 :])
    shape = rest if shape is None else as_shape("categorical", shape)
    extra = len(shape) - len(rest)
    if extra < 0 or tnp.broadcast_shapes(shape, rest) != shape:
        raise ValueError(
            f"categorical: logits of shape {logits.shape} can't give shape {shape}"
            f"{at(user_source())}"
        )
    if not replace:
        return _different(key, logits, axis, shape, rest, mode)
    inner = list(shape[extra:])
    inner.insert(axis, logits.shape[axis])
    dtype = dtypes.to_float(logits.dtype)
    noise = gumbel(key, (*shape[:extra], *inner), dtype, mode)
    return tnp.argmax(noise + logits, axis + extra)


def _different(
    key: Key,
    logits: Array,
    axis: int,
    shape: tuple[int, ...],
    rest: tuple[int, ...],
    mode: str | None = None,
) -> Array:
    """Draws without replacement: the largest of the logits with Gumbel noise [1].

    [1] W. Kool et al., Stochastic Beams and Where to Find Them (2019).
    """
    lead = shape[: len(shape) - len(rest)]
    draws, n = math.prod(lead), logits.shape[axis]
    if draws > n or shape[len(lead) :] != rest:
        raise ValueError(
            f"categorical: can't draw shape {shape} of {n} categories without "
            f"replacement, for logits of shape {logits.shape}{at(user_source())}"
        )
    noise = gumbel(key, logits.shape, dtypes.to_float(logits.dtype), mode)
    order = tnp.top_k(logits + noise, draws, axis)[1]
    return tnp.moveaxis(order, axis, 0).reshape(shape)


def choice(
    key: Key,
    a: Any,
    shape: Sequence[int] = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
) -> Array:
    """Elements of an array (or of 0…a-1) drawn at random.

    Args:
      a: the array, whose slices along `axis` are drawn; or an integer.
      replace: whether an element may be drawn again.
      p: the probability of each element; equal ones by default.
    """
    check_key("choice", key)
    shape = as_shape("choice", shape)
    whole = is_array(a) and typeof(a).ndim > 0
    axis = one_axis("choice", axis, typeof(a).ndim) if whole else axis
    n = typeof(a).shape[axis] if whole else plain(a)
    draws = math.prod(shape)
    if draws and (n <= 0 or (not replace and draws > n)):
        raise ValueError(
            f"choice: can't draw {draws} of {n} elements"
            f"{'' if replace else ' without replacement'}{at(user_source())}"
        )
    if p is not None:
        found = _weighted(key, n, shape, replace, p)
    elif replace:
        found = randint(key, shape, 0, n, dtypes.of_index(n))
    else:
        found = permutation(key, n)[:draws].reshape(shape)
    return tnp.take(a, found, axis) if whole else found


def _weighted(key: Key, n: int, shape: tuple[int, ...], replace: bool, p: Any) -> Array:
    p = tnp.asarray(p)
    if p.shape != (n,):
        raise ValueError(
            f"choice: p has shape {p.shape} for {n} elements{at(user_source())}"
        )
    if replace:
        total = tnp.cumsum(p)
        return tnp.searchsorted(total, total[-1] * (1 - uniform(key, shape, p.dtype)))
    draws = math.prod(shape)
    return _different(key, tnp.log(p), 0, (draws,), ()).reshape(shape)

"""Layers that disturb what they are given in training, and do nothing in inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index

import treadle as td
import treadle.numpy as tnp
from treadle import rng
from treadle.errors import at, user_source
from treadle.nn import check
from treadle.nn.module import Module
from treadle.nn.state import draw_key

_LEAST_OF_SELU = -1.7580993408473766
"""What `selu` tends to far below 0."""


class Dropout(Module):
    """Zeroes a share of the elements at random, and scales up the others, so that the
    mean stays (Srivastava 2014). In inference (`nn.inference`) it does nothing.

    The key is drawn from the `nn.stateful` scope, unless one is passed.

    Args:
      rate: the share of zeros, from 0 to 1.
      broadcast_axes: axes along which all elements are zeroed or none: (-3, -2) drops
        whole channels of images (..., height, width, channels).

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> output, _ = nn.stateful(nn.Dropout(0.5), key=rng.key(0))(tnp.ones(1000))
    >>> set(output.tolist()) == {0.0, 2.0}
    True
    """

    rate: float
    broadcast_axes: tuple[int, ...]
    inference: bool

    def __init__(
        self,
        rate: float,
        *,
        broadcast_axes: int | Sequence[int] = (),
        inference: bool = False,
    ) -> None:
        check.within("Dropout", "rate", rate, 0, 1)
        self.rate, self.broadcast_axes = rate, _axes(broadcast_axes)
        self.inference = inference

    def __call__(self, x: tnp.ArrayLike, *, key: rng.Key | None = None) -> td.Array:
        x = check.as_array(x)
        if self.inference or self.rate == 0:
            return x
        if self.rate == 1:
            return tnp.zeros_like(x)
        kept = 1 - self.rate
        chosen = kept_of(
            "Dropout", key, kept, _shared("Dropout", x, self.broadcast_axes)
        )
        return tnp.where(chosen, x * (1 / kept), 0)


class AlphaDropout(Module):
    """Sets a share of the elements to the least value of `selu`, and scales and shifts
    all, so that mean 0 and variance 1 stay (Klambauer 2017). In inference
    (`nn.inference`) it does nothing.

    The key is drawn from the `nn.stateful` scope, unless one is passed.

    Args:
      rate: the share of dropped elements, from 0 to 1.
      broadcast_axes: axes along which all elements are dropped or none, as `Dropout`
        has them.

    >>> from treadle import nn, rng
    >>> x = rng.normal(rng.key(0), (10_000,))
    >>> output, _ = nn.stateful(nn.AlphaDropout(0.3), key=rng.key(1))(x)
    >>> bool(abs(output.mean()) < 0.05), bool(abs(output.std() - 1) < 0.05)
    (True, True)
    """

    rate: float
    broadcast_axes: tuple[int, ...]
    inference: bool

    def __init__(
        self, rate: float, *, broadcast_axes: int | Sequence[int] = ()
    ) -> None:
        check.within("AlphaDropout", "rate", rate, 0, 1)
        self.rate, self.broadcast_axes = rate, _axes(broadcast_axes)
        self.inference = False

    def __call__(self, x: tnp.ArrayLike, *, key: rng.Key | None = None) -> td.Array:
        x = check.as_array(x)
        if self.inference or self.rate == 0:
            return x
        if self.rate == 1:
            return tnp.zeros_like(x)
        kept, least = 1 - self.rate, _LEAST_OF_SELU
        scale = (kept + least**2 * kept * self.rate) ** -0.5
        shift = -scale * least * self.rate
        chosen = kept_of(
            "AlphaDropout", key, kept, _shared("AlphaDropout", x, self.broadcast_axes)
        )
        return tnp.where(chosen, x, least) * scale + shift


class DropPath(Module):
    """Zeroes whole examples at random, and scales up the others, so that the mean stays
    (stochastic depth, Huang 2016). Use it on what a residual block adds. In inference
    (`nn.inference`) it does nothing.

    Shapes: ``(batch, ...) -> (batch, ...)``. The key is drawn from the `nn.stateful`
    scope, unless one is passed.

    Args:
      rate: the share of dropped examples, from 0 to 1.
      batch_axes: how many leading axes count examples; 0: all is dropped, or nothing.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> output, _ = nn.stateful(nn.DropPath(0.5), key=rng.key(0))(tnp.ones((50, 2)))
    >>> {tuple(row) for row in output.tolist()} == {(0.0, 0.0), (2.0, 2.0)}
    True
    """

    rate: float
    batch_axes: int
    inference: bool

    def __init__(self, rate: float, *, batch_axes: int = 1) -> None:
        check.within("DropPath", "rate", rate, 0, 1)
        self.rate, self.batch_axes, self.inference = rate, batch_axes, False

    def __call__(self, x: tnp.ArrayLike, *, key: rng.Key | None = None) -> td.Array:
        x = check.as_array(x)
        if self.inference or self.rate == 0:
            return x
        if self.rate == 1:
            return tnp.zeros_like(x)
        kept = 1 - self.rate
        within = tuple(range(self.batch_axes, x.ndim))
        chosen = kept_of("DropPath", key, kept, _shared("DropPath", x, within))
        return tnp.where(chosen, x * (1 / kept), 0)


class GaussianDropout(Module):
    """Multiplies by random numbers of mean 1 and the variance of the factors of
    `Dropout`, ``rate / (1 - rate)`` (Srivastava 2014). In inference (`nn.inference`) it
    does nothing.

    The key is drawn from the `nn.stateful` scope, unless one is passed.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.GaussianDropout(0.5)
    >>> output, _ = nn.stateful(layer, key=rng.key(0))(tnp.ones(10_000))
    >>> bool(abs(output.mean() - 1) < 0.05), bool(abs(output.std() - 1) < 0.05)
    (True, True)
    """

    rate: float
    inference: bool

    def __init__(self, rate: float) -> None:
        if not 0 <= rate < 1:
            raise ValueError(
                f"GaussianDropout: rate is from 0 to below 1, got {rate!r}"
                f"{at(user_source())}"
            )
        self.rate, self.inference = rate, False

    def __call__(self, x: tnp.ArrayLike, *, key: rng.Key | None = None) -> td.Array:
        x = check.as_array(x)
        if self.inference or self.rate == 0:
            return x
        key = draw_key("GaussianDropout") if key is None else key
        factor = 1 + math.sqrt(self.rate / (1 - self.rate)) * rng.normal(key, x.shape)
        return x * check.narrow(factor, x)


class GaussianNoise(Module):
    """Adds normal noise. In inference (`nn.inference`) it does nothing.

    The key is drawn from the `nn.stateful` scope, unless one is passed.

    Args:
      stddev: the standard deviation of the noise.

    >>> from treadle import nn, rng
    >>> import treadle.numpy as tnp
    >>> layer = nn.GaussianNoise(0.1)
    >>> output, _ = nn.stateful(layer, key=rng.key(0))(tnp.ones(10_000))
    >>> bool(abs(output.std() - 0.1) < 0.01)
    True
    """

    stddev: float
    inference: bool

    def __init__(self, stddev: float) -> None:
        check.within("GaussianNoise", "stddev", stddev)
        self.stddev, self.inference = stddev, False

    def __call__(self, x: tnp.ArrayLike, *, key: rng.Key | None = None) -> td.Array:
        x = check.as_array(x)
        if self.inference or self.stddev == 0:
            return x
        key = draw_key("GaussianNoise") if key is None else key
        return x + check.narrow(self.stddev * rng.normal(key, x.shape), x)


def _axes(axes: int | Sequence[int]) -> tuple[int, ...]:
    return tuple(map(index, axes)) if isinstance(axes, Sequence) else (index(axes),)


def _shared(layer: str, x: td.Array, axes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of x with 1 for those axes.

    Raises:
      ValueError: if there is no such axis.
    """
    shape = list(x.shape)
    for axis in axes:
        if not -x.ndim <= axis < x.ndim:
            raise ValueError(
                f"{layer}: of the axes to broadcast over, {axis} is none of "
                f"{td.typeof(x)}{at(user_source())}"
            )
        shape[axis] = 1
    return tuple(shape)


def kept_of(
    layer: str, key: rng.Key | None, share: float, shape: tuple[int, ...]
) -> td.Array:
    """Booleans, a share of which is True: what is kept. Without a key, one is drawn."""
    return rng.bernoulli(draw_key(layer) if key is None else key, share, shape)

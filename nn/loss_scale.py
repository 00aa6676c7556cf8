"""Losses scaled up, so that gradients in float16 don't become zeros."""

from __future__ import annotations

import math
from typing import Any, Self

import treadle as td
import treadle.numpy as tnp
from treadle import tree
from treadle.errors import at, user_source
from treadle.nn.check import is_floating, wide
from treadle.nn.module import Module
from treadle.nn.role import Buffer

_WRONG = """\
LossScale: {name} is {what}, got {value!r}{at}"""


class LossScale(Module):
    """Multiplies a loss, and divides its gradients: what float16 can't hold, below
    6e-8, is large enough in between (Micikevicius 2018).

    A pytree: it goes in and out of a jitted step beside the model. With bfloat16, which
    has the range of float32, it is not needed.

    Args:
      scale: what the loss is multiplied with at first. Powers of two round nothing.
      growth_interval: after how many steps in a row with finite gradients it grows;
        None: it stays as it is.
      growth_factor, backoff_factor: what it is multiplied with then; and after a step
        whose gradients are not finite.
      min_scale: below which it does not fall.

    Raises:
      ValueError: for numbers that make no sense.

    One step: `optim.apply_if_finite` leaves out updates that are not finite.

    >>> import treadle as td, treadle.numpy as tnp
    >>> from treadle import nn
    >>> scale = nn.LossScale(256.0)
    >>> grads = td.grad(lambda w: scale.apply((w * 3.0).sum()))(tnp.ones(1, td.float16))
    >>> grads
    Array([768.], dtype=float16)
    >>> grads = scale.unscale(grads)
    >>> grads
    Array([3.], dtype=float32)
    >>> scale.adjust(nn.all_finite(grads)).steps
    Array(1, dtype=int32)
    >>> scale.adjust(False).scale
    Array(128., dtype=float32)
    """

    scale: td.Array
    steps: td.Array
    growth_interval: int | None
    growth_factor: float
    backoff_factor: float
    min_scale: float

    def __init__(
        self,
        scale: float = 2.0**16,
        *,
        growth_interval: int | None = 2000,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        min_scale: float = 1.0,
    ) -> None:
        _check("scale", scale, "a positive number", 0 < scale < math.inf)
        if growth_interval is not None:
            count = growth_interval
            _check("growth_interval", count, "None or 1 and up", count >= 1)
        _check("growth_factor", growth_factor, "at least 1", growth_factor >= 1)
        within = 0 < backoff_factor <= 1
        _check("backoff_factor", backoff_factor, "above 0, at most 1", within)
        _check("min_scale", min_scale, "above 0, at most scale", 0 < min_scale <= scale)
        self.scale = Buffer(tnp.asarray(scale, tnp.float32))
        self.steps = Buffer(tnp.zeros((), tnp.int32))
        self.growth_interval, self.growth_factor = growth_interval, growth_factor
        self.backoff_factor, self.min_scale = backoff_factor, min_scale

    def apply(self, loss: tnp.ArrayLike) -> td.Array:
        """The loss, scaled; of halves in float32."""
        value: td.Array = wide(tnp.asarray(loss))
        return value * self.scale.astype(value.dtype)

    def unscale(self, grads: Any) -> Any:
        """The gradients of the loss, given those of the scaled one: a pytree. Halves
        become float32, in which they are not lost."""

        def divided(x: Any) -> Any:
            if not td.is_array(x) or not td.dtypes.is_differentiable(x.dtype):
                return x
            x = wide(x)
            return x / self.scale.astype(x.dtype)

        return tree.map(divided, grads)

    def adjust(self, finite: Any) -> Self:
        """The scale for the next step: less if the gradients of this one were not
        finite, more after `growth_interval` steps in which they were.

        Args:
          finite: a bool, as `nn.all_finite` of the gradients gives it.
        """
        if self.growth_interval is None:
            return self
        finite = tnp.asarray(finite)
        steps = tnp.where(finite, self.steps + 1, 0)
        grows = steps >= self.growth_interval
        grown = self.scale * self.growth_factor
        # A scale that is infinite would stay so.
        grown = tnp.where(grows & tnp.isfinite(grown), grown, self.scale)
        shrunk = tnp.maximum(self.scale * self.backoff_factor, self.min_scale)
        return self.replace(
            scale=tnp.where(finite, grown, shrunk), steps=tnp.where(grows, 0, steps)
        )


def _check(name: str, value: Any, what: str, holds: bool) -> None:
    if not holds:
        text = _WRONG.format(name=name, what=what, value=value, at=at(user_source()))
        raise ValueError(text)


def all_finite(values: Any) -> td.Array:
    """Whether all floating-point numbers of a pytree are finite: no infinities, no NaN.

    >>> import treadle.numpy as tnp
    >>> all_finite({"w": tnp.array([1.0, tnp.inf]), "frozen": None})
    Array(False, dtype=bool)
    """
    found = tnp.asarray(True)
    for x in tree.leaves(values):
        if is_floating(x) or (td.is_array(x) and td.dtypes.is_complex(x.dtype)):
            found = found & tnp.isfinite(x).all()
    return found

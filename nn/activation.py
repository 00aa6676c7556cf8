"""Activation functions: arrays in, arrays of the same shape out."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import treadle as td
import treadle.numpy as tnp
from treadle.numpy import special

Array = td.Array


def relu(x: Array) -> Array:
    """``max(x, 0)``, with derivative 0 at 0. NaN stays NaN.

    >>> import treadle.numpy as tnp
    >>> relu(tnp.array([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return tnp.where(x <= 0, 0, x)


def relu6(x: Array) -> Array:
    """``min(max(x, 0), 6)``."""
    return tnp.where(x >= 6, 6, relu(x))


def leaky_relu(x: Array, slope: float = 0.01) -> Array:
    """``x`` where positive, ``slope * x`` elsewhere."""
    return tnp.where(x > 0, x, slope * x)


def elu(x: Array, alpha: float = 1.0) -> Array:
    """``x`` where positive, ``alpha * (exp(x) - 1)`` elsewhere (Clevert 2015)."""
    # The branch not taken must not overflow: its derivative would be 0 * inf.
    below = tnp.expm1(tnp.where(x > 0, 0, x))
    return tnp.where(x > 0, x, alpha * below)


def selu(x: Array) -> Array:
    """The scaled `elu` that keeps mean 0 and variance 1 (Klambauer 2017)."""
    return 1.0507009873554805 * elu(x, 1.6732632423543772)


def gelu(x: Array, approximate: bool = True) -> Array:
    """``x`` times the probability that a normal variable is less (Hendrycks 2016).

    Args:
      approximate: use the tanh formula of the GPT models; if False, the error function.
    """
    if approximate:
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * (x * x * x))
        return x * (0.5 * (1.0 + tnp.tanh(inner)))
    return x * (0.5 * (1.0 + special.erf(x * math.sqrt(0.5))))


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``."""
    return special.logistic(x)


def log_sigmoid(x: Array) -> Array:
    """The logarithm of `sigmoid`, without underflow."""
    return -softplus(-x)


def silu(x: Array) -> Array:
    """``x * sigmoid(x)``, also called swish (Elfwing 2017)."""
    return x * special.logistic(x)


def softplus(x: Array) -> Array:
    """``log(1 + exp(x))``, a smooth `relu`."""
    return tnp.logaddexp(x, 0.0)


def softsign(x: Array) -> Array:
    """``x / (1 + |x|)``."""
    return x / (1 + tnp.abs(x))


def mish(x: Array) -> Array:
    """``x * tanh(softplus(x))`` (Misra 2019)."""
    return x * tnp.tanh(softplus(x))


def tanh(x: Array) -> Array:
    """The hyperbolic tangent."""
    return tnp.tanh(x)


def glu(x: Array) -> Array:
    """The first half of the last axis, gated by the `sigmoid` of the second half.

    Shapes: ``(..., 2 n) -> (..., n)``.
    """
    value, gate = _halves("glu", x)
    return value * sigmoid(gate)


def swiglu(x: Array) -> Array:
    """`silu` of the first half of the last axis, times the second half (Shazeer 2020).

    Shapes: ``(..., 2 n) -> (..., n)``.
    """
    gate, value = _halves("swiglu", x)
    return silu(gate) * value


def _halves(name: str, x: Array) -> tuple[Array, Array]:
    n = x.shape[-1] if x.ndim else 1
    if n % 2:
        raise ValueError(
            f"{name} halves the last axis, which must have an even length; "
            f"got {td.typeof(x)}"
        )
    return x[..., : n // 2], x[..., n // 2 :]


def softmax(x: Array, axis: int = -1) -> Array:
    """``exp(x) / sum(exp(x))`` along an axis, without overflow."""
    return _softmax(x, axis)


@partial(td.custom_jvp, nondiff_argnums=(1,))
def _softmax(x: Array, axis: int) -> Array:
    weights = tnp.exp(x - _top(x, axis))
    return weights / weights.sum(axis, keepdims=True)


@_softmax.defjvp
def _softmax_jvp(axis: int, primals: tuple[Array], tangents: tuple[Array]) -> Any:
    # Written with the result alone, so that a backward pass keeps nothing else.
    out, t = _softmax(primals[0], axis), tangents[0]
    return out, out * (t - (out * t).sum(axis, keepdims=True))


def log_softmax(x: Array, axis: int = -1) -> Array:
    """The logarithm of `softmax`, without underflow."""
    shifted = x - _top(x, axis)
    return shifted - tnp.log(tnp.exp(shifted).sum(axis, keepdims=True))


def logsumexp(x: Array, axis: int = -1, keepdims: bool = False) -> Array:
    """``log(sum(exp(x)))`` along an axis, without overflow."""
    top = _top(x, axis)
    # Where everything is -inf, so is the result, not NaN.
    top = tnp.where(tnp.isfinite(top), top, 0)
    total = tnp.log(tnp.exp(x - top).sum(axis, keepdims=True)) + top
    return total if keepdims else tnp.squeeze(total, axis)


def _top(x: Array, axis: int) -> Array:
    """The largest element, which the result doesn't depend on."""
    return tnp.max(td.stop_gradient(x), axis, keepdims=True)


def one_hot(labels: Array, classes: int, dtype: Any = tnp.float32) -> Array:
    """1 at the label's place, 0 elsewhere: ``(...) -> (..., classes)``.

    A label that is no class gives zeros.

    >>> import treadle.numpy as tnp
    >>> one_hot(tnp.array([2, 0]), 3)
    Array([[0., 0., 1.],
           [1., 0., 0.]], dtype=float32)
    """
    return (tnp.asarray(labels)[..., None] == tnp.arange(classes)).astype(dtype)
